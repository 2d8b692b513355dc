#pragma once
// SPDX-License-Identifier: Apache-2.0
// Runs that leave everything to the plan, on H100.

#include <cstdint>
#include <string>

#include "plan/choice.hpp"
#include "plan/machine/machine_file.hpp"
#include "support/folders.hpp"
#include "support/optimizers.hpp"
#include "unit/plan/decoder.hpp"
#include "unit/plan/small_model.hpp"

namespace finetune::plan {

inline constexpr tests::Size llama_8b = {32, 4096, 32, 8, 128, 14336, 128256};
inline constexpr tests::Size small = {2, 64, 4, 2, 16, 96, 1000};
inline constexpr std::int64_t gib = std::int64_t{1} << 30;

inline Machine shipped(const std::string& name) {
  return read_machine(name, tests::source_folder() / "inputs/machines");
}

/// A run that leaves everything to the plan.
inline PlanInput open_request(const tests::Size& size, std::int64_t nodes, std::int64_t of_node) {
  PlanInput request = tests::adamw_request();
  request.architecture = tests::decoder(size);
  request.on_gpu = true;
  request.ranks = tests::ranks_on_nodes(nodes * of_node, of_node);
  request.chooses_activations = true;
  request.max_seq_length = 2048;
  request.global_batch = request.ranks.world_size;
  return request;
}

inline PlanInput open_8b() {
  return open_request(llama_8b, 2, 8);
}

/// Of two nodes of eight H100.
inline Choice choose_8b(const tests::Training& training, std::int64_t available_bytes) {
  const PlanInput request = open_8b();
  const tests::DecoderTable table(request.architecture, training);
  return choose(request, table.table(), {shipped("h100-8"), Passes::composed, available_bytes});
}

/// LoRA of 131,072 tokens on two nodes of eight H100.
struct LongSequence {
  PlanInput request = open_8b();
  tests::DecoderTable table{request.architecture, {.rank = 8}};
  Site site{shipped("h100-8"), Passes::composed, 75 * gib};

  LongSequence() { request.max_seq_length = 131072; }
  Choice choose() const { return plan::choose(request, table.table(), site); }
};

}  // namespace finetune::plan
