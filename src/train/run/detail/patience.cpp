// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/patience.hpp"

#include <fmt/format.h>

#include <cmath>

namespace finetune::train {

Patience::Patience(std::int64_t limit, double threshold, const std::string& name,
                   const core::Json& state)
    : limit_(limit), threshold_(threshold) {
  if (!state.is_object() || !state.contains("best") || !state.contains("without_better")) return;
  checkpoint::Score best = checkpoint::Score::from_json(state["best"]);
  if (!best.is_usable() || best.name != name || !state["without_better"].is_number_unsigned())
    return;
  best_ = std::move(best);
  num_worse_ = state["without_better"].get<std::int64_t>();
}

void Patience::add(const checkpoint::Score& score) {
  const bool is_better = !std::isnan(score.value) && (!best_ || score.is_better_than(*best_));
  const bool counts = is_better && (!best_ || std::abs(score.value - best_->value) > threshold_);
  num_worse_ = counts ? 0 : num_worse_ + 1;
  if (is_better) best_ = score;
}

std::string Patience::why() const {
  const std::string times =
      fmt::format("{} measurement{} in a row", num_worse_, num_worse_ == 1 ? "" : "s");
  if (!best_) return "no number was measured in " + times;
  return fmt::format("{} has not become better than {:.6g} in {}", best_->name, best_->value,
                     times);
}

std::optional<core::Json> Patience::to_json() const {
  if (!best_) return std::nullopt;
  return core::Json{{"best", best_->to_json()}, {"without_better", num_worse_}};
}

Patience patience_of(const Input& input, const core::Json& state) {
  return {input.train.early_stopping_patience, input.train.early_stopping_threshold,
          input.checkpoint.best_by, state};
}

}  // namespace finetune::train
