// SPDX-License-Identifier: Apache-2.0
#include "plan/fits.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/memory.hpp"
#include "core/text.hpp"
#include "plan/detail/sharing.hpp"
#include "plan/time/activations.hpp"

namespace finetune::plan {
namespace {

constexpr std::size_t most_remedies = 3;
/// Tokens of a sequence on a rank.
constexpr std::int64_t shortest_part = 256;

struct Candidate {
  std::string change;
  PlanInput request;
  std::optional<model::ParameterTable> table = {};  ///< if it changes
};

/// Changes from the cheapest on: first what costs nothing or little time, then what costs more,
/// then what trains something else or needs other ranks.
class Candidates {
 public:
  Candidates(const PlanInput& request, const model::ParameterTable& table, const Mesh& mesh,
             std::int64_t available_bytes)
      : request_(request), table_(table), mesh_(mesh), available_bytes_(available_bytes) {
    change_the_bucket();
    change_the_sharding();
    change_the_activations();
    offload_the_activations();
    save_in_turn();
    offload_the_optimizer();
    change_the_optimizer();
    nest_the_maxima();
    change_the_numbers();
    share_more();
    change_the_job();
    train_less();
  }

  const std::vector<Candidate>& all() const { return all_; }

 private:
  template <typename Change>
  void add(std::string text, const Change& change) {
    all_.push_back({std::move(text), request_, {}});
    change(all_.back().request);
  }

  void change_the_bucket() {
    if (request_.parallel.bucket == Bucket::whole)
      add("parallel.bucket = \"BLOCK\"", [](PlanInput& r) { r.parallel.bucket = Bucket::block; });
  }

  void change_the_sharding() {
    if (mesh_.sharding == Sharding::shard_grad_op && mesh_.size(groups::fsdp) > 1) {
      add("parallel.sharding = \"FULL_SHARD\"",
          [](PlanInput& r) { r.parallel.sharding = Sharding::full_shard; });
    }
    if (mesh_.size(groups::dp_replicate) == 1) return;
    const bool is_set = request_.parallel.dp_shard > 0 || request_.parallel.dp_replicate > 0;
    add(is_set ? "parallel.sharding = \"FULL_SHARD\" with dp_shard and dp_replicate 0"
               : "parallel.sharding = \"FULL_SHARD\"",
        [](PlanInput& r) {
          r.parallel.sharding = Sharding::full_shard;
          r.parallel.dp_shard = r.parallel.dp_replicate = 0;
        });
  }

  void change_the_activations() {
    using enum ActivationCheckpointing;
    const auto checkpoint = [&](const char* name, ActivationCheckpointing mode) {
      add(fmt::format("train.activation_checkpointing = \"{}\"", name),
          [&](PlanInput& r) { r.activation_checkpointing = mode; });
    };
    if (request_.activation_checkpointing == none) checkpoint("selective", selective);
    if (request_.micro_batch > 1) {
      const std::int64_t half = (request_.micro_batch + 1) / 2;
      add(fmt::format("train.micro_batch = {}", half), [&](PlanInput& r) { r.micro_batch = half; });
    }
    if (request_.activation_checkpointing != full) checkpoint("full", full);
    if (request_.parallel.overlap)
      add("parallel.overlap = false", [](PlanInput& r) { r.parallel.overlap = false; });
  }

  /// The fewest blocks that are enough, or all but one; their inputs where all are recomputed.
  void offload_the_activations() {
    using enum ActivationCheckpointing;
    if (!request_.on_gpu || request_.offloaded_blocks > 0) return;
    const std::int64_t blocks = request_.architecture.num_layers - request_.recomputed_blocks;
    const std::int64_t most = request_.activation_checkpointing == full ? blocks : blocks - 1;
    if (most <= 0) return;
    std::int64_t size = 1;
    for (; size < most; size *= 2) {
      PlanInput offloaded = request_;
      offloaded.offloaded_blocks = size;
      if (make(offloaded, table_).memory_bytes() <= available_bytes_) break;
    }
    size = std::min(size, most);
    // Beside "auto" it would contradict.
    add(fmt::format("train.offloaded_blocks = {}{}", size,
                    request_.chooses_activations
                        ? fmt::format(" with activation_checkpointing = \"{}\"",
                                      to_string(request_.activation_checkpointing))
                        : std::string()),
        [&](PlanInput& r) { r.offloaded_blocks = size; });
  }

  void save_in_turn() {
    const bool is_on_device = !request_.on_gpu;
    if (request_.saves_beside_training && !request_.has_partner_copies && is_on_device)
      add("checkpoint.async = false", [](PlanInput& r) { r.saves_beside_training = false; });
  }

  void offload_the_optimizer() {
    if (request_.on_gpu && !request_.offloads_optimizer)
      add("optimizer.offload = true", [](PlanInput& r) { r.offloads_optimizer = true; });
  }

  void change_the_optimizer() {
    if (!request_.lighter_optimizer) return;
    add(fmt::format("optimizer.name = \"{}\"", request_.lighter_optimizer->name), [](PlanInput& r) {
      r.optimizer = *r.lighter_optimizer;
      r.lighter_optimizer.reset();
    });
  }

  void nest_the_maxima() {
    model::ParameterTable table = table_;
    bool is_changed = false;
    for (model::Parameter& row : table.rows) {
      const bool can_nest = row.packing.kind == model::Packing::Kind::nf4 &&
                            !row.packing.in_files && !row.packing.nests;
      if (can_nest) row.packing.nests = is_changed = true;
    }
    if (is_changed) all_.push_back({"adapter.double_quant = true", request_, std::move(table)});
  }

  /// The last resort.
  void train_less() {
    for (const OtherTable& other : request_.other_tables)
      all_.push_back({other.change, request_, other.table()});
  }

  void change_the_numbers() {
    const Numbers& numbers = request_.numbers;
    if (numbers.is_fixed_point())
      add("train.determinism = \"run\"",
          [](PlanInput& r) { r.numbers.determinism = Determinism::run; });
    if (numbers.compute == core::DType::f32)
      add("precision.mode = \"bf16-mixed\"",
          [](PlanInput& r) { r.numbers.compute = core::DType::bf16; });
    if (numbers.master == core::DType::f32)
      add("precision.mode = \"bf16-true\"", [](PlanInput& r) {
        r.numbers.compute = r.numbers.master = r.numbers.moments = core::DType::bf16;
        r.numbers.scales_loss = false;
      });
  }

  /// Along each axis the fewest ranks that are enough, or the most that there may be.
  void share_more() {
    const std::int64_t num_experts = request_.architecture.experts.num;
    share_along("tp", &ParallelSettings::tp, request_.parallel.num_tp(),
                request_.ranks.ranks_per_node);
    share_along("cp", &ParallelSettings::cp, request_.parallel.num_cp(),
                std::min(request_.ranks.world_size, request_.max_seq_length / shortest_part));
    share_along("ep", &ParallelSettings::ep, request_.parallel.num_ep(), num_experts);
  }

  void share_along(const char* name, std::int64_t ParallelSettings::*key, std::int64_t now,
                   std::int64_t most) {
    std::optional<std::int64_t> last;
    for (std::int64_t size = 2 * now; size <= most; size *= 2) {
      PlanInput shared = request_;
      shared.parallel.*key = size;
      if (!has_mesh(shared, table_)) break;
      last = size;
      if (make(shared, table_).memory_bytes() <= available_bytes_) break;
    }
    if (last)
      add(fmt::format("parallel.{} = {}", name, *last),
          [&](PlanInput& r) { r.parallel.*key = *last; });
  }

  void change_the_job() {
    const std::int64_t half = request_.max_seq_length / 2;
    if (half >= 2)
      add(fmt::format("data.max_seq_length = {}", half),
          [&](PlanInput& r) { r.max_seq_length = half; });
    // More ranks on the same nodes would share the same memory.
    const Ranks& ranks = request_.ranks;
    add(fmt::format("{} ranks on {} nodes", 2 * ranks.world_size, 2 * ranks.num_nodes),
        [](PlanInput& r) {
          r.ranks.world_size *= 2;
          r.ranks.num_nodes *= 2;
        });
  }

  const PlanInput& request_;
  const model::ParameterTable& table_;
  const Mesh& mesh_;
  std::int64_t available_bytes_;
  std::vector<Candidate> all_;
};

std::string sentence(const std::vector<Remedy>& remedies, std::int64_t available) {
  if (remedies.empty()) return "Nothing that can be set would save memory: use a smaller model.";
  std::vector<std::string> parts;
  bool fits = false;
  for (const Remedy& remedy : remedies) {
    parts.push_back(
        fmt::format("{} saves {}", remedy.change, core::human_bytes(remedy.saved_bytes)));
    if (remedy.bytes > available) continue;
    parts.back() += " and fits";
    fits = true;
  }
  return fmt::format("{}: {}.",
                     fits ? "The cheapest remedies for this run"
                          : "No single change is enough; the cheapest for this run",
                     fmt::join(parts, "; "));
}

}  // namespace

std::vector<Remedy> remedies(const PlanInput& request, const model::ParameterTable& table,
                             std::int64_t available_bytes) {
  const Plan plan = make(request, table);
  const std::int64_t now = plan.memory_bytes();
  // Nothing that can be set makes a GPU's contexts and libraries smaller.
  const std::int64_t least = (request.on_gpu ? plan.tensor_bytes() : now) / 100;
  std::vector<Remedy> all;
  const Candidates candidates(request, table, plan.mesh, available_bytes);
  for (const Candidate& candidate : candidates.all()) {
    const model::ParameterTable& of = candidate.table ? *candidate.table : table;
    // Ranks that share this optimizer's states may not share those of another.
    if (!has_mesh(candidate.request, of)) continue;
    const std::int64_t bytes = make(candidate.request, of).memory_bytes();
    if (now - bytes >= least && bytes < now) all.push_back({candidate.change, bytes, now - bytes});
  }
  std::stable_partition(all.begin(), all.end(),
                        [&](const Remedy& remedy) { return remedy.bytes <= available_bytes; });
  // Where nothing is enough alone, what saves most is worth more than what is cheap.
  if (!all.empty() && all.front().bytes > available_bytes) {
    std::stable_sort(all.begin(), all.end(), [](const Remedy& a, const Remedy& b) {
      return a.saved_bytes > b.saved_bytes;
    });
  }
  if (all.size() > most_remedies) all.resize(most_remedies);
  std::stable_sort(all.begin(), all.end(),
                   [](const Remedy& a, const Remedy& b) { return a.saved_bytes > b.saved_bytes; });
  return all;
}

std::string remedy_sentence(const PlanInput& request, const model::ParameterTable& table,
                            std::int64_t available_bytes) {
  return sentence(remedies(request, table, available_bytes), available_bytes);
}

std::int64_t available_bytes(const PlanInput& request, std::int64_t there_bytes) {
  const double gib = request.parallel.memory_gib;
  return gib > 0 ? static_cast<std::int64_t>(gib * 0x1p30) : there_bytes;
}

std::int64_t share_of_node(std::int64_t ranks_on_node) {
  return core::available_memory_bytes() / ranks_on_node + core::resident_bytes();
}

void require_fits(const Plan& plan, const PlanInput& request, const model::ParameterTable& table,
                  std::int64_t available_bytes) {
  if (plan.memory_bytes() <= available_bytes) return;
  core::fail(core::ErrorKind::environment,
             {request.deck,
              fmt::format("needs {} of memory per rank", core::human_bytes(plan.memory_bytes())),
              fmt::format("{} are there", core::human_bytes(available_bytes)),
              remedy_sentence(request, table, available_bytes)});
}

void require_host_fits(const Plan& plan, const PlanInput& request, std::int64_t available_bytes) {
  if (plan.host_bytes() <= available_bytes) return;
  core::fail(core::ErrorKind::environment,
             {request.deck,
              fmt::format("needs {} of host memory per rank", core::human_bytes(plan.host_bytes())),
              fmt::format("{} of the node's are there for each of its ranks",
                          core::human_bytes(available_bytes)),
              "Ask for more memory per node, put fewer ranks on each, or use more nodes."});
}

}  // namespace finetune::plan
