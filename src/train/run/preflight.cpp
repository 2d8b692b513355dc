// SPDX-License-Identifier: Apache-2.0
#include "train/run/preflight.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <system_error>

#include "comm/agree.hpp"
#include "core/log.hpp"
#include "data/text/listing.hpp"
#include "model/products.hpp"
#include "plan/fits.hpp"
#include "plan/time/saving.hpp"
#include "shard/options.hpp"
#include "world/world.hpp"

namespace finetune::train {
namespace {

namespace fs = std::filesystem;

/// What the deck names of model and data, as this rank finds it.
std::vector<fs::path> files_of(const Input& input) {
  std::vector<fs::path> files = {input.model_folder};
  if (!input.adapter_folder.empty()) files.push_back(input.adapter_folder);
  for (const auto* paths : {&input.data.paths, &input.data.validation_paths})
    for (const std::string& path : *paths)
      files.push_back(resolve(
          data::is_pattern(path) ? data::folder_of_pattern(path).string() : path, input.deck_path));
  return files;
}

/// Checkpoints that the output folder holds already.
std::int64_t checkpoints_in(const fs::path& output) {
  std::int64_t count = 0;
  std::error_code error;
  for (fs::directory_iterator i(output, error), end; !error && i != end; i.increment(error))
    if (i->path().filename().string().starts_with("step-")) ++count;
  return count;
}

/// What a rank needs, and what to do where there is less than that.
preflight::MemoryNeed memory_need(const plan::Plan& plan, const plan::PlanInput& request,
                                  const model::ParameterTable& table, std::int64_t there) {
  preflight::MemoryNeed need{plan.memory_bytes(), plan.host_bytes(), request.on_gpu, ""};
  // Planning the remedies costs as much as planning: only for whom it matters.
  if (there < need.bytes) need.remedy = plan::remedy_sentence(request, table, there);
  return need;
}

preflight::CheckDepth level_of(const Input& input) {
  return input.train.preflight == PreflightLevel::full ? preflight::CheckDepth::full
                                                       : preflight::CheckDepth::quick;
}

}  // namespace

Preflight describe_check(const comm::Environment& environment, const Input& input,
                         const comm::Device& device, const PlannedRun& planned,
                         preflight::CheckDepth level) {
  const auto& [asked, plan, node_bytes, available_bytes] = planned;
  Preflight made;
  preflight::CheckInput& request = made.request;
  request.level = level;
  request.deck = input.deck_path.string();
  request.files = files_of(input);
  request.output = input.train.output;
  request.expected = expected_launch(input);
  request.least_gbit_per_s = input.parallel.min_link_gbit_per_s;
  request.host_memory_bytes = node_bytes;
  request.memory_bytes = available_bytes;
  const std::int64_t least =
      environment.world().all_reduce(request.memory_bytes, comm::Reduce::min);
  request.memory = memory_need(plan, asked, input.parameters, least);
  request.disk = {.checkpoint_bytes = plan::checkpoint_bytes(asked, plan),
                  .num_kept = input.checkpoint.save_total_limit,
                  .num_there = checkpoints_in(input.train.output)};
  request.threads = at::get_num_threads();
  request.device = device;
  request.bf16_path = asked.numbers.compute == core::DType::f32
                          ? model::path_for(core::DType::bf16)
                          : model::path_of(asked.numbers.widens);
  request.nccl = {input.nccl.variables, input.nccl.override_environment};
  if (level == preflight::CheckDepth::quick) return made;
  const auto world = world::make(environment, plan, device);
  made.groups = shard::make_groups(world, input.parallel.overlap, input.parallel.alone);
  for (const auto& [name, group] : made.groups.all())
    request.groups.push_back({name, group});
  return made;
}

void measure_levels(const comm::Environment& environment, const Input& input,
                    const comm::Device& device, Preflight& made) {
  const plan::Ranks ranks = world::count_ranks(environment.topology());
  if (ranks.num_nodes == 1 || ranks.ranks_per_node == 1 || !ranks.is_even) return;
  plan::PlanInput asked = input.plan_input(ranks);
  asked.parallel.sharding = plan::Sharding::hybrid_shard;
  asked.parallel.dp_shard = asked.parallel.dp_replicate = 0;
  const auto plan =
      comm::agree(environment.world(), [&] { return plan::make(asked, input.parameters); });
  made.levels = shard::make_groups(world::make(environment, plan, device), input.parallel.overlap);
  auto& groups = made.request.groups;
  groups.push_back({preflight::levels::node, made.levels.fsdp.get()});
  groups.push_back({preflight::levels::nodes, made.levels.dp_replicate.get()});
}

preflight::FirstLook begin_check(const comm::Environment& environment, const Input& input) {
  if (input.train.preflight == PreflightLevel::off) return {};
  return preflight::begin(environment, level_of(input));
}

int check_before_run(const comm::Environment& environment, const preflight::FirstLook& beginning,
                     const Input& input, const comm::Device& device, const PlannedRun& planned) {
  if (input.train.preflight == PreflightLevel::off) return core::exit_done;
  const auto level = level_of(input);
  const Preflight made = describe_check(environment, input, device, planned, level);
  const auto outcome = preflight::check(environment, beginning, made.request);
  if (level == preflight::CheckDepth::full) {
    preflight::print(outcome.report, fmt::format("check of {}", input.deck_path.string()));
    return outcome.exit_code;
  }
  for (const std::string& line : outcome.report.lines(preflight::Grade::warning))
    log::warn(line);
  if (log::is_root())
    for (const std::string& line : outcome.report.lines(preflight::Grade::bad))
      log::error(line);
  return outcome.exit_code;
}

}  // namespace finetune::train
