// SPDX-License-Identifier: Apache-2.0
#include "train/run/run.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <utility>

#include "comm/activity.hpp"
#include "comm/agree.hpp"
#include "comm/watch/hang.hpp"
#include "core/build_info.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "core/memory.hpp"
#include "core/text.hpp"
#include "metrics/memory.hpp"
#include "model/device.hpp"
#include "optim/schedule.hpp"
#include "plan/time/job.hpp"
#include "shard/device_memory.hpp"
#include "trace/recorder.hpp"
#include "train/infer/answers.hpp"
#include "train/input/arithmetic.hpp"
#include "train/input/choices.hpp"
#include "train/input/trained_tensors.hpp"
#include "train/run/advice.hpp"
#include "train/run/detail/lr_continuity.hpp"
#include "train/run/detail/replicas.hpp"
#include "train/run/detail/resume.hpp"
#include "train/step/step.hpp"

namespace finetune::train {
namespace {

std::int64_t count_steps(const TrainSettings& train, const plan::BatchPlan& batch,
                         const data::Sampler& sampler) {
  return train.max_steps >= 0
             ? train.max_steps
             : plan::steps_of(sampler.epoch_size(), batch.global_batch, train.epochs);
}

/// How long a first save may take, as long as none was seen: slow disks write so much a node.
double first_save_s(const State& state, const world::World& world) {
  constexpr double slow_bytes_per_s = 0.2e9;
  return 5 + static_cast<double>(world.node.all_reduce(state.stored_bytes(), comm::Reduce::sum)) /
                 slow_bytes_per_s;
}

/// What later starts in the folder are to go by; null where the deck said it all.
core::Json choice_of(const Input& input, const plan::Plan& plan) {
  return input.chosen.any() ? describe_choice(plan, input.chosen) : core::Json();
}

double run_clock_s() {
  static const core::Stopwatch since_start;
  return since_start.seconds();
}

Corpus corpus_of(const Input& input, const Registry& registry, const plan::BatchPlan& plan,
                 const world::World& world) {
  const comm::Activity::Work work(world.world.activity(), comm::reading_files, "the data");
  const TimeLimit limit(input.train.max_seconds, 0);
  Corpus corpus = load_corpus(
      data_input(input), registry, cache_options(input.data, input.train.output), plan, world,
      leave_when(
          world.world, [limit] { return stop_is_asked() || limit.is_overdue(process_age_s()); },
          run_clock_s));
  if (input.metrics.answers > 0 && !corpus.questions) {
    log::warn(
        corpus.has_answers
            ? "metrics.answers is set, but there are no questions to answer: set "
              "data.validation_path to a file of questions"
            : "metrics.answers is set, but running text asks no questions: nothing is answered");
  }
  return corpus;
}

}  // namespace

Run::Run(const Input& input, const plan::Plan& plan, const world::World& world,
         const shard::Groups& groups, const Registry& registry)
    : input_(input),
      plan_(plan),
      world_(world),
      arithmetic_(describe_arithmetic(plan.numbers, world.device.index >= 0)),
      output_(input.train.output, input.checkpoint, choice_of(input, plan), world),
      corpus_(corpus_of(input, registry, plan.batch, world)),
      profiler_(input.profile, output_.root(), world.world, world.host,
                model::compute_device(world.device.index)),
      state_(state_input(input), plan, world, groups),
      times_(world.world, state_.shards().groups(), world.host),
      devices_(world, input.metrics.devices_every_s),
      links_(world, run_clock_s),
      checkpoints_(
          input.checkpoint, output_.root(), output_.local_root(), world, state_,
          output_.run_folder(),
          [this] {
            reporter_.sync_metrics();
            return describe();
          },
          [this](const auto& report, checkpoint::Level level) { saved(report, level); }),
      time_limit_(input.train.max_seconds, first_save_s(state_, world)),
      vote_(
          world.world, StopVote::passes_of(world.world, world.fsdp),
          [this] { return stop_is_asked() || time_limit_.is_overdue(process_age_s()); },
          run_clock_s),
      num_steps_(count_steps(input.train, plan.batch, corpus_.training.sampler())),
      start_([&] {
        const comm::Activity::Work work(world.world.activity(), comm::reading_files,
                                        "the checkpoint");
        return Resumer(resume_input(input), plan.numbers, world, corpus_, arithmetic_, num_steps_,
                       output_, state_)
            .restore_or_initialise();
      }()),
      tasks_(input, registry, world.world, corpus_.tokenizer, output_.root()),
      patience_(patience_of(input, start_.patience)),
      noise_(start_.noise),
      loss_guard_(input.architecture.outputs, input.architecture.vocab_size),
      ahead_(corpus_.training, num_steps_),
      reporter_(world.world.is_root() ? metrics::Progress::style_of_stdout()
                                      : metrics::Progress::Style::silent,
                num_steps_, input.metrics.log_steps, std::move(start_.files)),
      starts_(output_.root(), world.world.is_root()),
      page_(output_.root(), world.world.is_root() && input.metrics.report),
      tally_(yardstick_of(input, plan, world), {start_.total_samples, start_.total_tokens}),
      steps_done_(start_.step),
      validation_loss_(start_.validation_loss),
      score_(start_.score) {
  if (const std::string frozen = frozen_in_words(input); !frozen.empty())
    log::info("frozen: " + frozen);
  if (world.device.index >= 0) log::info(describe_gpu_attention(input, world.device));
  if (start_.level) checkpoints_.start_from(*start_.level, start_.step);
  warn_of_lr();
  // Only now: a restart that is refused leaves the deck of the run it does not fit.
  output_.write_deck(input.resolved_deck);
  reporter_.show("deck", start_.step, metrics::as_code(input.resolved_deck));
}

checkpoint::RunState Run::describe() const {
  return describe_run(
      identity_of(input_),
      {.step = steps_done_,
       .metrics_bytes = reporter_.metrics_bytes(),
       .data_fingerprint = corpus_.fingerprint,
       .data_tokens = corpus_.tokens_fingerprint,
       .source_dtypes = start_.source_dtypes,
       .loss_scale = state_.loss_scale() != nullptr ? state_.loss_scale()->to_json() : core::Json(),
       .threads = at::get_num_threads(),
       .arithmetic = arithmetic_,
       .run_id = start_.run_id,
       .lineage = start_.lineage,
       .validation_loss = validation_loss_,
       .score = score_,
       .patience = patience_.to_json(),
       .noise = noise_.to_json(),
       .total_samples = tally_.totals().samples,
       .total_tokens = tally_.totals().tokens,
       .base = start_.base});
}

void Run::saved(const checkpoint::SaveReport& report, checkpoint::Level level) {
  time_limit_.add_save(report.work_s());
  times_.add_checkpoint_s(checkpoints_.take_blocked_s());
  tell_signals(true);
  reporter_.saved(report, level);
}

bool Run::step() {
  if (comm::Activity* activity = world_.world.activity()) activity->set_step(steps_done_ + 1);
  Profiler::Step profiled(profiler_, steps_done_ + 1);
  const core::Stopwatch watch;
  const optim::Schedule schedule(input_.optimizer, num_steps_);
  trace::Span taking(trace::main_row, "data");
  core::fault::hit("data.next");
  const data::StepData data = ahead_.take(steps_done_);
  taking.end();
  const double data_s = watch.seconds();
  const double lr = schedule.lr(steps_done_);
  // On CPUs the thread of MPI would work while others save, on the same cores.
  const bool gathers_ahead = world_.device.index >= 0;
  const StepResult result =
      run_step(state_.engine(), world_.loss, data, state_.optimizer(),
               {.step = steps_done_,
                .lr = lr,
                .max_grad_norm = input_.optimizer.max_grad_norm,
                .loss_scale = state_.loss_scale(),
                .wants_layer_norms = input_.metrics.wants_norms(steps_done_ + 1),
                .wants_noise = input_.metrics.wants_noise(steps_done_ + 1),
                .updates_in_backward = input_.optimizer.in_backward,
                .vote = &vote_,
                .more_follow = gathers_ahead && steps_done_ + 1 < num_steps_});
  if (result.left_after > 0) {
    report_stop(world_.world.all_reduce(std::int64_t{stop_is_asked()}, comm::Reduce::max) != 0,
                fmt::format("step {} is left after {} of its {} micro-batches, ", steps_done_ + 1,
                            result.left_after, data.micro_steps.size()));
    return false;
  }
  ++steps_done_;
  validation_loss_.reset();
  exact_match_.reset();
  task_result_.reset();
  score_.reset();
  const double step_s = watch.seconds();
  profiled.done();
  const trace::Span reporting(trace::main_row, "report");
  times_.add({.compute_s = step_s - data_s - result.exposed_s - result.optimizer_s,
              .exposed_s = result.exposed_s,
              .data_s = data_s,
              .optimizer_s = result.optimizer_s},
             result.exposed_by_axis);
  metrics::StepRecord record = tally_.add(steps_done_, data, result, step_s);
  record.lr = lr;
  if (result.noise) record.noise = noise_.add(*result.noise, data.num_sequences);
  record.epoch = corpus_.training.sampler().epochs_after(steps_done_);
  if (steps_done_ % input_.metrics.log_steps == 0) {
    record.times = times_.report(own_peak());
    record.devices = devices_.report(reporter_);
    record.links = links_.report(reporter_);
  }
  reporter_.step(record);
  if (result.is_skipped) {
    reporter_.warn(
        fmt::format("step {}: gradients overflowed float16, the step is skipped; the loss "
                    "scale is now {}",
                    steps_done_, state_.loss_scale()->scale()));
  }
  if (!result.is_skipped) look_at_loss(result.loss);
  warn_of_saves();
  if (input_.train.check_replicas)
    require_equal_replicas(state_.shards(), state_.optimizer(), world_, steps_done_);
  return true;
}

void Run::warn_of_lr() const {
  if (!world_.world.is_root()) return;
  const auto before = lr_of_step(output_.metrics_path(), start_.step);
  if (!before) return;
  if (const auto advice = advice_on_lr_jump(input_.optimizer, num_steps_, start_.step, *before))
    log::warn(*advice);
}

void Run::look_at_loss(double loss) {
  const auto problem = loss_guard_.add(steps_done_, loss);
  if (!problem) return;
  // The loss is the same on every rank, so all throw together.
  if (input_.train.stop_on_divergence) throw comm::AgreedError(core::ErrorKind::numbers, *problem);
  reporter_.warn(*problem + " train.stop_on_divergence = true ends a run that does so.");
}

/// Once a start knows how long its steps take.
void Run::warn_of_saves() {
  if (constexpr std::int64_t known_after = 5; steps_done_ - start_.step != known_after) return;
  const auto advice =
      advice_on_saves(input_.checkpoint, reporter_.median_step_s(), num_steps_ - steps_done_,
                      corpus_.training.sampler().steps_per_epoch());
  if (advice) reporter_.warn(*advice);
}

metrics::PeakBytes Run::own_peak() {
  const at::Device device = state_.shards().options().device;
  return {device.is_cpu() ? metrics::tensor_bytes().peak : shard::peak_device_bytes(device).tensors,
          core::peak_resident_bytes()};
}

bool Run::between_steps() {
  using checkpoint::Level;
  const trace::Span span(trace::main_row, "checkpoint");
  checkpoints_.advance();
  // Clocks differ and a signal may reach one rank only, or the ranks in different steps: what one
  // rank sees, all do.
  std::int64_t seen[] = {stop_is_asked(), time_limit_.is_due(process_age_s()),
                         checkpoints_.minutes_are_due(Level::shared),
                         checkpoints_.minutes_are_due(Level::local)};
  world_.world.all_reduce(std::span<std::int64_t>(seen), comm::Reduce::max);
  if (seen[0] != 0 || seen[1] != 0) {
    report_stop(seen[0] != 0, "");
    return true;
  }
  const bool epochs_are_due = ends_interval(input_.checkpoint.save_epochs);
  if (checkpoints_.is_due(Level::shared, steps_done_, seen[2] != 0 || epochs_are_due)) {
    checkpoints_.begin(Level::shared, steps_done_);
  } else if (checkpoints_.is_due(Level::local, steps_done_, seen[3] != 0)) {
    checkpoints_.begin(Level::local, steps_done_);
  }
  return false;
}

bool Run::save_last() {
  reporter_.pause();
  const bool is_finished = this->is_finished();
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

int Run::loop(const comm::Environment& environment) {
  try {
    environment.flight().write_to(output_.flight_folder());
    return train(environment.topology());
  } catch (const std::exception& error) {
    // Where another rank fails alone, and ends the job, there is no time for this.
    end(comm::exit_code(error), comm::message_of(error));
    return environment.report(error);
  }
}

void Run::train_steps() {
  const std::int64_t first = start_.step;
  const std::int64_t stop_at = input_.train.stop_after_steps > 0
                                   ? std::min(num_steps_, first + input_.train.stop_after_steps)
                                   : num_steps_;
  core::Stopwatch since_last_step;
  while (steps_done_ < stop_at && !is_finished()) {
    if (!step() || steps_done_ == num_steps_) break;
    // Validation first: a checkpoint covers the metrics written before it, and a restart drops
    // later ones.
    const std::string when = fmt::format("step {}", steps_done_);
    evaluated_s_ = 0;
    if (is_validation_due()) validate(when);
    if (!is_stopped_ && is_evaluation_due()) evaluate_tasks(when);
    time_limit_.add_step(since_last_step.seconds() - evaluated_s_);
    if (is_stopped_) break;
    note_score();
    if (patience_.is_lost()) break;
    if (input_.checkpoint.probe && steps_done_ == first + 1) {
      checkpoints_.save_now(steps_done_);
    }
    if (between_steps()) break;
    since_last_step.restart();
  }
}

int Run::train(const comm::Topology& topology) {
  tell_signals(checkpoints_.has_any());
  profiler_.announce(num_steps_ - start_.step);
  const core::Stopwatch watch;
  const std::int64_t first = start_.step;
  if (world_.world.all_reduce(std::int64_t{stop_is_asked()}, comm::Reduce::max) != 0) {
    log::info("a signal asked to stop before the first step");
    stop_reason_ = signal_reason;
    return end_stopped(checkpoints_.has_any());
  }
  const bool was_finished = is_finished(), was_left = misses_validation();
  tasks_.start_from(first, start_.run_id);
  // Tasks that are due with a validation that was left were not begun.
  const bool goes_on_asking = first > 0 && (tasks_.is_unfinished(first) ||
                                            (was_left && !was_finished && is_evaluation_due()));
  if (!was_finished)
    output_.note_start(first, core::fingerprint(input_.timeless_deck + core::build_stamp()),
                       input_.checkpoint.max_starts);
  if (!was_finished || was_left || goes_on_asking) {
    metrics::StartRecord record = describe_start(input_, plan_, world_, topology, num_steps_);
    record.step = first;
    record.run_id = start_.run_id;
    reporter_.show("start", first, metrics::as_code(starts_.begin(std::move(record))));
  }
  measure_first(was_left && !was_finished, goes_on_asking);
  if (!is_stopped_) train_steps();
  const bool is_finished = !is_stopped_ && this->is_finished();
  if (is_finished && (!was_finished || was_left || num_steps_ == 0)) measure_last();
  // A start that was left in its first step has nothing new.
  const bool has_news = steps_done_ > first || this->is_finished();
  const bool has_checkpoint = has_news ? save_last() : checkpoints_.has_any();
  if (steps_done_ > first) report_use();
  if (is_stopped_ || !this->is_finished()) return end_stopped(has_checkpoint);
  return end_finished(watch.seconds());
}

}  // namespace finetune::train
