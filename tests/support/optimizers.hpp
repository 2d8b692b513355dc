#pragma once
// SPDX-License-Identifier: Apache-2.0
// Optimizers as plans know them, without the modules that have them (tests/modules/optimizers
// compares).

#include "plan/plan.hpp"

namespace finetune::tests {

inline plan::OptimizerFootprint adamw() {
  return {.name = "adamw",
          .label = "AdamW moments",
          .format = "",
          .states = {{.kind = "exp_avg"}, {.kind = "exp_avg_sq", .is_signed = false}},
          .passes = {.composed_bytes = 48, .is_one_operation_in_fp32 = true}};
}

inline plan::OptimizerFootprint adamw8bit() {
  using core::DType;
  const auto scale = [](const char* kind) {
    return plan::OptimizerState{
        .kind = kind, .dtype = DType::f32, .block = 256, .is_signed = false};
  };
  return {.name = "adamw8bit",
          .label = "AdamW moments",
          .format = "8-bit",
          .states = {{.kind = "exp_avg", .dtype = DType::u8},
                     {.kind = "exp_avg_sq", .dtype = DType::u8, .is_signed = false},
                     scale("exp_avg_scale"),
                     scale("exp_avg_sq_scale")},
          .passes = {.composed_bytes = 48}};
}

/// What a deck asks for that names no optimizer.
inline plan::PlanInput adamw_request() {
  plan::PlanInput request;
  request.optimizer = adamw();
  request.lighter_optimizer = adamw8bit();
  return request;
}

}  // namespace finetune::tests
