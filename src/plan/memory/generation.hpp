#pragma once
// SPDX-License-Identifier: Apache-2.0
// Bytes of one rank that writes texts with a model, by category.

#include <cstdint>
#include <vector>

#include "core/dtype.hpp"
#include "model/architecture.hpp"
#include "model/parameter_table.hpp"
#include "plan/plan.hpp"

namespace finetune::plan {

struct GenerationInput {
  model::Architecture architecture = {};
  core::DType compute = core::DType::bf16;
  std::int64_t world_size = 1;
  std::int64_t tp = 1;  ///< ranks that share every matrix; the others have a shard each
  bool on_gpu = false;  ///< of a rank that is alone
  bool has_gpu_kernels = false;
  bool widens = false;               ///< the CPU computes products of `compute` in fp32
  std::int64_t threads = 1;          ///< of a rank that computes on the CPU
  std::int64_t batch = 16;           ///< texts that a rank writes at once
  std::int64_t prompt_tokens = 0;    ///< of each
  std::int64_t new_tokens = 0;       ///< of each, at most
  std::int64_t tokens_together = 0;  ///< of prompts that begin at once, unless it is only one
};

/// Rows that the cache of a text has after so many tokens: it grows to twice its size.
std::int64_t cached_rows(std::int64_t prompt_tokens, std::int64_t new_tokens);

/// At the peak, when the last prompts begin: every other text is as long as it will be. Of the rank
/// with the largest parts. `table` is the family's, with packings as its files have them.
std::vector<MemoryItem> plan_generation(const GenerationInput& input,
                                        const model::ParameterTable& table);

}  // namespace finetune::plan
