#pragma once
// SPDX-License-Identifier: Apache-2.0
// How much, and where: pure arithmetic on settings, parameters and the number of ranks. The run
// uses the same plan that `finetune plan` prints.

#include <cstdint>
#include <string>
#include <vector>

#include "model/architecture.hpp"
#include "model/parameter_table.hpp"
#include "plan/mesh.hpp"
#include "plan/shard_map.hpp"

namespace finetune::plan {

struct BatchPlan {
  std::int64_t global_batch = 1;       ///< sequences an optimizer step, over all ranks
  std::int64_t micro_batch = 1;        ///< sequences a rank and pass
  std::int64_t max_seq_length = 1;     ///< tokens a sequence, at most
  std::int64_t num_micro_batches = 1;  ///< of a full global batch
  std::int64_t accumulation =
      1;  ///< micro-steps an optimizer step: ceil(micro-batches / data-parallel ranks)

  std::int64_t max_tokens_per_step() const { return global_batch * max_seq_length; }
};

/// Bytes of one rank, by what they hold.
struct MemoryItem {
  std::string name;
  std::int64_t bytes = 0;
};

enum class ActivationCheckpointing { none, selective, full };

struct Request {
  model::Architecture architecture;
  ParallelSettings parallel;
  Numbers numbers;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::none;
  bool offloads_optimizer = false;  ///< master weights and moments in host memory
  bool on_gpu = false;
  Ranks ranks;
  std::int64_t global_batch = 1;
  std::int64_t micro_batch = 1;
  std::int64_t max_seq_length = 1;
};

struct Plan {
  Mesh mesh;
  ShardMap shards;
  BatchPlan batch;
  std::vector<MemoryItem> memory;  ///< at the peak of a step
  std::int64_t num_parameters = 0;
  Numbers numbers;
  Ranks ranks;

  std::int64_t memory_bytes() const;
};

Plan make(const Request& request, const model::ParameterTable& table);

/// The table a person reads: parameters, batch, mesh, memory a rank by category.
std::string to_string(const Plan& plan);

}  // namespace finetune::plan
