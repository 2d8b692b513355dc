// SPDX-License-Identifier: Apache-2.0
#include "train/run.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>
#include <sstream>
#include <vector>

#include "checkpoint/find.hpp"
#include "checkpoint/local.hpp"
#include "comm/activity.hpp"
#include "comm/agree.hpp"
#include "core/build_info.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "core/memory.hpp"
#include "core/text.hpp"
#include "metrics/memory.hpp"
#include "optim/schedule.hpp"
#include "shard/device_memory.hpp"
#include "train/advice.hpp"
#include "train/answers.hpp"
#include "train/initial_weights.hpp"
#include "train/replicas.hpp"
#include "train/resume.hpp"
#include "train/step.hpp"
#include "train/stop.hpp"
#include "weights/model_files.hpp"

namespace finetune::train {
namespace {

std::int64_t count_steps(const Input& input, const data::Sampler& sampler) {
  return input.train.max_steps >= 0 ? input.train.max_steps
                                    : input.train.epochs * sampler.steps_per_epoch();
}

/// How long a first save may take, as long as none was seen: slow disks write so much a node.
double first_save_s(const State& state, const world::World& world) {
  constexpr double slow_bytes_per_s = 0.2e9;
  return 5 + static_cast<double>(world.node.all_reduce(state.stored_bytes(), comm::Reduce::sum)) /
                 slow_bytes_per_s;
}

/// Sharded over all ranks, each pass gathers weights from all of them.
StopVote::Passes passes_of(const world::World& world) {
  return world.fsdp.size() == world.world.size() ? StopVote::Passes::in_step
                                                 : StopVote::Passes::apart;
}

double run_clock_s() {
  static const core::Stopwatch since_start;
  return since_start.seconds();
}

}  // namespace

Run::Run(const Input& input, const plan::Plan& plan, const world::World& world,
         const Registry& registry)
    : input_(input),
      plan_(plan),
      world_(world),
      // First of all the output: who cannot write should not wait for the tokenizer to hear it.
      local_root_((claim_output_folder(), claim_local_folder())),
      corpus_(load_corpus(input, registry, plan.batch, world)),
      state_(input, plan, world),
      times_(world.world, state_.shards().groups(), world.host),
      checkpoints_(
          input.checkpoint, input.train.output, local_root_, world, state_, folder_.get(),
          [this] {
            if (records_) records_->sync();
            return describe();
          },
          [this](const auto& report, checkpoint::Level level) { tell_saved(report, level); }),
      time_limit_(input.train.max_seconds, first_save_s(state_, world)),
      vote_(
          world.world, passes_of(world),
          [this] { return stop_is_asked() || time_limit_.is_overdue(process_age_s()); },
          run_clock_s),
      num_steps_(count_steps(input, corpus_.training.sampler())) {
  if (input.metrics.answers > 0 && !corpus_.questions) {
    log::warn(
        corpus_.has_answers
            ? "metrics.answers is set, but there are no questions to answer: set "
              "data.validation_path to a file of questions"
            : "metrics.answers is set, but running text asks no questions: nothing is answered");
  }
  restore_or_initialise();
  // Only now: a restart that is refused leaves the deck of the run it does not fit.
  write_resolved_deck();
  const auto style = world_.world.is_root() ? metrics::Progress::style_of_stdout()
                                            : metrics::Progress::Style::silent;
  progress_ = metrics::Progress(style, num_steps_, input_.metrics.log_steps);
}

void Run::tell_saved(const checkpoint::SaveReport& report, checkpoint::Level level) {
  time_limit_.add_save(report.work_s());
  times_.add_checkpoint_s(checkpoints_.take_blocked_s());
  tell_signals(true);
  const bool is_shared = level == checkpoint::Level::shared;
  progress_.pause();
  std::string text =
      fmt::format("saved {}: {}, training blocked {:.2f} s, written in {:.2f} s ({:.2f} GB/s)",
                  report.folder.string(), core::human_bytes(report.payload_bytes), report.blocked_s,
                  report.write_s, report.write_gb_per_s());
  if (report.read_back_s > 0) text += fmt::format(", read back in {:.2f} s", report.read_back_s);
  log::info(text + fmt::format(", {:.2f} s in all", report.total_s));
  write_row(metrics::to_json(metrics::CheckpointRecord{.step = report.step,
                                                       .level = is_shared ? "shared" : "local",
                                                       .bytes = report.payload_bytes,
                                                       .blocked_s = report.blocked_s,
                                                       .write_s = report.write_s,
                                                       .read_back_s = report.read_back_s,
                                                       .total_s = report.total_s}));
}

void Run::validate(const char* when) {
  if (!corpus_.validation) return;
  progress_.pause();
  const Evaluation result = evaluate(state_.engine(), world_.batch, *corpus_.validation);
  validation_loss_ = result.loss;
  metrics::ValidationRecord record{
      .step = steps_done_, .validation_loss = result.loss, .exact_match = std::nullopt};
  std::string text = fmt::format("{}: validation loss {:.4f}", when, result.loss);
  if (corpus_.has_answers) {
    record.exact_match = result.exact_match;
    text +=
        fmt::format(", exact match {:.1f} % of {}", 100 * result.exact_match, result.num_samples);
  }
  log::info(text);
  write_row(metrics::to_json(record));
}

void Run::print_answers() {
  if (input_.metrics.answers == 0 || !corpus_.questions) return;
  progress_.pause();
  train::print_answers(state_.engine(), corpus_.tokenizer, *corpus_.questions, input_.metrics);
}

bool Run::step() {
  if (comm::Activity* activity = world_.world.activity()) activity->set_step(steps_done_ + 1);
  const core::Stopwatch watch;
  const optim::Schedule schedule(input_.optimizer, num_steps_);
  core::fault::hit("data.next");
  const data::StepData data = corpus_.training.step(steps_done_);
  const double data_s = watch.seconds();
  const double lr = schedule.lr(steps_done_);
  const StepResult result = run_step(state_.engine(), world_.batch, data, state_.optimizer(),
                                     {.step = steps_done_,
                                      .lr = lr,
                                      .max_grad_norm = input_.optimizer.max_grad_norm,
                                      .loss_scale = state_.loss_scale(),
                                      .vote = &vote_});
  if (result.left_after > 0) {
    tell_stop(world_.world.all_reduce(std::int64_t{stop_is_asked()}, comm::Reduce::max) != 0,
              fmt::format("step {} is left after {} of its {} micro-batches, ", steps_done_ + 1,
                          result.left_after, data.micro_steps.size()));
    return false;
  }
  ++steps_done_;
  validation_loss_.reset();
  const double step_s = watch.seconds();
  times_.add({.compute_s = step_s - data_s - result.exposed_s - result.optimizer_s,
              .exposed_s = result.exposed_s,
              .data_s = data_s,
              .optimizer_s = result.optimizer_s});
  std::optional<metrics::TimeReport> times;
  if (steps_done_ % input_.metrics.log_steps == 0) times = times_.report();
  const metrics::StepRecord record{.step = steps_done_,
                                   .loss = result.loss,
                                   .grad_norm = result.grad_norm,
                                   .lr = lr,
                                   .tokens = data.num_tokens,
                                   .tokens_per_s = static_cast<double>(data.num_tokens) / step_s,
                                   .step_s = step_s,
                                   .padding = data.padding(),
                                   .epoch = corpus_.training.sampler().epochs_after(steps_done_),
                                   .balance_loss = result.balance_loss,
                                   .times = times};
  progress_.step(record);
  write_row(metrics::to_json(record));
  if (result.is_skipped) {
    progress_.pause();
    log::warn(
        fmt::format("step {}: gradients overflowed float16, the step is skipped; the loss "
                    "scale is now {}",
                    steps_done_, state_.loss_scale()->scale()));
  }
  warn_of_saves();
  if (input_.train.check_replicas)
    require_equal_replicas(state_.shards(), state_.optimizer(), world_, steps_done_);
  return true;
}

/// Once a start knows how long its steps take.
void Run::warn_of_saves() {
  constexpr std::int64_t known_after = 5;
  if (++steps_of_start_ != known_after) return;
  const auto advice = advice_on_saves(input_.checkpoint, progress_.meter().median_step_s(),
                                      num_steps_ - steps_done_);
  if (!advice) return;
  progress_.pause();
  log::warn(*advice);
}

void Run::tell_memory() {
  const at::Device device = state_.shards().options().device;
  const std::int64_t tensors = world_.world.all_reduce(
      device.is_cpu() ? metrics::tensor_bytes().peak : shard::peak_device_bytes(device),
      comm::Reduce::max);
  const std::int64_t process =
      world_.world.all_reduce(core::peak_resident_bytes(), comm::Reduce::max);
  log::info(
      fmt::format("memory of the rank that needed most: planned {}, of which tensors {}; used by "
                  "tensors {}, by the process {}",
                  core::human_bytes(plan_.memory_bytes()), core::human_bytes(plan_.tensor_bytes()),
                  core::human_bytes(tensors), core::human_bytes(process)));
}

void Run::write_row(const std::string& row) {
  if (!records_) return;
  try {
    records_->append(row);
  } catch (const core::Error& error) {
    // A full disk must not end a run that could go on without these rows.
    if (rows_are_lost_) return;
    rows_are_lost_ = true;
    progress_.pause();
    log::warn(fmt::format("rows of metrics.jsonl are lost: {}", error.what()));
  }
}

bool Run::is_validation_due() const {
  return input_.train.validate_steps > 0 && steps_done_ % input_.train.validate_steps == 0;
}

void Run::tell_stop(bool by_signal, const std::string& left) {
  progress_.pause();
  if (!by_signal) {
    log::info(fmt::format(
        "train.max_seconds = {:.0f}: {:.0f} s are left, {}{:.0f} s are reserved for the "
        "last checkpoint",
        input_.train.max_seconds, input_.train.max_seconds - process_age_s(), left,
        time_limit_.margin_s()));
    return;
  }
  log::info(fmt::format(
      "a signal asks to stop: {}{}; a second {}, 3 s later or more, ends the run at once", left,
      steps_done_ == 0 ? std::string("there is no checkpoint yet")
                       : fmt::format("the last checkpoint is from step {}", steps_done_),
      second_signals()));
}

bool Run::between_steps() {
  using checkpoint::Level;
  checkpoints_.advance();
  // Clocks differ and a signal may reach one rank only, or the ranks in different steps: what one
  // rank sees, all do.
  std::int64_t seen[] = {stop_is_asked(), time_limit_.is_due(process_age_s()),
                         checkpoints_.minutes_are_due(Level::shared),
                         checkpoints_.minutes_are_due(Level::local)};
  world_.world.all_reduce(std::span<std::int64_t>(seen), comm::Reduce::max);
  if (seen[0] != 0 || seen[1] != 0) {
    tell_stop(seen[0] != 0, "");
    return true;
  }
  if (checkpoints_.is_due(Level::shared, steps_done_, seen[2] != 0)) {
    checkpoints_.begin(Level::shared, steps_done_);
  } else if (checkpoints_.is_due(Level::local, steps_done_, seen[3] != 0)) {
    checkpoints_.begin(Level::local, steps_done_);
  }
  return false;
}

bool Run::save_last() {
  progress_.pause();
  const bool is_finished = steps_done_ >= num_steps_;
  try {
    checkpoints_.save_now(steps_done_);
    return true;
  } catch (const comm::AgreedError& error) {
    // The next start goes on from an older one; a finished run has no next start.
    if (is_finished || !checkpoints_.has_any()) throw;
    log::warn(fmt::format("the last checkpoint could not be saved: {}", error.what()));
    return false;
  }
}

int Run::stopped(std::int64_t first, bool has_checkpoint) {
  const bool goes_on = input_.checkpoint.resume == "auto";
  // A jobscript continues by itself, or says what to do.
  const char* next = !goes_on ? "; set checkpoint.resume = \"auto\" and start again to continue"
                     : std::getenv("FINETUNE_JOBSCRIPT") != nullptr
                         ? ""
                         : "; start the same command again to continue";
  log::info(fmt::format("stopped after step {} of {}{}", steps_done_, num_steps_, next));
  return has_checkpoint && steps_done_ > first ? core::exit_resubmit : core::exit_resubmit_older;
}

int Run::loop(const comm::Environment& environment) {
  try {
    return train();
  } catch (const std::exception& error) {
    return environment.report(error);
  }
}

int Run::train() {
  tell_signals(checkpoints_.has_any());
  const core::Stopwatch watch;
  const std::int64_t first = steps_done_;
  const std::int64_t stop_at = input_.train.stop_after_steps > 0
                                   ? std::min(num_steps_, first + input_.train.stop_after_steps)
                                   : num_steps_;
  if (world_.world.all_reduce(std::int64_t{stop_is_asked()}, comm::Reduce::max) != 0) {
    log::info("a signal asked to stop before the first step");
    return stopped(first, checkpoints_.has_any());
  }
  if (first < num_steps_) note_start();
  if (first == 0) {
    validate("before training");
    print_answers();
  }
  core::Stopwatch since_last_step;
  while (steps_done_ < stop_at) {
    if (!step() || steps_done_ == num_steps_) break;
    // Validation first: a checkpoint covers the metrics written before it, and a restart drops
    // later ones.
    if (is_validation_due()) validate(fmt::format("step {}", steps_done_).c_str());
    time_limit_.add_step(since_last_step.seconds());
    if (input_.checkpoint.probe && steps_done_ == first + 1) {
      checkpoints_.save_now(steps_done_);
    }
    if (between_steps()) break;
    since_last_step.restart();
  }
  if (steps_done_ >= num_steps_ && (steps_done_ > first || num_steps_ == 0)) {
    validate("after training");
    print_answers();
  }
  // A start that was left in its first step has nothing new.
  const bool has_news = steps_done_ > first || steps_done_ >= num_steps_;
  const bool has_checkpoint = has_news ? save_last() : checkpoints_.has_any();
  if (steps_done_ > first) {
    log::info(metrics::to_string(times_.total()));
    tell_memory();
  }
  if (steps_done_ < num_steps_) return stopped(first, has_checkpoint);
  // A finished run needs them no more, and others need the space.
  if (!local_root_.empty() && world_.node.is_root()) checkpoint::remove_other_runs(local_root_, "");
  if (steps_done_ == first && first > 0) {
    log::info(fmt::format("nothing left to do: all {} steps are done", num_steps_));
  } else {
    log::info(fmt::format("done: {} step{} in {}", steps_done_ - first,
                          steps_done_ - first == 1 ? "" : "s",
                          metrics::human_seconds(watch.seconds())));
  }
  return core::exit_done;
}

}  // namespace finetune::train
