// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "commands.hpp"
#include "core/build_info.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/installation.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "jobscript.hpp"
#include "plan/choice.hpp"
#include "plan/fits.hpp"
#include "plan/layout/mesh_text.hpp"
#include "plan/machine/machine_file.hpp"
#include "plan/time/job.hpp"
#include "plan/time/scaling_plot.hpp"
#include "plan_time.hpp"
#include "slurm_nodes.hpp"
#include "train/input/input.hpp"
#include "train/run/advice.hpp"

namespace finetune::app {
namespace {

/// Of a walltime: what a plan may be wrong by, and the start of a job.
constexpr double margin = 1.15, start_s = 600, quarter_s = 900;
/// Where neither the plan nor the machine tells how long.
constexpr double usual_walltime_s = 24 * 3600;
/// No scheduler counts further.
constexpr double longest_s = 1e9;

void write_plot(const std::string& file, const std::string& svg) {
  const auto refuse = [&](const std::string& problem, const std::string& why) {
    core::fail(core::ErrorKind::create,
               {"--plot " + file, problem, why, "Name a file in a folder that you may write to."});
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) refuse("it is a folder", "");
  try {
    core::write_text_atomically(file, svg);
  } catch (const core::Error& error) {
    refuse("it cannot be written", error.what());
  }
}

/// What a job asks for, but for its time. What `machine` does not tell is left to the scheduler.
Job job_of(const Arguments& arguments, const plan::PlanInput& request, const plan::Plan& plan,
           const plan::Machine& machine) {
  const std::int64_t ranks = request.ranks.ranks_per_node;
  Job job;
  job.deck = arguments.path;
  job.settings = arguments.overrides;
  job.num_nodes = request.ranks.num_nodes;
  job.ranks_per_node = ranks;
  job.cores_per_rank = arguments.cores_per_rank.value_or(
      machine.cores_per_node > 0 ? plan::cores_per_rank(machine, request.ranks) : 0);
  job.gpus_per_node = request.on_gpu ? ranks : 0;
  job.account = arguments.account;
  job.queue = arguments.queue;
  job.options = arguments.job_options;
  // Of a GPU's rank the plan counts the smaller part of host memory.
  if (request.on_gpu && machine.node_memory_gib <= 0) return job;
  const std::int64_t of_rank = request.on_gpu ? plan.host_bytes() : plan.memory_bytes();
  const double needed = margin * static_cast<double>(of_rank * ranks);
  job.node_memory_bytes =
      plan::node_memory_to_ask(machine, request.ranks, static_cast<std::int64_t>(needed));
  return job;
}

/// The job of nodes whose rates nobody knows: as long as the queue allows.
std::string script_without_rates(const Arguments& arguments, const plan::PlanInput& request,
                                 const plan::Plan& plan, const plan::Machine& machine) {
  Job job = job_of(arguments, request, plan, machine);
  job.walltime_s =
      static_cast<std::int64_t>(std::min(3600 * machine.max_walltime_hours, longest_s));
  job.note = machine.name;
  // A Slurm that has not been told what memory its nodes have gives none to who asks for some.
  if (machine.cores_per_node > 0 && machine.node_memory_gib <= 0) job.node_memory_bytes = 0;
  log::warn(fmt::format(
      "the job asks for {} node{} of {} rank{}{}; --nodes and --ranks-per-node change that, and "
      "--machine plans the time it needs",
      job.num_nodes, job.num_nodes == 1 ? "" : "s", job.ranks_per_node,
      job.ranks_per_node == 1 ? "" : "s",
      job.walltime_s > 0 ? " and " + duration(static_cast<double>(job.walltime_s))
                         : std::string(" and no time limit of its own")));
  return jobscript(*arguments.jobscript, job);
}

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

/// The plan of a deck on a machine.
class MachinePlan {
 public:
  MachinePlan(const Arguments& arguments, const train::Input& input, const plan::PlanInput& request,
              const plan::Plan& plan, const plan::Site& site)
      : arguments_(arguments), input_(input), request_(request), plan_(plan), site_(site) {
    time_ = plan::plan_time(plan, request, input.parameters, site.machine, site.passes);
    rules_.beside_training = request.saves_beside_training;
    rules_.reads_back = input.checkpoint.read_back;
    rules_.step_s = time_.step_s;
    const double steps_s = static_cast<double>(input.checkpoint.save_steps) * time_.step_s;
    const double minutes_s = 60 * input.checkpoint.save_minutes;
    rules_.interval_s =
        steps_s > 0 && minutes_s > 0 ? std::min(steps_s, minutes_s) : std::max(steps_s, minutes_s);
    if (rules_.interval_s > 0) rules_.interval_s = std::max(rules_.interval_s, time_.step_s);
    saving_ = plan::plan_saving(plan, request, site.machine, rules_);
  }

  /// The number of nodes against what they do, and the picture of it, before anything is printed:
  /// a place that cannot be written to is worth no table.
  void scale() {
    weak_ = plan::scale(request_, input_.parameters, site_, plan::Scaling::weak);
    strong_ = plan::scale(request_, input_.parameters, site_, plan::Scaling::strong);
    if (!arguments_.plot || weak_.empty() || strong_.empty()) return;
    const std::string title =
        fmt::format("{} on {}", input_.deck_path.filename().string(), site_.machine.name);
    write_plot(*arguments_.plot, plan::plot_scaling(title, weak_, strong_));
  }

  void print() const {
    log::info(time_text(plan_, site_.machine, time_));
    std::string text = run_text(plan_, time_, length());
    text += strategies_text(plan::compare(request_, input_.parameters, site_), plan_.mesh);
    if (arguments_.compares_meshes || plan_.mesh.shares_computation())
      text += meshes_text(
          plan::compare_meshes(request_, input_.parameters, site_, {true, true, true}), plan_.mesh);
    text += saving_text(saving_, rules_);
    text.pop_back();
    log::info(text);
    warn_of_saves();
    print_scaling();
  }

  std::string script() const {
    Job job = job_of(arguments_, request_, plan_, site_.machine);
    // The job is to choose as this plan did.
    if (!input_.parallel.sharding && input_.parallel.machine.empty())
      job.settings.push_back("parallel.machine=" + *arguments_.machine);
    warn_of_cores();
    job.walltime_s = walltime_s();
    return jobscript(*arguments_.jobscript, job);
  }

 private:
  RunLength length() const {
    const std::int64_t epochs = input_.train.epochs;
    if (input_.train.max_steps >= 0 || !arguments_.samples)
      return {std::max<std::int64_t>(0, input_.train.max_steps), epochs};
    return {plan::steps_of(*arguments_.samples, plan_.batch.global_batch, epochs), epochs};
  }

  double num_tokens() const {
    return static_cast<double>(length().num_steps) *
           static_cast<double>(plan_.batch.max_tokens_per_step());
  }

  void warn_of_cores() const {
    const std::int64_t cores = site_.machine.cores_per_node, ranks = request_.ranks.ranks_per_node;
    if (cores > 0 && ranks > cores)
      log::warn(
          fmt::format("a node has {} cores for {} ranks: the job asks for one core per rank, which "
                      "schedulers may reject and which is slow",
                      cores, ranks));
  }

  void warn_of_saves() const {
    if (saving_.best_interval_s <= 0) return;
    const double run_s = static_cast<double>(length().num_steps) * time_.step_s;
    if (rules_.interval_s <= 0) {
      if (run_s > saving_.best_interval_s)
        log::warn(
            fmt::format("the deck saves at the end only: a failure, one every {} on these "
                        "nodes, costs all before it. checkpoint.save_minutes = {} is best",
                        duration(saving_.mtbf_s), minutes(saving_.best_interval_s)));
      return;
    }
    if (saving_.is_too_rare)
      log::warn(fmt::format(
          "the deck saves every {}, much more rarely than is best here, and failures cost {:.1f} % "
          "of the time instead of {:.1f} %: checkpoint.save_minutes = {} is best",
          duration(rules_.interval_s), 100 * saving_.loss, 100 * saving_.best_loss,
          minutes(saving_.best_interval_s)));
  }

  static std::string minutes(double seconds) {
    return fmt::format("{:.1f}", std::max(0.1, seconds / 60));
  }

  void print_scaling() const {
    if (weak_.empty() || strong_.empty()) {
      log::warn("the model fits on none of the numbers of nodes that were tried");
      return;
    }
    log::info(scaling_text(weak_, plan::Scaling::weak, num_tokens()));
    log::info(scaling_text(strong_, plan::Scaling::strong, num_tokens()));
    if (arguments_.plot) log::info("drawn in " + *arguments_.plot);
  }

  std::int64_t walltime_s() const {
    const double most_s = 3600 * site_.machine.max_walltime_hours;
    const bool is_known = length().num_steps > 0;
    const double run_s = static_cast<double>(length().num_steps) * time_.step_s;
    double wanted_s = is_known     ? margin * run_s * (1 + saving_.loss) + start_s
                      : most_s > 0 ? most_s
                                   : usual_walltime_s;
    if (!is_known)
      log::warn(
          fmt::format("how long the run is follows from the data, and --samples says it: the job "
                      "asks for {}, and its chain of jobs continues if that is too short",
                      duration(wanted_s)));
    wanted_s = quarter_s * std::ceil(wanted_s / quarter_s);
    if (most_s > 0 && wanted_s > most_s) {
      log::warn(
          fmt::format("the run takes about {}, the queue {} at most: each job of the chain "
                      "continues from the checkpoint of the one before",
                      duration(run_s), duration(most_s)));
      wanted_s = most_s;
    }
    return static_cast<std::int64_t>(std::min(wanted_s, longest_s));
  }

  const Arguments& arguments_;
  const train::Input& input_;
  const plan::PlanInput& request_;
  const plan::Plan& plan_;
  const plan::Site& site_;
  plan::TimePlan time_;
  plan::SavingRules rules_;
  plan::SavingPlan saving_;
  std::vector<plan::ScalingRow> weak_;
  std::vector<plan::ScalingRow> strong_;
};

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
  if (!plan::is_sharding_open(asked) && !asked.chooses_activations && !choice.without_sharing)
    return;
  const std::string text = plan::to_string(choice, asked, site);
  if (!text.empty())
    log::info(fmt::format("left to the plan ({})\n{}", site.machine.name, text));
  else if (asked.ranks.world_size > 1 || asked.chooses_activations)
    log::info(
        "what AUTO and auto take depends on the memory per rank, which --memory or --machine "
        "gives. "
        "This plan recomputes nothing");
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
  plan::Site site;
  const bool has_machine = arguments.machine.has_value();
  const std::optional<plan::Machine> known = machine_of(arguments);
  if (known) site.machine = *known;
  const plan::Machine* machine = known ? &site.machine : nullptr;

  const train::Input input = train::read({}, arguments.path, arguments.overrides, registry);
  plan::PlanInput asked = input.plan_input(
      plan::ranks_of({arguments.ranks, arguments.nodes, arguments.ranks_per_node}, machine));
  if (arguments.jobscript) plan::require_even(asked.ranks);
  asked.on_gpu = arguments.on_gpu || input.train.device == comm::UseOfGpus::always ||
                 site.machine.gpus_per_node > 0;
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
