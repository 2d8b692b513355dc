// SPDX-License-Identifier: Apache-2.0
#include "optim/loss_scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace finetune::optim {
namespace {

bool is_power_of_two(double value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5;
}

std::int64_t count_of(const core::Json& state, const char* key) {
  const auto entry = state.find(key);
  const bool is_count = entry != state.end() && entry->is_number_integer();
  return is_count ? entry->get<std::int64_t>() : -1;
}

}  // namespace

LossScale::LossScale(const core::Json& state, const std::string& where) {
  const auto refuse = [&](const char* key) {
    core::fail(
        core::ErrorKind::input,
        {where, fmt::format("loss scale without a usable \"{}\"", key),
         "the checkpoint is damaged or from another program", "Resume from an older checkpoint."});
  };
  const auto entry = state.find("scale");
  if (entry == state.end() || !entry->is_number()) refuse("scale");
  scale_ = entry->get<double>();
  good_steps_ = count_of(state, "good_steps");
  skipped_ = count_of(state, "skipped");
  skipped_in_all_ = count_of(state, "skipped_in_all");
  if (!(scale_ >= 1 && scale_ <= max_scale) || !is_power_of_two(scale_)) refuse("scale");
  if (good_steps_ < 0 || good_steps_ >= growth_interval) refuse("good_steps");
  if (skipped_ < 0) refuse("skipped");
  if (skipped_in_all_ < skipped_) refuse("skipped_in_all");
}

core::Json LossScale::to_json() const {
  return {{"scale", scale_},
          {"good_steps", good_steps_},
          {"skipped", skipped_},
          {"skipped_in_all", skipped_in_all_}};
}

void LossScale::step_taken() {
  skipped_ = 0;
  if (++good_steps_ < growth_interval) return;
  good_steps_ = 0;
  scale_ = std::min(2 * scale_, max_scale);
}

void LossScale::step_skipped() {
  good_steps_ = 0;
  ++skipped_;
  ++skipped_in_all_;
  if (scale_ == 1 && skipped_ >= max_skipped) {
    core::fail(core::ErrorKind::numbers,
               {"", fmt::format("gradients overflowed {} steps in a row", skipped_),
                "even unscaled they are infinite or NaN in fp16",
                "Use precision.mode = \"bf16-mixed\", or a smaller optimizer.lr."});
  }
  scale_ = std::max(scale_ / 2, 1.0);
}

}  // namespace finetune::optim
