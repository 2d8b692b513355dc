// SPDX-License-Identifier: Apache-2.0
#include "train/input/choices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "checkpoint/load/branch.hpp"
#include "checkpoint/run_folder.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/installation.hpp"
#include "core/log.hpp"
#include "kernels/gpu_kernels.hpp"
#include "plan/choice.hpp"
#include "plan/fits.hpp"
#include "plan/machine/machine_file.hpp"
#include "plan/memory/memory.hpp"
#include "world/world.hpp"

namespace finetune::train {
namespace {

core::Json ranks_json(const plan::Ranks& ranks) {
  return {ranks.world_size, ranks.ranks_per_node, ranks.num_nodes};
}

/// What parallel.machine names.
plan::Machine read_named(const std::string& name) {
  return plan::read_machine(name, plan::is_machine_file(name) ? std::filesystem::path()
                                                              : core::shipped("inputs/machines"));
}

/// Rates that strategies are compared with: the deck's machine, and usual ones for what it lacks.
plan::Machine machine_of(const Input& input, bool on_gpu, std::int64_t cores) {
  const std::string& name = input.parallel.machine;
  if (name.empty()) return plan::usual_machine(on_gpu, cores);
  const plan::Machine machine = read_named(name);
  if ((machine.gpus_per_node > 0) == on_gpu) return plan::with_usual_rates(machine, on_gpu, cores);
  log::warn(
      fmt::format("parallel.machine = \"{}\" computes on {}, these ranks on {}: AUTO compares "
                  "with usual rates instead",
                  name, on_gpu ? "CPUs" : "GPUs", on_gpu ? "GPUs" : "CPUs"));
  return plan::usual_machine(on_gpu, cores);
}

constexpr const char* sharding_key = "sharding";
constexpr const char* micro_batch_key = "micro_batch";
struct AxisKey {
  const char* name;
  std::int64_t plan::ParallelSettings::*num;
  bool plan::OpenAxes::*is_open;
};
constexpr std::array axis_keys = {AxisKey{"tp", &plan::ParallelSettings::tp, &plan::OpenAxes::tp},
                                  AxisKey{"cp", &plan::ParallelSettings::cp, &plan::OpenAxes::cp},
                                  AxisKey{"ep", &plan::ParallelSettings::ep, &plan::OpenAxes::ep}};

/// Whether the plan chose `key` then. Notes of older programs do not say it: they chose the
/// sharding alone.
bool was_chosen(const core::Json& choice, const std::string& key) {
  const core::Json keys = choice.value("chosen", core::Json::array({sharding_key}));
  return std::ranges::find(keys, core::Json(key)) != keys.end();
}

/// What ranks share, where `parallel` leaves it open. Notes of older programs do not have it.
void take_shared(const core::Json& choice, plan::ParallelSettings& parallel) {
  for (const AxisKey& key : axis_keys)
    if (parallel.*key.num == 0) parallel.*key.num = choice.value(key.name, std::int64_t{1});
}

/// Whether the deck leaves open only what the plan chose then. What is not shared is nobody's
/// choice.
bool leaves_open_what_was_chosen(const core::Json& choice, const plan::PlanInput& request) {
  if (plan::is_sharding_open(request) && !was_chosen(choice, sharding_key)) return false;
  return std::ranges::all_of(axis_keys, [&](const AxisKey& key) {
    return request.parallel.*key.num > 0 || choice.value(key.name, std::int64_t{1}) == 1 ||
           was_chosen(choice, key.name);
  });
}

/// What describes a mesh in a note.
core::Json mesh_json(const plan::Mesh& mesh) {
  const bool is_split = mesh.sharding == plan::Sharding::hybrid_shard;
  return {{"sharding", to_string(mesh.sharding)},
          {"dp_shard", is_split ? mesh.axes[plan::Axis::dp_shard] : 0},
          {"tp", mesh.axes[plan::Axis::tp]},
          {"cp", mesh.axes[plan::Axis::cp]},
          {"ep", mesh.ep}};
}

bool is_noted(const plan::Mesh& mesh, const core::Json& choice) {
  const core::Json now = mesh_json(mesh);
  for (const auto& [key, value] : now.items())
    if (choice.value(key, core::Json(1)) != value) return false;
  return true;
}

/// The request with the mesh of an earlier start, if that was on these ranks.
std::optional<plan::PlanInput> earlier(const Input& input, const plan::PlanInput& request) {
  const bool is_open =
      plan::is_sharding_open(request) || plan::sharing_axes(request, input.parameters).any();
  if (!is_open) return {};
  try {
    if (checkpoint::begins_anew(input.train.output, input.checkpoint.resume)) return {};
    const core::Json choice = checkpoint::noted_choice(input.train.output);
    if (choice.is_null() || choice.at("ranks") != ranks_json(request.ranks)) return {};
    if (!leaves_open_what_was_chosen(choice, request)) return {};
    plan::PlanInput same = request;
    if (plan::is_sharding_open(request)) {
      same.parallel.sharding = plan::sharding_named(choice.at(sharding_key).get<std::string>());
      same.parallel.dp_shard = choice.at("dp_shard").get<std::int64_t>();
    }
    take_shared(choice, same.parallel);
    if (!is_noted(plan::make_mesh(same.parallel, same.ranks), choice)) return {};
    return same;
  } catch (const std::exception&) {
    return {};  // a note that means nothing here
  }
}

/// The micro-batch that an earlier start of the run chose, on whatever ranks; of one that left
/// nothing to continue, maybe for want of memory, nothing.
std::optional<std::int64_t> earlier_micro_batch(const Input& input) {
  if (input.train.micro_batch > 0) return {};
  try {
    if (checkpoint::begins_anew(input.train.output, input.checkpoint.resume)) return {};
    const core::Json choice = checkpoint::noted_choice(input.train.output);
    if (choice.is_null() || !was_chosen(choice, micro_batch_key)) return {};
    // Checkpoints on disks of nodes are not this rank's to see.
    if (!input.checkpoint.has_local_level() && !checkpoint::has_checkpoints(input.train.output))
      return {};
    const auto noted = choice.at(micro_batch_key).get<std::int64_t>();
    if (noted < 1 || noted > input.train.global_batch) return {};
    return noted;
  } catch (const std::exception&) {
    return {};
  }
}

/// What the root decides.
class Decision {
 public:
  Decision(const Input& input, const plan::PlanInput& asked, const plan::Site& site)
      : input_(input), asked_(asked), site_(site) {
    const auto noted = earlier_micro_batch(input);
    if (!noted) return;
    asked_.micro_batch = *noted;
    asked_.chooses_micro_batch = false;
    kept_ = fmt::format("  {:<26} {}, as at the start before\n", "train.micro_batch", *noted);
  }

  plan::PlanInput make() const {
    if (const auto same = earlier(input_, asked_)) {
      const plan::Choice choice = plan::choose(*same, input_.parameters, site_);
      const plan::Strategy& strategy = choice.strategies.front();
      if (strategy.fits) {
        tell(fmt::format("  {:<26} {}, as at the start before on these ranks",
                         plan::is_sharding_open(asked_) ? "parallel.sharding" : "parallel",
                         strategy.name()),
             plan::to_string(choice, *same, site_));
        return choice.request;
      }
      log::warn(
          fmt::format("{} of the start before no longer fits: AUTO chooses anew, and results "
                      "will not be bitwise those of an uninterrupted run",
                      strategy.name()));
    }
    const plan::Choice choice = plan::choose(asked_, input_.parameters, site_);
    tell(plan::to_string(choice, asked_, site_), "");
    return choice.request;
  }

 private:
  void tell(const std::string& first, const std::string& second) const {
    std::string text = kept_ + first + (first.empty() || second.empty() ? "" : "\n") + second;
    if (text.ends_with('\n')) text.pop_back();
    if (text.empty()) return;
    log::info(fmt::format("left to the plan by {} ({}):\n{}", input_.deck_path.string(),
                          site_.machine.name, text));
  }

  const Input& input_;
  plan::PlanInput asked_;
  const plan::Site& site_;
  std::string kept_;  ///< a line on what an earlier start decided
};

core::Json to_json(const plan::PlanInput& request) {
  const auto& sharding = request.parallel.sharding;
  return {{"sharding", sharding ? core::Json(to_string(*sharding)) : core::Json()},
          {"dp_shard", request.parallel.dp_shard},
          {"tp", request.parallel.num_tp()},
          {"cp", request.parallel.num_cp()},
          {"ep", request.parallel.num_ep()},
          {"prefetch", request.parallel.num_prefetched()},
          {micro_batch_key, request.micro_batch},
          {"activations", static_cast<int>(request.activation_checkpointing)},
          {"recomputed_blocks", request.recomputed_blocks},
          {"offloaded_blocks", request.offloaded_blocks}};
}

/// It is fixed for the run from now on.
void take_micro_batch(std::int64_t micro_batch, Input& input) {
  input.train.micro_batch = micro_batch;
  input.chosen.micro_batch = true;
  for (auto& [key, value] : input.fixed_values)
    if (key == "train.micro_batch") value = std::to_string(micro_batch);
}

void take(const core::Json& decision, const plan::PlanInput& asked, Input& input) {
  if (decision.is_null()) return;
  if (plan::is_sharding_open(asked)) {
    const core::Json& sharding = decision.at("sharding");
    if (!sharding.is_null())
      input.parallel.sharding = plan::sharding_named(sharding.get<std::string>());
    input.parallel.dp_shard = decision.at("dp_shard").get<std::int64_t>();
  }
  take_shared(decision, input.parallel);
  // What nobody shares, later starts leave alone by themselves.
  input.chosen.sharding = plan::is_sharding_open(asked);
  for (const AxisKey& key : axis_keys)
    input.chosen.axes.*key.is_open = asked.parallel.*key.num == 0 && input.parallel.*key.num > 1;
  if (plan::is_prefetch_open(asked))
    input.parallel.prefetch = decision.at("prefetch").get<std::int64_t>();
  if (asked.chooses_micro_batch) take_micro_batch(decision.at(micro_batch_key), input);
  if (asked.chooses_activations) {
    input.train.activation_checkpointing =
        static_cast<plan::ActivationCheckpointing>(decision.at("activations").get<int>());
    input.train.recomputed_blocks = decision.at("recomputed_blocks").get<std::int64_t>();
    input.train.offloaded_blocks = decision.at("offloaded_blocks").get<std::int64_t>();
  }
}

/// Whether the ranks form a mesh; if not, what plans the run next says it better.
bool can_plan(const plan::PlanInput& request, const model::ParameterTable& table) {
  std::optional<plan::Plan> plan;
  try {
    plan = plan::make(request, table);
  } catch (const core::Error&) {
    return false;
  }
  plan::require_sane_batch(*plan, request.deck);
  return true;
}

}  // namespace

core::Json describe_choice(const plan::Plan& plan, const ChosenKeys& chosen) {
  core::Json choice = mesh_json(plan.mesh);
  choice["ranks"] = ranks_json(plan.ranks);
  choice[micro_batch_key] = plan.batch.micro_batch;
  core::Json& keys = choice["chosen"] = core::Json::array();
  if (chosen.sharding) keys.push_back(sharding_key);
  for (const AxisKey& key : axis_keys)
    if (chosen.axes.*key.is_open) keys.push_back(key.name);
  if (chosen.micro_batch) keys.push_back(micro_batch_key);
  return choice;
}

double peak_flops(const Input& input, bool on_gpu) {
  if (input.parallel.machine.empty()) return 0;
  try {
    const plan::Machine machine = read_named(input.parallel.machine);
    return (machine.gpus_per_node > 0) == on_gpu ? 1e12 * machine.peak_tflops : 0;
  } catch (const core::Error& error) {
    // Where nothing is left to choose, nobody else has read it.
    log::warn(fmt::format("MFU is not known: {}", error.what()));
    return 0;
  }
}

void settle_choices(const comm::Environment& environment, const comm::Device& device,
                    Input& input) {
  const comm::Communicator& all = environment.world();
  plan::PlanInput asked = input.plan_input(world::count_ranks(environment.topology()));
  asked.on_gpu = device.index >= 0;
  asked.has_gpu_kernels = kernels::has_kernels_for_gpus();
  if (!comm::agree(all, [&] { return can_plan(asked, input.parameters); })) return;
  if (!plan::is_open(asked, input.parameters)) return;

  const std::int64_t of_node = plan::share_of_node(environment.node().size());
  const std::int64_t there =
      asked.on_gpu ? comm::free_gpu_bytes() + plan::gpu_context_bytes : of_node;
  const std::int64_t cores = all.all_reduce(std::int64_t{environment.cores()}, comm::Reduce::min);
  plan::Site site;
  site.passes = plan::passes_of(asked);
  site.available_bytes = all.all_reduce(plan::available_bytes(asked, there), comm::Reduce::min);
  if (asked.on_gpu) site.available_host_bytes = all.all_reduce(of_node, comm::Reduce::min);
  const std::string decision = comm::agree(all, [&]() -> std::string {
    if (!all.is_root()) return "";
    site.machine = machine_of(input, asked.on_gpu, cores);
    return to_json(Decision(input, asked, site).make()).dump();
  });
  take(core::parse_json(all.broadcast_text(decision), "the plan's choice"), asked, input);
}

}  // namespace finetune::train
