// SPDX-License-Identifier: Apache-2.0
#include "train/run/lr_range.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <system_error>

#include "comm/activity.hpp"
#include "comm/agree.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "data/steps/ahead.hpp"
#include "metrics/progress.hpp"
#include "metrics/records.hpp"
#include "plot/line_plot.hpp"
#include "train/corpus/corpus.hpp"
#include "train/run/detail/first_weights.hpp"
#include "train/run/detail/lr_curve.hpp"
#include "train/run/detail/output_folder.hpp"
#include "train/run/detail/state.hpp"
#include "train/run/detail/tally.hpp"
#include "train/run/stop.hpp"
#include "train/run/stop_vote.hpp"
#include "train/step/step.hpp"

namespace finetune::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* rows_name = "lr_range.jsonl";
constexpr const char* picture_name = "lr_range.svg";

std::string to_json(const LrCurve::Row& row) {
  return fmt::format(
      R"({{"step": {}, "lr": {}, "loss": {}, "smoothed_loss": {}, "grad_norm": {}}})", row.step,
      core::round_trip(row.lr), core::round_trip(row.loss), core::round_trip(row.smoothed),
      core::round_trip(row.grad_norm));
}

std::string to_json(const LrAdvice& advice, const std::string& ended) {
  const auto number = [](const std::optional<double>& value) {
    return value ? core::round_trip(*value) : std::string("null");
  };
  return core::Json({{"advice", core::Json::parse(number(advice.lr))},
                     {"steepest_lr", core::Json::parse(number(advice.steepest))},
                     {"lowest_lr", core::Json::parse(number(advice.lowest))},
                     {"rule", advice.rule},
                     {"ended", ended}})
      .dump();
}

std::string picture_of(const LrCurve& curve) {
  plot::Points losses;
  for (std::size_t i = 0; i < curve.rows().size(); ++i)
    losses.emplace_back(curve.points()[i].first, curve.rows()[i].loss);
  return plot::to_svg_file(
      plot::LinePlot{.id = "lr",
                     .title = "loss over the learning rate",
                     .x_label = "log10 of the learning rate",
                     .curves = {{.name = "", .points = losses, .style = plot::Curve::Style::faint},
                                {.name = "smoothed loss", .points = curve.points()}}});
}

std::string in_words(const LrAdvice& advice) {
  if (!advice.lr) return "no advice: " + advice.rule;
  return fmt::format(
      "optimizer.lr = {:.2g}: {}\nthe smoothed loss fell fastest at {:.2g} and was least at {:.2g}",
      *advice.lr, advice.rule, *advice.steepest, *advice.lowest);
}

/// The steps of a test, one after the other.
class Sweep {
 public:
  Sweep(const Input& input, const plan::Plan& plan, const world::World& world,
        const shard::Groups& groups, const Registry& registry, const LrRange& range)
      : input_(input),
        world_(world),
        output_(input.train.output, input.checkpoint, core::Json(), world),
        corpus_(load_corpus(data_input(input), registry,
                            cache_options(input.data, input.train.output), plan.batch, world,
                            leave_when(world.world, stop_is_asked,
                                       [since = core::Stopwatch()] { return since.seconds(); }))),
        state_(state_input(input), plan, world, groups),
        ahead_(corpus_.training, range.num_steps),
        tally_(yardstick_of(input, plan, world), {}),
        progress_(world.world.is_root() ? metrics::Progress::style_of_stdout()
                                        : metrics::Progress::Style::silent,
                  range.num_steps, input.metrics.log_steps),
        curve_(range) {
    const FirstWeights weights = first_weights(input);
    load_first_weights(weights, world, state_.shards());
    require_base_of_adapter(weights, plan.numbers.compute, world, state_.shards());
    comm::agree_all(world.world, [&] {
      if (world.world.is_root()) rows_.emplace(output_.root() / rows_name, 0);
    });
  }

  int run() {
    for (std::int64_t step = 0; step < curve_.range().num_steps && ended_.empty(); ++step) {
      if (must_stop()) return tell(core::exit_resubmit_older);
      take(step);
    }
    return tell(core::exit_done);
  }

 private:
  /// A signal to one rank, or the time of this start: all ranks see it.
  bool must_stop() {
    const bool is_late = input_.train.max_seconds > 0 && process_age_s() > input_.train.max_seconds;
    const std::int64_t asked = stop_is_asked() ? 2 : is_late ? 1 : 0;
    const std::int64_t seen = world_.world.all_reduce(asked, comm::Reduce::max);
    if (seen > 0) ended_ = seen == 2 ? signal_reason : "train.max_seconds are over";
    return seen > 0;
  }

  void take(std::int64_t step) {
    if (comm::Activity* activity = world_.world.activity()) activity->set_step(step + 1);
    const core::Stopwatch watch;
    const data::StepData data = ahead_.take(step);
    const auto result = result_of(data, step);
    if (!result) return;
    metrics::StepRecord record = tally_.add(step + 1, data, *result, watch.seconds());
    record.lr = curve_.range().lr(step);
    progress_.step(record);
    if (result->is_skipped) return;  // the scale of fp16 was too large: it is halved
    const LrCurve::Row& row = curve_.add(step, result->loss, result->grad_norm);
    if (rows_) rows_->append(to_json(row));
    if (curve_.has_diverged())
      ended_ = fmt::format(
          "diverged at lr = {:.3g}: the smoothed loss is more than {:g} times its "
          "least",
          row.lr, curve_.range().stop_factor);
  }

  /// None, and ended_, where loss or gradient are not finite any more: what all ranks see together.
  std::optional<StepResult> result_of(const data::StepData& data, std::int64_t step) {
    try {
      return run_step(state_.engine(), world_.loss, data, state_.optimizer(),
                      {.step = step,
                       .lr = curve_.range().lr(step),
                       .max_grad_norm = input_.optimizer.max_grad_norm,
                       .loss_scale = state_.loss_scale(),
                       .updates_in_backward = input_.optimizer.in_backward});
    } catch (const comm::AgreedError& error) {
      if (error.kind() != core::ErrorKind::numbers) throw;
      ended_ = fmt::format("diverged at lr = {:.3g}: {}", curve_.range().lr(step), error.what());
      return std::nullopt;
    }
  }

  int tell(int code) {
    progress_.pause();
    if (ended_.empty()) ended_ = "all steps are done";
    const LrAdvice advice = curve_.advice();
    comm::agree_all(world_.world, [&] {
      if (!rows_) return;
      rows_->append(to_json(advice, ended_));
      rows_->sync();
      core::write_text_atomically(output_.root() / picture_name, picture_of(curve_));
    });
    log::info(fmt::format("{} after {} steps", ended_, curve_.rows().size()));
    log::info("\n" + curve_.table());
    log::info(in_words(advice));
    log::info(fmt::format("wrote {} and {}", (output_.root() / rows_name).string(), picture_name));
    return code;
  }

  const Input& input_;
  const world::World& world_;
  OutputFolder output_;
  Corpus corpus_;
  State state_;
  data::StepsAhead ahead_;
  Tally tally_;
  metrics::Progress progress_;
  LrCurve curve_;
  std::optional<metrics::RecordFile> rows_;  ///< of the root
  std::string ended_;                        ///< why; empty: it goes on
};

}  // namespace

void redirect_output(const fs::path& output, Input& input) {
  const fs::path run = (fs::path(input.train.output) / "").lexically_normal().parent_path();
  const fs::path own = output.empty() ? fs::path(run.string() + "-lr-range") : output;
  std::error_code error;
  if ((own / "").lexically_normal().parent_path() == run || fs::equivalent(own, run, error))
    core::fail(core::ErrorKind::command_line,
               {"finetune lr-range", fmt::format("--out {} is the folder of the run", own.string()),
                "the test leaves that alone", "Name another one."});
  // Where the run keeps its tokens.
  input.data.cache_dir = cache_options(input.data, input.train.output).folder.string();
  input.train.output = own.string();
  // Nothing is saved, so no memory is kept for it.
  input.checkpoint.save_steps = 0;
  input.checkpoint.save_epochs = input.checkpoint.save_minutes = 0;
  input.checkpoint.local_dir.clear();
}

int find_lr(const Input& input, const plan::Plan& plan, const world::World& world,
            const shard::Groups& groups, const Registry& registry, const LrRange& range) {
  return Sweep(input, plan, world, groups, registry, range).run();
}

}  // namespace finetune::train
