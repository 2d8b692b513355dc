// SPDX-License-Identifier: Apache-2.0
// What a run measures of its model, and what follows from it.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <span>

#include "core/clock.hpp"
#include "core/fault.hpp"
#include "core/log.hpp"
#include "metrics/progress.hpp"
#include "trace/recorder.hpp"
#include "train/infer/answers.hpp"
#include "train/infer/evaluate.hpp"
#include "train/run/run.hpp"
#include "train/run/stop_vote.hpp"

namespace finetune::train {

std::int64_t Run::num_updates() const {
  const auto* scale = state_.loss_scale();
  return steps_done_ - (scale != nullptr ? scale->skipped_in_all() : 0);
}

template <typename F>
auto Run::with_evaluated_weights(const F& f) {
  if (!state_.optimizer().replaces_weights() || num_updates() == 0) return f();
  state_.optimizer().publish_other_weights(state_.shards());
  auto result = f();
  state_.shards().publish_all();
  return result;
}

bool Run::validate(const std::string& when) {
  if (!corpus_.validation) return true;
  const trace::Span span(trace::main_row, "validation");
  const core::Stopwatch watch;
  reporter_.pause();
  StopVote vote(
      world_.world, StopVote::Passes::in_step,
      [this] { return stop_is_asked() || time_limit_.is_due(process_age_s()); },
      [&] { return watch.seconds(); });
  vote.begin_step(INT64_MAX);
  const auto measured = [&] {
    return evaluate(state_.engine(), world_.loss, *corpus_.validation, [&] {
      core::fault::hit("validate.pass");
      return vote.after_pass();
    });
  };
  const std::optional<Evaluation> result = with_evaluated_weights(measured);
  // The mean of the weights, if there is one: none before the first update, which it begins with.
  const bool has_ema = result && state_.optimizer().keeps_ema() && num_updates() > 0;
  std::optional<Evaluation> ema;
  if (has_ema) {
    state_.optimizer().publish_other_weights(state_.shards());
    ema = measured();
    state_.shards().publish_all();
  }
  evaluated_s_ += watch.seconds();
  if (!result || (has_ema && !ema)) {
    is_stopped_ = true;
    report_stop(stops_are_asked()[0],
                "the validation is interrupted, and the next start repeats it, ");
    return false;
  }
  validation_loss_ = result->loss;
  if (corpus_.has_answers) exact_match_ = result->exact_match;
  reporter_.validated(when, steps_done_, *result, corpus_.has_answers,
                      ema ? std::optional(ema->loss) : std::nullopt);
  page_.write_soon();
  return true;
}

std::array<bool, 2> Run::stops_are_asked() const {
  std::int64_t seen[] = {stop_is_asked(), time_limit_.is_due(process_age_s())};
  world_.world.all_reduce(std::span<std::int64_t>(seen), comm::Reduce::max);
  return {seen[0] != 0, seen[1] != 0};
}

bool Run::evaluate_tasks(const std::string& when) {
  if (!tasks_.has_tasks()) return true;
  const trace::Span span(trace::main_row, "evaluation");
  const core::Stopwatch watch;
  reporter_.pause();
  log::info(fmt::format("{}: the tasks of [evaluate] are asked", when));
  std::array<bool, 2> asked = {};
  task_result_ = with_evaluated_weights([&] {
    return tasks_.ask(state_.engine(), steps_done_, [&] {
      core::fault::hit("evaluate.pass");
      asked = stops_are_asked();
      return asked[0] || asked[1];
    });
  });
  evaluated_s_ += watch.seconds();
  if (!task_result_) {
    is_stopped_ = true;
    report_stop(asked[0], "the evaluation is left in its midst and goes on with the next start, ");
    return false;
  }
  reporter_.evaluated(
      fmt::format("{}: answers after {:.1f} s\n{}", when, watch.seconds(), task_result_->table),
      record_of(steps_done_, *task_result_));
  page_.write_soon();
  return true;
}

void Run::note_score() {
  // Counted already: what a restart goes on from was measured before it was saved.
  if (score_) return;
  const std::string& name = input_.checkpoint.best_by;
  std::optional<checkpoint::Score> score;
  if (name == checkpoint::validation_loss_name && validation_loss_) {
    score = {.name = name, .value = *validation_loss_, .less_is_better = true};
  } else if (name == checkpoint::exact_match_name && exact_match_) {
    score = {.name = name, .value = *exact_match_, .less_is_better = false};
  } else if (task_result_) {
    for (const tasks::Figure& one : task_result_->figures)
      if (one.task + "/" + one.metric == name)
        score = {.name = name, .value = one.estimate.mean, .less_is_better = one.less_is_better};
  }
  if (!score) return;
  score_ = score;
  patience_.add(*score);
}

bool Run::print_answers() {
  if (input_.metrics.answers == 0 || !corpus_.questions) return true;
  reporter_.pause();
  std::array<bool, 2> asked = {};
  const auto answers = with_evaluated_weights([&] {
    return train::print_answers(state_.engine(), corpus_.tokenizer, *corpus_.questions,
                                input_.metrics, [&] {
                                  asked = stops_are_asked();
                                  return asked[0] || asked[1];
                                });
  });
  reporter_.answered({.step = steps_done_, .answers = answers});
  if (!asked[0] && !asked[1]) return true;
  is_stopped_ = true;
  report_stop(asked[0], "not all questions are answered, ");
  return false;
}

bool Run::is_validation_due() const {
  const std::int64_t every = input_.train.validate_steps;
  return (every > 0 && steps_done_ % every == 0) || ends_interval(input_.train.validate_epochs);
}

bool Run::is_evaluation_due() const {
  const std::int64_t every = input_.evaluate.steps;
  return tasks_.has_tasks() &&
         ((every > 0 && steps_done_ % every == 0) || ends_interval(input_.evaluate.epochs));
}

bool Run::ends_interval(double epochs) const {
  return corpus_.training.sampler().ends_interval(epochs, steps_done_);
}

bool Run::misses_validation() const {
  if (steps_done_ == 0 || !corpus_.validation || validation_loss_) return false;
  if (!is_finished()) return is_validation_due();
  // The last checkpoint stays as it is: only the start that validated since knows.
  return world_.world.all_reduce(std::int64_t{starts_.is_last_unfinished()}, comm::Reduce::max) !=
         0;
}

void Run::measure_first(bool misses_validation, bool asks) {
  if (steps_done_ == 0) {
    if (validate("before training") && print_answers() && num_steps_ > 0)
      evaluate_tasks("before training");
    return;
  }
  const std::string when = fmt::format("step {}", steps_done_);
  if (misses_validation && !validate(when)) return;
  if (asks && !evaluate_tasks(when)) return;
  if (misses_validation || asks) note_score();
}

/// Of the model as training leaves it, what was not measured right now.
void Run::measure_last() {
  const bool is_early = steps_done_ < num_steps_;
  if ((!is_early || !validation_loss_) && !validate("after training")) return;
  if (!print_answers()) return;
  if (!task_result_ && !evaluate_tasks("after training")) return;
  if (!is_early) note_score();
}

}  // namespace finetune::train
