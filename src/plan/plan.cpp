// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "model/part.hpp"
#include "plan/detail/sharing.hpp"
#include "plan/layout/bucket.hpp"
#include "plan/layout/settings.hpp"
#include "plan/memory/memory.hpp"

namespace finetune::plan {
namespace {

/// Passes of a rank in one step. Beyond it no step of any size has ever been of use, and the first
/// one would seem to hang.
constexpr std::int64_t most_passes = std::int64_t{1} << 14;
/// Sequences of a step that several ranks share, below which they mostly wait for each other.
constexpr std::int64_t small_batch = 32;
/// Of long sequences few are as much: 32 of 4,096 tokens.
constexpr std::int64_t small_batch_tokens = std::int64_t{1} << 17;
/// Of all passes; fewer idle ones cost nothing worth a warning.
constexpr double idle_share = 0.05;

/// The largest micro-batch up to the deck's that leaves no rank idle; 0 if there is none.
std::int64_t even_micro_batch(const BatchPlan& batch, std::int64_t data_ranks) {
  for (std::int64_t size = batch.micro_batch; size > 0; --size)
    if (batch.global_batch % (size * data_ranks) == 0) return size;
  return 0;
}

/// "4 ranks": those that samples are dealt to; or the groups whose ranks share each of theirs.
std::string data_ranks_text(const Mesh& mesh) {
  const std::int64_t num = mesh.size(groups::batch), sharing = mesh.size() / num;
  return sharing == 1 ? fmt::format("{} rank{}", num, num == 1 ? "" : "s")
                      : fmt::format("{} group{} of {} ranks", num, num == 1 ? "" : "s", sharing);
}

/// Ranks that wait in the last pass of every step.
void warn_of_idle(const BatchPlan& batch, const Mesh& mesh, std::vector<std::string>& warnings) {
  const std::int64_t data_ranks = mesh.size(groups::batch);
  const std::int64_t passes = batch.accumulation * data_ranks;
  const std::int64_t idle = passes - batch.num_micro_batches;
  if (static_cast<double>(idle) < idle_share * static_cast<double>(passes)) return;
  const std::int64_t whole = batch.micro_batch * data_ranks;
  const std::int64_t more = (batch.global_batch + whole - 1) / whole * whole;
  const std::int64_t size = even_micro_batch(batch, data_ranks);
  warnings.push_back(core::to_string(
      {fmt::format("train.global_batch = {}", batch.global_batch),
       fmt::format("{} of {} have nothing to compute in the last pass of every step", idle,
                   data_ranks_text(mesh)),
       fmt::format("{} micro-batches of {} do not divide by {}", batch.num_micro_batches,
                   batch.micro_batch, data_ranks_text(mesh)),
       fmt::format("Set train.global_batch = {}{}, or start fewer ranks.", more,
                   size > 0 && size < batch.micro_batch
                       ? fmt::format(" or train.micro_batch = {}", size)
                       : std::string())}));
}

/// Matrices whose sizes products of 8 bits do not take.
std::optional<std::string> warning_of_fp8(const Numbers& numbers,
                                          const model::ParameterTable& table) {
  if (!numbers.fp8) return {};
  const std::vector<std::string> names = model::without_fp8_product(table, *numbers.fp8);
  if (names.empty()) return {};
  return core::to_string(
      {"precision.mode = \"fp8-mixed\"",
       fmt::format("{} matri{} of a rank stay{} in bf16, such as {}", names.size(),
                   names.size() == 1 ? "x" : "ces", names.size() == 1 ? "s" : "", names.front()),
       fmt::format("with precision.fp8_scaling = \"{}\" both sizes are multiples of {}",
                   name_of(numbers.fp8->scaling), model::fp8_multiple(numbers.fp8->scaling)),
       numbers.fp8->scaling == model::Fp8Scaling::block
           ? "\"rowwise\" takes multiples of 16."
           : "Their products take as long as with \"bf16-mixed\"."});
}

std::vector<std::string> batch_warnings(const BatchPlan& batch, const Mesh& mesh) {
  std::vector<std::string> texts;
  if (mesh.size(groups::batch) == 1) return texts;
  warn_of_idle(batch, mesh, texts);
  if (batch.global_batch < small_batch && batch.max_tokens_per_step() < small_batch_tokens)
    texts.push_back(core::to_string(
        {fmt::format("train.global_batch = {}", batch.global_batch),
         fmt::format("is small for {}", data_ranks_text(mesh)),
         "they exchange gradients after a few sequences each, and noisy gradients train worse",
         fmt::format("Most runs take {} to 256 sequences per step.", small_batch)}));
  return texts;
}

template <typename Counts>
std::int64_t sum(const std::vector<MemoryItem>& items, const Counts& counts) {
  std::int64_t bytes = 0;
  for (const MemoryItem& item : items)
    bytes += counts(item) ? item.bytes : 0;
  return bytes;
}

/// A line a category with its total, and one for each of its items if it has several.
template <typename Line>
void add_memory(const std::vector<MemoryItem>& memory, Place place, const Line& line) {
  for (int i = 0; i <= static_cast<int>(Category::other); ++i) {
    const auto category = static_cast<Category>(i);
    std::vector<MemoryItem> items;
    for (const MemoryItem& item : memory)
      if (item.category == category && item.place == place) items.push_back(item);
    if (items.empty()) continue;
    const std::string total = core::human_bytes(sum(items, [](const MemoryItem&) { return true; }));
    const std::string name = "  " + to_string(category);
    line(name.c_str(), fmt::format("{:>10}{}", total,
                                   items.size() == 1 ? "             " + items.front().name : ""));
    if (items.size() == 1) continue;
    for (const MemoryItem& item : items)
      line("", fmt::format("{:>21}  {}", core::human_bytes(item.bytes), item.name));
  }
}

}  // namespace

BatchPlan plan_batch(const PlanInput& request, std::int64_t data_ranks) {
  BatchPlan batch;
  batch.global_batch = request.global_batch;
  batch.micro_batch = request.micro_batch;
  batch.max_seq_length = request.max_seq_length;
  batch.num_micro_batches = (request.global_batch + request.micro_batch - 1) / request.micro_batch;
  batch.accumulation = (batch.num_micro_batches + data_ranks - 1) / data_ranks;
  return batch;
}

std::string to_string(Category category) {
  switch (category) {
    case Category::weights:
      return "weights";
    case Category::gathered:
      return "gathered";
    case Category::gradients:
      return "gradients";
    case Category::states:
      return "states";
    case Category::activations:
      return "activations";
    case Category::communication:
      return "communication";
    default:
      return "other";
  }
}

std::int64_t Plan::memory_bytes() const {
  return sum(memory, [](const MemoryItem& item) { return item.place == Place::device; });
}

std::int64_t Plan::host_bytes() const {
  return sum(memory, [](const MemoryItem& item) { return item.place == Place::host; });
}

std::int64_t Plan::bytes_of(Category category) const {
  return sum(memory, [&](const MemoryItem& item) {
    return item.place == Place::device && item.category == category;
  });
}

std::int64_t Plan::tensor_bytes() const {
  return sum(memory,
             [](const MemoryItem& item) { return item.place == Place::device && item.is_tensor; });
}

model::ParameterTable settled(const Plan& plan, model::ParameterTable own) {
  const model::ParameterTable grouped = regroup(own, plan.bucket, plan.mesh.ep);
  for (std::size_t i = 0; i < own.rows.size(); ++i)
    own.rows[i].published = grouped.rows[i].published;
  return own;
}

ShardMap shards_of(const Plan& plan, const model::ParameterTable& own) {
  return ShardMap(regroup(own, plan.bucket, plan.mesh.ep), plan.shards.num_shards(),
                  plan.shards.rules());
}

namespace {

/// Where numbers do not divide, the last ranks have more than the first.
model::PartPlace largest_part(const Mesh& mesh) {
  const std::int64_t tp = mesh.axes[Axis::tp];
  return {.tp = tp, .i_tp = tp - 1, .ep = mesh.ep, .i_ep = mesh.ep - 1};
}

/// What train.determinism = "topology" does not promise.
std::optional<std::string> warning_of_topology(const PlanInput& request, const Mesh& mesh) {
  const std::int64_t shared = mesh.axes[Axis::tp] * mesh.axes[Axis::cp] * mesh.ep;
  if (!request.numbers.is_fixed_point() || shared == 1) return std::nullopt;
  return core::to_string(
      {"train.determinism = \"topology\"", "does not hold for any number of ranks here",
       "ranks that share matrices, sequences or experts do not round as one rank does",
       "Results are identical on the same mesh; for any number of ranks set parallel.tp, cp and "
       "ep to 1."});
}

/// Of activations, which need another memory than the one that is computed in.
void require_offloadable(const PlanInput& request) {
  if (request.offloaded_blocks == 0 || request.on_gpu) return;
  core::fail(core::ErrorKind::deck,
             {request.deck,
              fmt::format("train.offloaded_blocks = {} needs ranks that compute on GPUs",
                          request.offloaded_blocks),
              "what ranks on CPUs keep is in the host's memory already",
              "Remove it, and set train.activation_checkpointing = \"full\" to need less memory."});
}

void require_whole_matrices(const PlanInput& request, const Mesh& mesh) {
  if (!request.optimizer.needs_matrices && !request.optimizer.has_factors()) return;
  for (const auto& [name, size] : {std::pair("tp", mesh.axes[Axis::tp]), std::pair("ep", mesh.ep)})
    if (size > 1)
      core::fail(core::ErrorKind::deck,
                 {request.deck,
                  fmt::format("optimizer.name = \"{}\" and parallel.{} = {}",
                              request.optimizer.name, name, size),
                  "it needs matrices whole, and ranks would share them",
                  fmt::format("Set parallel.{} = 1, or another optimizer.", name)});
}

}  // namespace

model::ParameterTable largest_table(const Mesh& mesh, const model::ParameterTable& table,
                                    Bucket bucket) {
  return regroup(model::part_of(table, largest_part(mesh)), bucket, mesh.ep);
}

Plan make(const PlanInput& request, const model::ParameterTable& table) {
  require_offloadable(request);
  const Mesh mesh = mesh_of(request, table);
  require_whole_matrices(request, mesh);
  const model::ParameterTable grouped = largest_table(mesh, table, request.parallel.bucket);
  Plan plan{.mesh = mesh,
            .shards = ShardMap(grouped, mesh.size(groups::fsdp),
                               {request.numbers.compute, request.optimizer.block(), mesh.ep}),
            .batch = plan_batch(request, mesh.size(groups::batch)),
            .memory = {},
            .uneven_router_bytes = 0,
            .num_parameters = table.num_parameters(),
            .num_trainable = table.num_trainable(),
            .factor_bytes = 0,
            .numbers = request.numbers,
            .ranks = request.ranks,
            .bucket = request.parallel.bucket,
            .warnings = warnings(mesh, request.ranks)};
  for (const UnitLayout& unit : plan.shards.units())
    if (unit.trainable)
      plan.factor_bytes += request.optimizer.factor_bytes(grouped, unit, request.numbers);
  for (std::string& text : batch_warnings(plan.batch, mesh))
    plan.warnings.push_back(std::move(text));
  if (auto text = warning_of_topology(request, mesh)) plan.warnings.push_back(*std::move(text));
  if (auto text = warning_of_fp8(request.numbers, grouped))
    plan.warnings.push_back(*std::move(text));
  plan.memory = plan_memory(request, mesh, grouped, plan.shards);
  if (mesh.ep > 1) {
    PlanInput twice = request;
    twice.architecture.experts.top_k *= 2;
    const auto all = [](const MemoryItem& item) { return item.place == Place::device; };
    plan.uneven_router_bytes =
        sum(plan_memory(twice, mesh, grouped, plan.shards), all) - plan.memory_bytes();
  }
  return plan;
}

void require_sane_batch(const Plan& plan, const std::string& deck) {
  const BatchPlan& batch = plan.batch;
  if (batch.accumulation <= most_passes) return;
  const std::int64_t data_ranks = plan.mesh.size(groups::batch);
  core::fail(
      core::ErrorKind::deck,
      {deck,
       fmt::format("train.global_batch = {} is {} passes of {} sequence{} per rank and step",
                   core::with_commas(batch.global_batch), core::with_commas(batch.accumulation),
                   batch.micro_batch, batch.micro_batch == 1 ? "" : "s"),
       fmt::format("{} is the most, or the first step would seem to hang",
                   core::with_commas(most_passes)),
       fmt::format("Use {} or less on {}.",
                   core::with_commas(most_passes * data_ranks * batch.micro_batch),
                   data_ranks_text(plan.mesh))});
}

void require_one_pass(const Plan& plan, const PlanInput& request) {
  const BatchPlan& batch = plan.batch;
  if (!request.updates_in_backward || batch.accumulation <= 1) return;
  const std::int64_t data_ranks = plan.mesh.size(groups::batch);
  core::fail(
      core::ErrorKind::deck,
      {request.deck,
       fmt::format("optimizer.in_backward = true and {} passes of {} sequence{} per rank and "
                   "step",
                   core::with_commas(batch.accumulation), batch.micro_batch,
                   batch.micro_batch == 1 ? "" : "s"),
       "the gradient of one pass is not that of the step",
       fmt::format("Set train.global_batch = {} or less on {}, raise train.micro_batch, or "
                   "set in_backward = false.",
                   core::with_commas(data_ranks * batch.micro_batch), data_ranks_text(plan.mesh))});
}

std::string to_string(const std::vector<MemoryItem>& items) {
  std::string text;
  add_memory(items, Place::device, [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<24} {}\n", name, value);
  });
  text.pop_back();
  return text;
}

std::string to_string(const Plan& plan) {
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<24} {}\n", name, value);
  };
  const std::int64_t num_nodes = plan.ranks.num_nodes;
  line("parameters", core::with_commas(plan.num_parameters));
  if (plan.num_trainable != plan.num_parameters)
    line("", fmt::format("{} of them trained ({:.2f} %)", core::with_commas(plan.num_trainable),
                         100.0 * static_cast<double>(plan.num_trainable) /
                             static_cast<double>(plan.num_parameters)));
  line("ranks",
       fmt::format("{} on {} node{}", plan.ranks.world_size, num_nodes, num_nodes == 1 ? "" : "s"));
  line("sharding",
       fmt::format("{}: {} of the model{} over {} rank{}", to_string(plan.mesh.sharding),
                   plan.mesh.size(groups::dp_replicate) == 1
                       ? "1 copy"
                       : fmt::format("{} copies", plan.mesh.size(groups::dp_replicate)),
                   plan.mesh.size(groups::dp_replicate) == 1 ? "" : ", each",
                   plan.mesh.size(groups::one_copy),
                   plan.mesh.size(groups::one_copy) == 1 ? "" : "s"));
  line("step",
       fmt::format("{} sequences = {} micro-batch{} of {}, {} pass{} per rank, at most {} tokens",
                   plan.batch.global_batch, plan.batch.num_micro_batches,
                   plan.batch.num_micro_batches == 1 ? "" : "es", plan.batch.micro_batch,
                   plan.batch.accumulation, plan.batch.accumulation == 1 ? "" : "es",
                   core::with_commas(plan.batch.max_tokens_per_step())));
  const std::int64_t idle =
      plan.batch.accumulation * plan.mesh.size(groups::batch) - plan.batch.num_micro_batches;
  if (idle > 0) {
    line("", fmt::format("{} of {} passes idle: micro-batches do not divide by {}", idle,
                         plan.batch.accumulation * plan.mesh.size(groups::batch),
                         plan.mesh.size(groups::batch) == plan.mesh.size()
                             ? "the ranks"
                             : "the " + data_ranks_text(plan.mesh)));
  }
  line("memory per rank", core::human_bytes(plan.memory_bytes()) + " at the peak of a step");
  add_memory(plan.memory, Place::device, line);
  if (plan.uneven_router_bytes > 0)
    line("uneven routers",
         fmt::format("not counted: a rank whose experts are chosen twice as often "
                     "as on average needs {} more",
                     core::human_bytes(plan.uneven_router_bytes)));
  if (plan.host_bytes() > 0) {
    line("host memory per rank", core::human_bytes(plan.host_bytes()));
    add_memory(plan.memory, Place::host, line);
  }
  text.pop_back();
  return text;
}

}  // namespace finetune::plan
