// SPDX-License-Identifier: Apache-2.0
#include "machine_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "jobscript.hpp"
#include "plan/choice.hpp"
#include "plan/time/job.hpp"
#include "plan/time/meshes.hpp"
#include "plan/time/scaling_plot.hpp"
#include "plan_job.hpp"

namespace finetune::app {
namespace {

/// Of a walltime: the start of a job, and what it is a multiple of.
constexpr double start_s = 600, quarter_s = 900;
/// Where neither the plan nor the machine tells how long.
constexpr double usual_walltime_s = 24 * 3600;

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

std::string minutes(double seconds) {
  return fmt::format("{:.1f}", std::max(0.1, seconds / 60));
}

}  // namespace

MachinePlan::MachinePlan(const Arguments& arguments, const train::Input& input,
                         const plan::PlanInput& request, const plan::Plan& plan,
                         const plan::Site& site)
    : arguments_(arguments), input_(input), request_(request), plan_(plan), site_(site) {
  time_ = plan::plan_time(plan, request, input.parameters, site.machine, site.passes);
  rules_.beside_training = request.saves_beside_training;
  rules_.reads_back = input.checkpoint.read_back;
  rules_.step_s = time_.step_s;
  const double steps_s = steps_between_saves() * time_.step_s;
  const double minutes_s = 60 * input.checkpoint.save_minutes;
  rules_.interval_s =
      steps_s > 0 && minutes_s > 0 ? std::min(steps_s, minutes_s) : std::max(steps_s, minutes_s);
  if (rules_.interval_s > 0) rules_.interval_s = std::max(rules_.interval_s, time_.step_s);
  saving_ = plan::plan_saving(plan, request, site.machine, rules_);
}

void MachinePlan::scale() {
  weak_ = plan::scale(request_, input_.parameters, site_, plan::Scaling::weak);
  strong_ = plan::scale(request_, input_.parameters, site_, plan::Scaling::strong);
  if (!arguments_.plot || weak_.empty() || strong_.empty()) return;
  const std::string title =
      fmt::format("{} on {}", input_.deck_path.filename().string(), site_.machine.name);
  write_plot(*arguments_.plot, plan::plot_scaling(title, weak_, strong_));
}

void MachinePlan::print() const {
  log::info(time_text(plan_, request_, site_.machine, time_));
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

std::string MachinePlan::script() const {
  Job job = job_of(arguments_, request_, plan_, site_.machine);
  // The job is to choose as this plan did.
  const bool is_open = plan::is_open(input_.plan_input(request_.ranks), input_.parameters);
  if (is_open && input_.parallel.machine.empty())
    job.settings.push_back("parallel.machine=" + *arguments_.machine);
  warn_of_cores();
  job.walltime_s = walltime_s();
  return jobscript(*arguments_.jobscript, job);
}

RunLength MachinePlan::length() const {
  const double epochs = input_.train.epochs;
  if (input_.train.max_steps >= 0 || !arguments_.samples)
    return {std::max<std::int64_t>(0, input_.train.max_steps), epochs};
  return {plan::steps_of(*arguments_.samples, plan_.batch.global_batch, epochs), epochs};
}

double MachinePlan::steps_between_saves() const {
  const checkpoint::CheckpointSettings& saves = input_.checkpoint;
  if (saves.save_epochs <= 0 || !arguments_.samples) return static_cast<double>(saves.save_steps);
  const auto epoch = static_cast<double>(
      plan::steps_of(*arguments_.samples, plan_.batch.global_batch, /*epochs=*/1));
  return saves.save_epochs * epoch;
}

double MachinePlan::num_tokens() const {
  return static_cast<double>(length().num_steps) *
         static_cast<double>(plan_.batch.max_tokens_per_step());
}

void MachinePlan::warn_of_cores() const {
  const std::int64_t cores = site_.machine.cores_per_node, ranks = request_.ranks.ranks_per_node;
  if (cores > 0 && ranks > cores)
    log::warn(
        fmt::format("a node has {} cores for {} ranks: the job asks for one core per rank, which "
                    "schedulers may reject and which is slow",
                    cores, ranks));
}

void MachinePlan::warn_of_saves() const {
  if (saving_.best_interval_s <= 0) return;
  const double run_s = static_cast<double>(length().num_steps) * time_.step_s;
  if (rules_.interval_s <= 0) {
    // How long an epoch is, only --samples says.
    const bool is_known = input_.checkpoint.save_epochs <= 0 || arguments_.samples;
    if (is_known && run_s > saving_.best_interval_s)
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

void MachinePlan::print_scaling() const {
  if (weak_.empty() || strong_.empty()) {
    log::warn("the model fits on none of the numbers of nodes that were tried");
    return;
  }
  log::info(scaling_text(weak_, plan::Scaling::weak, num_tokens()));
  log::info(scaling_text(strong_, plan::Scaling::strong, num_tokens()));
  if (arguments_.plot) log::info("drawn in " + *arguments_.plot);
}

std::int64_t MachinePlan::walltime_s() const {
  const double most_s = 3600 * site_.machine.max_walltime_hours;
  const bool is_known = length().num_steps > 0;
  const double run_s = static_cast<double>(length().num_steps) * time_.step_s;
  double wanted_s = is_known     ? plan_margin * run_s * (1 + saving_.loss) + start_s
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
  return static_cast<std::int64_t>(std::min(wanted_s, longest_walltime_s));
}

}  // namespace finetune::app
