// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/loss_guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::train {
namespace {

/// A mean over many tokens strays little, and not for two steps. The few labels of a batch may all
/// be wrong, and be sure.
constexpr double of_tokens = 2, of_labels = 10;
/// Of a guess: no model begins above it, so that a start which goes on from a run that has exploded
/// does not take that for usual.
constexpr double most_at_first = 10;

}  // namespace

LossGuard::LossGuard(const model::Outputs& outputs, std::int64_t vocab_size) {
  is_of_tokens_ = outputs.kind == model::HeadKind::next_token;
  if (!is_of_tokens_ && outputs.kind != model::HeadKind::one_label) return;
  num_choices_ = is_of_tokens_ ? vocab_size : outputs.num;
  factor_ = is_of_tokens_ ? of_tokens : of_labels;
  guess_ = num_choices_ > 1 ? std::log(static_cast<double>(num_choices_)) : 0;
}

std::optional<std::string> LossGuard::add(std::int64_t step, double loss) {
  const bool is_first = !first_.has_value();
  if (is_first) first_ = loss;
  if (guess_ == 0 || has_told_ || !std::isfinite(loss)) return std::nullopt;
  const double usual = std::max(guess_, std::min(*first_, most_at_first * guess_));
  const bool was_above = std::exchange(is_above_, loss > factor_ * usual);
  // A step may have few tokens, which are one sample's.
  if (loss <= of_labels * usual && !(is_above_ && was_above)) return std::nullopt;
  has_told_ = true;
  const std::string guess =
      fmt::format("a guess among {} {} has {:.4g}", core::with_commas(num_choices_),
                  is_of_tokens_ ? "tokens" : "labels", guess_);
  if (is_first)
    return core::to_string({fmt::format("step {}", step), fmt::format("the loss is {:.4g}", loss),
                            guess + ", and so does a model that knows nothing",
                            "Look at the model, its tokenizer and the data; a run that has "
                            "exploded goes on from an older checkpoint (checkpoint.resume)."});
  return core::to_string(
      {fmt::format("step {}", step), fmt::format("the loss has exploded to {:.4g}", loss),
       fmt::format("{}, and the first step of this start had {:.4g}: the model is worse than one "
                   "that knows nothing",
                   guess, *first_),
       "Lower optimizer.lr or raise optimizer.warmup_steps in a new run (another train.output)."});
}

}  // namespace finetune::train
