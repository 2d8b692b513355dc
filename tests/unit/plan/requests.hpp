#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the tests of plans plan: tables without a family, machines of round numbers, and runs.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "adapters/lora/cost.hpp"
#include "model/layout.hpp"
#include "plan/choice.hpp"
#include "plan/machine/machine_file.hpp"
#include "plan/time/detail/work.hpp"
#include "support/architecture.hpp"
#include "support/folders.hpp"
#include "support/optimizers.hpp"

namespace finetune::tests {

/// Two blocks; widths that differ, so that none can be taken for another.
inline constexpr Size two_blocks = {2, 64, 4, 2, 16, 96, 1000};

/// What is trained: everything, or adapters of rank `rank` beside all matrices of the blocks, or
/// beside those of attention only.
struct Training {
  std::int64_t rank = 0;
  bool only_attention = false;
  model::Packing::Kind packing = model::Packing::Kind::dense;
};

/// Embedding, blocks and head with the shapes of Llama.
class DecoderTable {
 public:
  DecoderTable(const model::Architecture& a, const Training& training = {})
      : training_(training), table_(model::lay_out(a)) {
    for (const model::BlockRows& block : table_.decoder.blocks) {
      adapt(block.qkv);
      adapt({block.attention_out, 1});
      if (training_.only_attention) continue;
      adapt(block.feed_forward.gate_up);
      adapt({block.feed_forward.down, 1});
    }
    for (model::Parameter& row : table_.rows) {
      row.trainable = training.rank == 0;
      if (row.role == model::Role::linear) row.packing.kind = training.packing;
    }
    if (training.rank > 0) add_adapters();
  }

  const model::ParameterTable& table() const { return table_; }

 private:
  void adapt(model::RowRange rows) {
    for (int row = rows.first; row < rows.first + rows.num; ++row)
      adapted_.push_back(row);
  }
  /// All in one unit, as modules/adapters/lora puts them.
  void add_adapters() {
    table_.units.push_back("adapter");
    for (const int i : adapted_) {
      const model::Parameter base = table_.row(i);
      const auto first = static_cast<int>(table_.rows.size());
      table_.rows[static_cast<std::size_t>(i)].adapted = {.parts = {first, first + 1},
                                                          .cost = &adapters::lora::cost()};
      for (const auto& shape : {std::vector<std::int64_t>{training_.rank, base.shape[1]},
                                std::vector<std::int64_t>{base.shape[0], training_.rank}}) {
        // Split with the side that it shares with the matrix.
        const bool is_first = shape[0] == training_.rank;
        table_.rows.push_back(
            {.name = "adapter",
             .shape = shape,
             .unit = static_cast<int>(table_.units.size()) - 1,
             .stage = base.stage,
             .split = base.split && (base.split->dim == 1) == is_first ? base.split : std::nullopt,
             .adapts = i});
      }
    }
  }

  Training training_;
  model::ParameterTable table_;
  std::vector<int> adapted_;
};

/// A machine whose numbers are easy to compute with: 2 nodes of 2 GPUs.
inline plan::Machine round_machine() {
  plan::Machine machine;
  machine.gpus_per_node = 2;
  machine.gpu_memory_gib = 80;
  machine.peak_tflops = 2;
  machine.bf16_tflops = 1;
  machine.fp32_tflops = 0.5;
  machine.memory_gb_per_s = 1000;
  machine.intra_gb_per_s = 100;
  machine.inter_gb_per_s = 10;
  return machine;
}

/// Equal blocks of one matrix and one norm each; odd, so that two ranks need padding. The norm is
/// the block's second part.
inline model::ParameterTable block_table(int num_blocks, std::int64_t width = 1001) {
  model::ParameterTable table;
  for (int i = 0; i < num_blocks; ++i) {
    table.units.push_back("layers." + std::to_string(i));
    table.rows.push_back({.name = "matrix", .shape = {width, width}, .unit = i, .stage = i});
    table.rows.push_back(
        {.name = "norm", .shape = {width}, .unit = i, .part = 1, .decayed = false, .stage = i});
  }
  return table;
}

/// Nodes of `ranks_per_node` ranks; the last may have fewer.
inline plan::Ranks ranks_on_nodes(std::int64_t world_size, std::int64_t ranks_per_node) {
  return {.world_size = world_size,
          .ranks_per_node = std::min(world_size, ranks_per_node),
          .num_nodes = (world_size + ranks_per_node - 1) / ranks_per_node,
          .is_even = world_size <= ranks_per_node || world_size % ranks_per_node == 0};
}

/// FULL_SHARD on nodes of two ranks.
inline plan::PlanInput request(std::int64_t world_size, core::DType dtype = core::DType::bf16) {
  plan::PlanInput request = adamw_request();
  request.architecture = architecture_of({16, 64, 4, 2, 16, 96, 1000, /*max_positions=*/0});
  request.parallel.sharding = plan::Sharding::full_shard;
  request.numbers.compute = dtype;
  request.ranks = ranks_on_nodes(world_size, 2);
  request.global_batch = 8;
  request.micro_batch = 2;
  request.max_seq_length = 32;
  return request;
}

}  // namespace finetune::tests

namespace finetune::plan {

/// 0: left to the plan.
struct Sharing {
  std::int64_t ranks = 1, tp = 1, cp = 1, ep = 1;
};

/// Of the two blocks: two sequences of 32 tokens a pass, one pass, on nodes of so many GPUs.
inline PlanInput two_block_request(const Sharing& sharing, std::int64_t of_node,
                                   std::optional<Sharding> by = Sharding::full_shard) {
  PlanInput request = tests::adamw_request();
  request.architecture = tests::architecture_of(tests::two_blocks);
  request.parallel.sharding = by;
  request.parallel.tp = sharing.tp;
  request.parallel.cp = sharing.cp;
  request.parallel.ep = sharing.ep;
  request.on_gpu = true;
  request.ranks = tests::ranks_on_nodes(sharing.ranks, of_node);
  request.micro_batch = 2;
  request.max_seq_length = 32;
  request.global_batch =
      2 * sharing.ranks / (request.parallel.num_tp() * request.parallel.num_cp());
  return request;
}
inline PlanInput small_request(std::int64_t ranks, const std::string& sharding = "FULL_SHARD") {
  return two_block_request({ranks, 0, 0, 0}, 2, sharding_named(sharding));
}

inline MicroBatchWork work(const PlanInput& r, const tests::Training& training = {}) {
  const tests::DecoderTable table(r.architecture, training);
  return plan_work(r, table.table(), Rates(tests::round_machine(), r.numbers.compute),
                   Passes::fused);
}

inline constexpr tests::Size llama_8b = {32, 4096, 32, 8, 128, 14336, 128256};
inline constexpr std::int64_t gib = std::int64_t{1} << 30;

inline Machine shipped(const std::string& name) {
  return read_machine(name, tests::source_folder() / "inputs/machines");
}

/// A run that leaves everything to the plan.
inline PlanInput open_request(const tests::Size& size, std::int64_t nodes, std::int64_t of_node) {
  PlanInput request = tests::adamw_request();
  request.architecture = tests::architecture_of(size);
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
