// SPDX-License-Identifier: Apache-2.0
#include "train/input/choices.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "checkpoint/run_folder.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/installation.hpp"
#include "core/log.hpp"
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

/// Rates that strategies are compared with: the deck's machine, and usual ones for what it lacks.
plan::Machine machine_of(const Input& input, bool on_gpu, std::int64_t cores) {
  const std::string& name = input.parallel.machine;
  if (name.empty()) return plan::usual_machine(on_gpu, cores);
  const plan::Machine machine =
      plan::read_machine(name, plan::is_machine_file(name) ? std::filesystem::path()
                                                           : core::shipped("inputs/machines"));
  if ((machine.gpus_per_node > 0) == on_gpu) return plan::with_usual_rates(machine, on_gpu, cores);
  log::warn(
      fmt::format("parallel.machine = \"{}\" computes on {}, these ranks on {}: AUTO compares "
                  "with usual rates instead",
                  name, on_gpu ? "CPUs" : "GPUs", on_gpu ? "GPUs" : "CPUs"));
  return plan::usual_machine(on_gpu, cores);
}

bool is_mesh_open(const plan::PlanInput& request, const model::ParameterTable& table) {
  return plan::is_sharding_open(request) || plan::sharing_axes(request, table).any();
}

/// What ranks share, where `parallel` leaves it open. Notes of older programs do not have it.
void take_shared(const core::Json& choice, plan::ParallelSettings& parallel) {
  const auto take = [&](const char* name, std::int64_t& num) {
    if (num == 0) num = choice.value(name, std::int64_t{1});
  };
  take("tp", parallel.tp);
  take("cp", parallel.cp);
  take("ep", parallel.ep);
}

/// The request with the strategy of an earlier start, if that was on these ranks.
std::optional<plan::PlanInput> earlier(const Input& input, const plan::PlanInput& request) {
  if (input.checkpoint.resume == "never" || !is_mesh_open(request, input.parameters)) return {};
  try {
    const core::Json choice = checkpoint::noted_choice(input.train.output);
    if (choice.is_null() || choice.at("ranks") != ranks_json(request.ranks)) return {};
    plan::PlanInput same = request;
    if (plan::is_sharding_open(request)) {
      same.parallel.sharding = plan::sharding_named(choice.at("sharding").get<std::string>());
      same.parallel.dp_shard = choice.at("dp_shard").get<std::int64_t>();
    }
    take_shared(choice, same.parallel);
    plan::make_mesh(same.parallel, same.ranks);
    return same;
  } catch (const std::exception&) {
    return {};  // a note that means nothing here
  }
}

/// What the root decides.
class Decision {
 public:
  Decision(const Input& input, const plan::PlanInput& asked, const plan::Site& site)
      : input_(input), asked_(asked), site_(site) {}

  plan::PlanInput make() const {
    if (const auto same = earlier(input_, asked_)) {
      const plan::Choice choice = plan::choose(*same, input_.parameters, site_);
      const plan::Strategy& strategy = choice.strategies.front();
      if (strategy.fits) {
        tell(fmt::format("  {:<26} {}, as at the start before on these ranks", "parallel.sharding",
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
    if (first.empty()) return;
    log::info(fmt::format("left to the plan by {} ({}):\n{}{}{}", input_.deck_path.string(),
                          site_.machine.name, first, second.empty() ? "" : "\n", second));
  }

  const Input& input_;
  const plan::PlanInput& asked_;
  const plan::Site& site_;
};

core::Json to_json(const plan::PlanInput& request) {
  const auto& sharding = request.parallel.sharding;
  return {{"sharding", sharding ? core::Json(to_string(*sharding)) : core::Json()},
          {"dp_shard", request.parallel.dp_shard},
          {"tp", request.parallel.num_tp()},
          {"cp", request.parallel.num_cp()},
          {"ep", request.parallel.num_ep()},
          {"activations", static_cast<int>(request.activation_checkpointing)}};
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
  // Where nothing is shared a later start finds that by itself.
  const plan::ParallelSettings& now = input.parallel;
  input.mesh_is_chosen = plan::is_sharding_open(asked) ||
                         (is_mesh_open(asked, input.parameters) && now.tp * now.cp * now.ep > 1);
  if (asked.chooses_activations)
    input.train.activation_checkpointing =
        static_cast<plan::ActivationCheckpointing>(decision.at("activations").get<int>());
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

core::Json describe_choice(const plan::Mesh& mesh, const plan::Ranks& ranks) {
  const bool is_split = mesh.sharding == plan::Sharding::hybrid_shard;
  return {{"ranks", ranks_json(ranks)},
          {"sharding", to_string(mesh.sharding)},
          {"dp_shard", is_split ? mesh.axes[plan::Axis::dp_shard] : 0},
          {"tp", mesh.axes[plan::Axis::tp]},
          {"cp", mesh.axes[plan::Axis::cp]},
          {"ep", mesh.ep}};
}

void settle_choices(const comm::Environment& environment, const comm::Device& device,
                    Input& input) {
  const comm::Communicator& all = environment.world();
  plan::PlanInput asked = input.plan_input(world::count_ranks(environment.topology()));
  asked.on_gpu = device.index >= 0;
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
