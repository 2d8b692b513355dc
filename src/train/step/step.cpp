// SPDX-License-Identifier: Apache-2.0
#include "train/step/step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "comm/agree.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "optim/clip.hpp"
#include "optim/pass_norms.hpp"
#include "optim/trained_rows.hpp"
#include "shard/compute_stream.hpp"
#include "shard/wire.hpp"
#include "trace/recorder.hpp"
#include "train/step/loss_total.hpp"

namespace finetune::train {
namespace {

/// Without the sign that a NaN may have.
std::string readable(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

[[noreturn]] void fail(std::int64_t step, const std::string& problem, const std::string& why,
                       const std::string& remedy) {
  throw comm::AgreedError(
      core::ErrorKind::numbers,
      core::to_string({fmt::format("step {}", step + 1), problem, why, remedy}));
}

constexpr const char* gentler =
    "Lower optimizer.lr or raise optimizer.warmup_steps in a new run (another train.output), and "
    "look at the data of this step";

/// `problem` is the same on every rank, so all throw together.
[[noreturn]] void refuse_out_of_range(const std::string& problem, std::int64_t num_terms,
                                      const StepResult& result, std::int64_t step) {
  // Fixed point meets what is not finite first, and another way to add would not help then.
  bool is_finite = std::isfinite(result.loss);
  for (const char* value : {" is nan ", " is -nan ", " is inf ", " is -inf "})
    is_finite = is_finite && problem.find(value) == std::string::npos;
  fail(step, problem,
       fmt::format("with {} terms per step, one per sample and rank that shares it, 64-bit fixed "
                   "point holds gradients below {:g}",
                   num_terms, shard::largest_term(num_terms)),
       std::string(gentler) +
           (is_finite ? "; with train.determinism = \"run\" larger gradients are summed." : "."));
}

/// Both numbers are the same on every rank, so all throw together.
void require_finite(const StepResult& result, std::int64_t step, bool is_updated) {
  if (std::isfinite(result.loss) && std::isfinite(result.grad_norm)) return;
  if (step == 0)
    fail(step,
         fmt::format("loss is {} and the gradient's norm {}", readable(result.loss),
                     readable(result.grad_norm)),
         "no weight has been updated yet: the model's own weights give that, or numbers beyond "
         "precision.mode",
         "Look at the model by finetune verify MODEL; where it is good, set precision.mode = "
         "\"bf16-mixed\" or \"32-true\".");
  fail(step,
       fmt::format("loss is {} and the gradient's norm {}", readable(result.loss),
                   readable(result.grad_norm)),
       fmt::format("training cannot continue from numbers that are not finite; {}",
                   is_updated ? "weights were updated in backward, so the last checkpoint counts"
                              : "the weights are still those of the step before"),
       fmt::format("{}.", gentler));
}

/// What one rank has found, told by all. Collective on `ranks`.
std::optional<std::string> agreed(const std::optional<std::string>& found,
                                  const comm::Communicator& ranks) {
  const std::int64_t last =
      ranks.all_reduce(found ? std::int64_t{ranks.rank()} : -1, comm::Reduce::max);
  if (last < 0) return std::nullopt;
  return ranks.broadcast_text(found.value_or(""), static_cast<int>(last));
}

/// A gradient that fixed point cannot hold. Collective on `loss` and tp.
std::optional<std::string> agreed_out_of_range(shard::ModelShards& shards,
                                               const comm::Communicator& loss) {
  if (!shards.options().numbers.is_fixed_point()) return std::nullopt;
  const auto found = agreed(shards.out_of_range(), loss);
  const auto& tp = shards.groups().tp;
  return tp ? agreed(found, tp->communicator()) : found;
}

/// What ranks have on its way to each other arrives, and nobody looks at it: the weights are those
/// of the step before, and the next step forgets the sums. Replicas' sums have not been begun, as
/// that is for the last pass.
StepResult leave(const Engine& engine, std::int64_t num_passes) {
  end_passes(engine);
  shard::wait_for_compute(engine.shards.options().device);
  return {.left_after = num_passes};
}

/// `own`: weights of this rank's passes, of which `squares` are scaled. Collective on `ranks`.
std::optional<NoiseEstimate> noise_of(const comm::Communicator& ranks,
                                      const std::vector<double>& squares,
                                      std::vector<PassGradient> own, double grad_norm,
                                      double loss_scale) {
  for (std::size_t i = 0; i < own.size(); ++i)
    own[i].squares = squares[i] / (loss_scale * loss_scale);
  return estimate_noise(all_passes(ranks, own), grad_norm * grad_norm);
}

/// What this rank has waited in each group since it was last asked.
std::vector<std::pair<std::string, double>> take_exposed_s(const shard::ModelShards& shards) {
  std::vector<std::pair<std::string, double>> seconds;
  for (const auto& each : shards.groups().all())
    seconds.emplace_back(each.name, each.group->take_exposed_s());
  return seconds;
}

/// Updates units while backward goes on, each from its own gradient, which is let go then.
class InBackward {
 public:
  InBackward(shard::ModelShards& shards, optim::Optimizer& optimizer, const StepSettings& settings)
      : shards_(shards),
        optimizer_(optimizer),
        settings_(settings),
        norm_(shards, optim::GradientNorm::Units::one_by_one) {
    core::check(settings.max_grad_norm == 0 && settings.loss_scale == nullptr &&
                    !settings.wants_layer_norms && !settings.wants_noise,
                "what is updated in backward needs no gradient of others");
  }

  void update(int unit) {
    shards_.finish_gradient(unit);
    optim::forget_other_rows(shards_, unit);
    norm_.add(unit);
    const core::Stopwatch watch;
    optimizer_.step_unit(shards_, unit, settings_.step, settings_.lr);
    seconds_ += watch.seconds();
    shards_.release_gradient(unit);
  }

  optim::GradientNorm& norm() { return norm_; }
  /// On a GPU the host's alone, which does not wait for it.
  double seconds() const { return seconds_; }

 private:
  shard::ModelShards& shards_;
  optim::Optimizer& optimizer_;
  const StepSettings& settings_;
  optim::GradientNorm norm_;
  double seconds_ = 0;
};

}  // namespace

StepResult run_step(const Engine& engine, const comm::Communicator& loss_ranks,
                    const data::StepData& data, optim::Optimizer& optimizer,
                    const StepSettings& settings) {
  shard::ModelShards& shards = engine.shards;
  const double per_token = 1.0 / engine.objective.denominator(data);
  const double loss_scale = settings.loss_scale != nullptr ? settings.loss_scale->scale() : 1.0;
  const auto num_passes = std::ssize(data.micro_steps);
  take_exposed_s(shards);
  // As many terms as samples: at least the micro-batches, and the same on any number of ranks; of
  // each micro-batch one from every rank that has a part of it.
  const auto& cp = shards.groups().cp;
  const std::int64_t num_terms = data.num_samples * (cp ? cp->size() : 1);
  shards.reset_gradients(num_terms);
  LossTotal total(shards.options().numbers.is_fixed_point(), num_terms);
  LossTotal balance = total;
  const std::int64_t num_routers = engine.architecture.num_layers_with_experts();
  const double coefficient = num_routers > 0 ? engine.architecture.experts.balance : 0;
  // A sample's last token is only a target, and has no position of its own.
  const std::int64_t num_positions =
      std::max<std::int64_t>(1, data.num_positions - data.num_padding);
  const double per_router =
      1.0 / static_cast<double>(num_positions * std::max<std::int64_t>(num_routers, 1));
  const Scale scale(per_token * loss_scale, coefficient * per_router * loss_scale);
  std::vector<PendingPass> passes;
  std::optional<optim::PassSquares> squares;
  if (settings.wants_noise) squares.emplace(shards, num_passes);
  std::optional<InBackward> in_backward;
  UpdateUnit update;
  if (settings.updates_in_backward) {
    core::check(num_passes == 1, "a step that is updated in backward is one pass");
    in_backward.emplace(shards, optimizer, settings);
    update = [&](int unit) { in_backward->update(unit); };
  }
  if (settings.vote != nullptr) settings.vote->begin_step(num_passes);
  for (std::int64_t i = 0; i < num_passes; ++i) {
    if (settings.vote != nullptr && i > 0 && settings.vote->after_pass()) return leave(engine, i);
    core::fault::hit("step.fwd");
    if (squares) squares->begin(i);
    const Pass pass = i + 1 == num_passes ? Pass::last : Pass::more_follow;
    passes.push_back(start_forward_backward(engine, data.micro_steps[static_cast<std::size_t>(i)],
                                            scale, pass, update));
  }
  core::fault::hit("step.allreduce");
  end_passes(engine);
  std::optional<optim::GradientNorm> of_all;
  if (in_backward) {
    in_backward->norm().start();
  } else {
    optim::forget_other_rows(shards);
    of_all.emplace(shards);
  }
  optim::GradientNorm& norm = in_backward ? in_backward->norm() : *of_all;
  std::optional<optim::LayerNormSums> layer_norms;
  if (settings.wants_layer_norms) layer_norms.emplace(shards);
  // The only time in a step that the host waits for a GPU.
  shard::wait_for_compute(shards.options().device);
  std::vector<PassGradient> gradients;
  for (PendingPass& each : passes) {
    const PassResult sums = each.wait();
    total.add(sums.loss);
    balance.add(sums.balance);
    gradients.push_back({.weight = sums.weight});
  }

  StepResult result;
  const core::Stopwatch waiting;
  trace::Span waiting_span(trace::main_row, "wait", "loss");
  const auto out_of_range = agreed_out_of_range(shards, loss_ranks);
  result.loss = total.all_reduce(loss_ranks) * per_token;
  if (coefficient > 0) result.balance_loss = balance.all_reduce(loss_ranks) * per_router;
  // Whoever was faster has waited for the others here.
  result.exposed_s = waiting.seconds();
  waiting_span.end();
  result.exposed_by_axis = take_exposed_s(shards);
  for (const auto& [axis, seconds] : result.exposed_by_axis)
    result.exposed_s += seconds;
  result.grad_norm = norm.wait() / loss_scale;
  if (layer_norms) result.layer_norms = layer_norms->wait();
  for (optim::LayerNorm& each : result.layer_norms)
    each.gradient /= loss_scale;
  if (squares)
    result.noise = noise_of(loss_ranks, squares->wait(), gradients, result.grad_norm, loss_scale);

  if (settings.loss_scale != nullptr) {
    result.is_skipped = out_of_range || !std::isfinite(result.grad_norm);
    if (result.is_skipped) {
      comm::agree_all(loss_ranks, [&] { settings.loss_scale->step_skipped(); });
      return result;
    }
  }
  if (out_of_range) refuse_out_of_range(*out_of_range, num_terms, result, settings.step);
  require_finite(result, settings.step, settings.updates_in_backward);
  core::fault::hit("step.optim");
  if (in_backward) {
    result.optimizer_s = in_backward->seconds();
    if (settings.more_follow)
      for (const int unit : first_units(engine))
        shards.gather(unit);
    return result;
  }
  const std::int64_t skipped =
      settings.loss_scale != nullptr ? settings.loss_scale->skipped_in_all() : 0;
  trace::Span span(trace::main_row, "optimizer");
  optimizer.step(shards, settings.step - skipped, settings.lr,
                 optim::clip_factor(result.grad_norm, settings.max_grad_norm) / loss_scale,
                 settings.more_follow ? first_units(engine) : std::vector<int>());
  span.end();
  if (settings.loss_scale != nullptr) settings.loss_scale->step_taken();
  result.optimizer_s = optimizer.step_s();
  return result;
}

}  // namespace finetune::train
