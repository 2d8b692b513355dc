// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "commands.hpp"
#include "core/build_info.hpp"
#include "core/error.hpp"
#include "core/installation.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "kernels/gpu_kernels.hpp"
#include "machine_plan.hpp"
#include "plan/choice.hpp"
#include "plan/fits.hpp"
#include "plan/layout/mesh_text.hpp"
#include "plan/machine/machine_file.hpp"
#include "plan/time/job.hpp"
#include "plan_job.hpp"
#include "slurm_nodes.hpp"
#include "train/input/described_model.hpp"
#include "train/input/input.hpp"
#include "train/input/trained_tensors.hpp"
#include "train/run/advice.hpp"
#include "train/run/tiling.hpp"
#include "train/run/usable.hpp"

namespace finetune::app {
namespace {

void require_rates(const std::string& name, const plan::Machine& machine,
                   const plan::PlanInput& request) {
  const auto missing = plan::missing_rates(machine, request);
  if (missing.empty()) return;
  core::fail(core::ErrorKind::deck,
             {"--machine " + name, fmt::format("it lacks {}", fmt::join(missing, ", ")),
              "the time of this job depends on it",
              "Add it to the file, or leave --machine out to plan memory alone."});
}

/// A plan may compare machines; a job would only fail on one that this program has no code for.
void require_supported(const Arguments& arguments, const plan::Machine& machine) {
  if (machine.is_supported()) return;
  const core::Message message = {"--machine " + *arguments.machine,
                                 "this program cannot compute on its GPUs",
                                 "they are AMD's, and its GPU code is CUDA: there is no HIP build",
                                 "Take the plan as a comparison, and another machine to train on."};
  if (arguments.jobscript) core::fail(core::ErrorKind::command_line, message);
  log::warn(core::to_string(message));
}

/// What a rank may use; 0: nobody said it.
std::int64_t available(const Arguments& arguments, const plan::PlanInput& request,
                       const plan::Machine* machine) {
  // What the command line says is about a machine that the deck does not know.
  if (arguments.memory) return parse_bytes(*arguments.memory);
  const std::int64_t there =
      machine != nullptr ? plan::usable_bytes(*machine, request.ranks.ranks_per_node) : 0;
  return plan::available_bytes(request, there);
}

void print_memory(const train::Input& input, const plan::Plan& plan) {
  log::info(fmt::format("plan for {} ({})", input.model_folder.string(), input.family->name));
  log::info(plan::to_string(plan));
  if (const std::string frozen = train::frozen_in_words(input); !frozen.empty())
    log::info("frozen: " + frozen);
  if (const std::string note = train::unpacking_note(input.quantization, input.parameters);
      !note.empty())
    log::info(note);
  if (plan.mesh.shares_computation()) log::info(plan::layout_text(plan.mesh, plan.ranks));
  for (const std::string& warning : plan.warnings)
    log::warn(warning);
  for (const std::string& warning : train::advice_on_lr(input))
    log::warn(warning);
}

/// What AUTO and auto became, or what they need to become anything.
void print_choice(const plan::Choice& choice, const plan::PlanInput& asked,
                  const plan::Site& site) {
  // What is shared is mentioned where it has to be.
  const bool is_open =
      plan::is_sharding_open(asked) || asked.chooses_activations || asked.chooses_micro_batch;
  if (!is_open && !choice.without_sharing && choice.prefetch_saves_s <= 0) return;
  const std::string text = plan::to_string(choice, asked, site);
  if (!text.empty())
    log::info(fmt::format("left to the plan ({})\n{}", site.machine.name, text));
  else if (asked.ranks.world_size > 1 || is_open)
    log::info(fmt::format(
        "what AUTO and auto take depends on the memory per rank, which --memory or --machine "
        "gives. This plan recomputes nothing{}",
        asked.chooses_micro_batch ? ", and takes sequences one by one" : ""));
}

/// A file of the user's needs no file of the program's.
plan::Machine machine_of(const std::string& name_or_file) {
  return plan::read_machine(name_or_file, plan::is_machine_file(name_or_file)
                                              ? std::filesystem::path()
                                              : core::shipped("inputs/machines"));
}

/// Slurm's own description of its nodes, where a job for it is to be printed and nothing else says
/// what they are.
std::optional<plan::Machine> machine_of(const Arguments& arguments) {
  if (arguments.machine) return machine_of(*arguments.machine);
  if (arguments.jobscript != "slurm") return std::nullopt;
  const auto build = core::build_info();
  const bool has_cuda = std::ranges::any_of(
      build, [](const auto& entry) { return entry.first == "cuda" && entry.second != "off"; });
  return ask_slurm(arguments.queue, arguments.on_gpu || has_cuda ? Gpus::wanted : Gpus::of_no_use);
}

/// What choices are made with: the machine of the command line, else the deck's, else a usual one.
plan::Site site_of_choice(const train::Input& input, const plan::PlanInput& asked, plan::Site site,
                          bool has_machine) {
  const std::int64_t cores = plan::cores_per_rank(site.machine, asked.ranks);
  if (!has_machine && !input.parallel.machine.empty())
    site.machine = plan::with_usual_rates(machine_of(input.parallel.machine), asked.on_gpu, cores);
  else if (!has_machine)
    site.machine = plan::usual_machine(asked.on_gpu, cores);
  return site;
}

std::string fits_text(const plan::Plan& plan, const plan::Site& site) {
  std::string text = fmt::format("fits: {} of {}", core::human_bytes(plan.memory_bytes()),
                                 core::human_bytes(site.available_bytes));
  if (site.available_host_bytes > 0 && plan.host_bytes() > 0)
    text += fmt::format(", and {} of {} of the host's", core::human_bytes(plan.host_bytes()),
                        core::human_bytes(site.available_host_bytes));
  return text;
}

}  // namespace

int run_plan(const Arguments& arguments, const train::Registry& registry) {
  if (arguments.is_about_data) return run_data_report(arguments, registry);
  if (arguments.is_about_texts) return run_texts_plan(arguments, registry);
  plan::Site site;
  const bool has_machine = arguments.machine.has_value();
  const std::optional<plan::Machine> known = machine_of(arguments);
  if (known) site.machine = *known;
  const plan::Machine* machine = known ? &site.machine : nullptr;

  const train::Input input =
      train::read({}, arguments.path, arguments.overrides, registry, train::check_weights);
  plan::PlanInput asked = input.plan_input(
      plan::ranks_of({arguments.ranks, arguments.nodes, arguments.ranks_per_node}, machine));
  if (arguments.jobscript) plan::require_even(asked.ranks);
  asked.on_gpu = arguments.on_gpu || input.train.device == comm::UseOfGpus::always ||
                 site.machine.gpus_per_node > 0;
  asked.has_gpu_kernels = arguments.has_gpu_kernels || kernels::has_kernels_for_gpus();
  asked.sample_tokens = arguments.sample_tokens;
  asked.threads = has_machine
                      ? plan::cores_per_rank(site.machine, asked.ranks)
                      : std::max<std::int64_t>(1, asked.threads / asked.ranks.ranks_per_node);
  if (has_machine) require_supported(arguments, site.machine);
  if (has_machine) require_rates(*arguments.machine, site.machine, asked);
  site.passes = plan::passes_of(asked);
  if (arguments.samples && input.train.max_steps >= 0)
    log::warn("train.max_steps says how long the run is: --samples changes nothing");
  site.available_bytes = available(arguments, asked, machine);
  if (asked.on_gpu)
    site.available_host_bytes = plan::usable_host_bytes(site.machine, asked.ranks.ranks_per_node);
  const plan::Site chooses = site_of_choice(input, asked, site, has_machine);
  const plan::Choice choice = plan::choose(asked, input.parameters, chooses);
  const plan::PlanInput& request = choice.request;
  const plan::Plan plan = plan::make(request, input.parameters);
  plan::require_sane_batch(plan, request.deck);
  plan::require_one_pass(plan, request);
  train::require_tiling(plan, input.parameters, request.optimizer, request.deck);
  const auto require_fits = [&] {
    if (site.available_bytes > 0)
      plan::require_fits(plan, request, input.parameters, site.available_bytes);
    if (site.available_host_bytes > 0)
      plan::require_host_fits(plan, request, site.available_host_bytes);
  };

  if (arguments.jobscript) {
    require_fits();
    if (!has_machine) {
      std::fputs(script_without_rates(arguments, request, plan, site.machine).c_str(), stdout);
      return core::exit_done;
    }
    MachinePlan job(arguments, input, request, plan, site);
    if (arguments.plot) job.scale();
    std::fputs(job.script().c_str(), stdout);
    return core::exit_done;
  }
  std::optional<MachinePlan> there;
  if (has_machine) there.emplace(arguments, input, request, plan, site).scale();
  print_memory(input, plan);
  print_choice(choice, asked, chooses);
  if (there) there->print();
  require_fits();
  if (site.available_bytes > 0) log::info(fits_text(plan, site));
  return core::exit_done;
}

}  // namespace finetune::app
