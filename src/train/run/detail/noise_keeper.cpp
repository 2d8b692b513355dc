// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/noise_keeper.hpp"

namespace finetune::train {
namespace {

double number_of(const core::Json& state, const char* key) {
  if (!state.is_object()) return 0;
  const auto entry = state.find(key);
  return entry != state.end() && entry->is_number() ? entry->get<double>() : 0;
}

}  // namespace

NoiseKeeper::NoiseKeeper(const core::Json& state)
    : trace_(number_of(state, "trace")),
      squares_(number_of(state, "squares")),
      weight_(number_of(state, "weight")) {}

metrics::NoiseReport NoiseKeeper::add(const NoiseEstimate& step, std::int64_t num_sequences) {
  trace_ = smoothing * trace_ + (1 - smoothing) * step.trace;
  squares_ = smoothing * squares_ + (1 - smoothing) * step.squares;
  weight_ = smoothing * weight_ + (1 - smoothing);
  metrics::NoiseReport report{.trace = step.trace, .squares = step.squares};
  if (trace_ <= 0 || squares_ <= 0) return report;
  report.scale_tokens = trace_ / squares_;
  report.scale = *report.scale_tokens * static_cast<double>(num_sequences) / step.weight;
  return report;
}

std::optional<core::Json> NoiseKeeper::to_json() const {
  if (weight_ == 0) return std::nullopt;
  return core::Json({{"trace", trace_}, {"squares", squares_}, {"weight", weight_}});
}

}  // namespace finetune::train
