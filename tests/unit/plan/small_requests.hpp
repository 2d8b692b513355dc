#pragma once
// SPDX-License-Identifier: Apache-2.0
// Runs of a small model on a machine of round numbers.

#include <cstdint>
#include <string>

#include "plan/time/detail/work.hpp"
#include "support/optimizers.hpp"
#include "unit/plan/decoder.hpp"
#include "unit/plan/small_model.hpp"

namespace finetune::plan {

/// Two blocks; widths that differ, so that none can be taken for another.
inline constexpr tests::Size two_blocks = {2, 64, 4, 2, 16, 96, 1000};

inline PlanInput small_request(std::int64_t ranks, const std::string& sharding = "FULL_SHARD") {
  PlanInput request = tests::adamw_request();
  request.architecture = tests::decoder(two_blocks);
  request.parallel.sharding = sharding_named(sharding);
  request.on_gpu = true;
  request.ranks = tests::ranks_on_nodes(ranks, 2);
  request.micro_batch = 2;
  request.max_seq_length = 32;
  request.global_batch = 2 * ranks;
  return request;
}

inline MicroBatchWork work(const PlanInput& r, const tests::Training& training = {}) {
  const tests::DecoderTable table(r.architecture, training);
  return plan_work(r, table.table(), Rates(tests::round_machine(), r.numbers.compute),
                   Passes::fused);
}

}  // namespace finetune::plan
