#pragma once
// SPDX-License-Identifier: Apache-2.0
// How much, and where: pure arithmetic on settings, parameters and the number of ranks. The run
// uses the same plan that `finetune plan` prints.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/architecture.hpp"
#include "model/parameter_table.hpp"
#include "plan/layout/mesh.hpp"
#include "plan/layout/shard_map.hpp"
#include "plan/optimizer.hpp"

namespace finetune::plan {

struct BatchPlan {
  std::int64_t global_batch = 1;       ///< sequences an optimizer step, over all ranks
  std::int64_t micro_batch = 1;        ///< sequences per rank and pass
  std::int64_t max_seq_length = 1;     ///< tokens per sequence, at most
  std::int64_t num_micro_batches = 1;  ///< of a full global batch
  std::int64_t accumulation =
      1;  ///< micro-steps an optimizer step: ceil(micro-batches / data-parallel ranks)

  std::int64_t max_tokens_per_step() const { return global_batch * max_seq_length; }
};

/// What memory is for, in the order in which a plan lists it.
enum class Category { weights, gathered, gradients, states, activations, communication, other };
std::string to_string(Category category);

enum class Place { device, host };

/// Bytes of one rank, by what they hold. On a CPU rank everything is on the "device".
struct MemoryItem {
  Category category = Category::other;
  std::string name;
  std::int64_t bytes = 0;
  Place place = Place::device;
  bool is_tensor = true;  ///< libtorch's allocator hands it out
};

enum class ActivationCheckpointing { none, selective, full };

/// A change of the deck that makes another table of the same model.
struct OtherTable {
  std::string change;  ///< "adapter.name = \"lora\""
  std::function<model::ParameterTable()> table;
};

struct PlanInput {
  std::string deck = "parallel";  ///< its path, for messages
  model::Architecture architecture;
  ParallelSettings parallel;
  Numbers numbers;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::none;
  /// Whole, the first so many blocks; in addition to what activation_checkpointing says of the
  /// others. With `full` all are.
  std::int64_t recomputed_blocks = 0;
  /// On a GPU: so many blocks keep their activations in host memory (schedule::Blocks).
  std::int64_t offloaded_blocks = 0;
  /// Whether `compare` and `choose` may set these; what only plans takes them as they are.
  bool chooses_activations = false;
  OptimizerFootprint optimizer;
  /// One that learns almost the same in less memory, where there is one.
  std::optional<OptimizerFootprint> lighter_optimizer;
  double adapter_dropout = 0;
  bool offloads_optimizer = false;   ///< on a GPU: master weights and moments in host memory
  bool updates_in_backward = false;  ///< schedule::Rules
  bool on_gpu = false;
  /// On a GPU: kernels compute there, not compositions of libtorch's operations.
  bool has_gpu_kernels = false;
  std::int64_t threads = 1;            ///< of a rank that computes on the CPU
  bool saves_beside_training = false;  ///< a copy of the state is written meanwhile
  bool has_partner_copies = false;     ///< and nodes hold each other's, if there are several
  Ranks ranks;
  std::int64_t global_batch = 1;
  std::int64_t micro_batch = 1;
  /// Whether `compare` and `choose` may set it; what only plans takes it as it is.
  bool chooses_micro_batch = false;
  std::int64_t max_seq_length = 1;
  /// Of packed samples, as long as the one that a token is in on average; 0: one fills a sequence.
  std::int64_t sample_tokens = 0;
  /// Of one pass of [evaluate], unless a text has more; 0: the deck has no tasks.
  std::int64_t evaluate_tokens = 0;
  // Of the host's memory:
  std::int64_t tokenizer_bytes = 0;
  std::int64_t packing_bytes = 0;        ///< which samples share a sequence
  std::vector<OtherTable> other_tables;  ///< from what trains most to what trains least
};

struct Plan {
  Mesh mesh;
  ShardMap shards;  ///< of the ranks with the largest parts
  BatchPlan batch;
  std::vector<MemoryItem> memory;  ///< at the peak of a step, with routers that choose evenly
  /// Where ranks share experts: what one whose experts are chosen twice as often as on average
  /// needs in addition; three times as often, twice that.
  std::int64_t uneven_router_bytes = 0;
  std::int64_t num_parameters = 0;
  std::int64_t num_trainable = 0;
  std::int64_t factor_bytes = 0;  ///< of the optimizer (OptimizerState::Of), all of them
  Numbers numbers;
  Ranks ranks;
  Bucket bucket = Bucket::block;

  std::vector<std::string> warnings;  ///< what the user may not have meant

  /// On the device that computes, at the peak of a step; and in addition in the host's memory.
  std::int64_t memory_bytes() const;
  std::int64_t host_bytes() const;
  std::int64_t bytes_of(Category category) const;  ///< on the device
  std::int64_t tensor_bytes() const;               ///< on the device, of libtorch's allocator
};

/// How a global batch is cut, on so many data-parallel ranks.
BatchPlan plan_batch(const PlanInput& request, std::int64_t data_ranks);

/// `table` is the family's; its units are grouped by `request.parallel.bucket`.
/// Throws: ErrorKind::deck if the ranks do not form the mesh, or cannot share what they are to.
Plan make(const PlanInput& request, const model::ParameterTable& table);

/// What the ranks with the largest parts hold of the family's table, in the units of `bucket`.
model::ParameterTable largest_table(const Mesh& mesh, const model::ParameterTable& table,
                                    Bucket bucket);

/// A rank's own table, of which what travels in 8 bits is settled for the units of the plan.
model::ParameterTable settled(const Plan& plan, model::ParameterTable own);

/// The shards of one rank's own table (model::part_of) in the mesh of `plan`.
ShardMap shards_of(const Plan& plan, const model::ParameterTable& own);

/// Refuses a step of more passes per rank than anybody would wait for. `deck` is its path.
/// Throws: ErrorKind::deck naming the largest batch for these ranks.
void require_sane_batch(const Plan& plan, const std::string& deck);

/// Refuses several passes per step where units are updated in backward, for the plan that is run.
/// Throws: ErrorKind::deck, with global batches that are one pass.
void require_one_pass(const Plan& plan, const PlanInput& request);

/// What the items of a device hold, by category.
std::string to_string(const std::vector<MemoryItem>& items);

/// The table a person reads: parameters, batch, mesh, memory a rank by category.
std::string to_string(const Plan& plan);

}  // namespace finetune::plan
