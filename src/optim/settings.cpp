// SPDX-License-Identifier: Apache-2.0
#include "optim/settings.hpp"

namespace finetune::optim {

std::string name_of(Rounding rounding) {
  switch (rounding) {
    case Rounding::stochastic:
      return "stochastic";
    case Rounding::nearest:
      return "nearest";
  }
  return "";
}

void Settings::bind(deck::Table& table) {
  using deck::Restart;
  table.choice(
      {.name = "name",
       .restart = Restart::fixed,
       .sentence = "adamw: moments in the format that precision.mode names; adamw8bit: moments in "
                   "8 bits, with one scale per 256, a quarter of fp32's memory."},
      name, {"adamw", "adamw8bit"});
  table.real({.name = "lr", .restart = Restart::fixed, .sentence = "Learning rate after warm-up."},
             lr, {.min = 0});
  table.choice({.name = "schedule",
                .restart = Restart::fixed,
                .sentence = "How the learning rate falls from lr after warm-up to lr * "
                            "min_lr_ratio after the last step; wsd: it stays, and falls linearly "
                            "over the last decay_ratio of all steps."},
               schedule,
               {{"cosine", LrSchedule::cosine},
                {"linear", LrSchedule::linear},
                {"constant", LrSchedule::constant},
                {"wsd", LrSchedule::wsd}});
  table.real({.name = "min_lr_ratio",
              .restart = Restart::fixed,
              .sentence = "Learning rate after the last step, as a fraction of lr (not constant)."},
             min_lr_ratio, {.min = 0, .max = 1});
  table.real(
      {.name = "decay_ratio",
       .restart = Restart::fixed,
       .sentence = "Fraction of all steps (rounded up) over which wsd lets the learning rate "
                   "fall."},
      decay_ratio, {.max = 1, .above = 0});
  table.integer({.name = "warmup_steps",
                 .restart = Restart::fixed,
                 .sentence = "Steps over which the learning rate rises linearly to lr.",
                 .unit = "steps"},
                warmup_steps, {.min = 0});
  table.real(
      {.name = "warmup_ratio",
       .restart = Restart::fixed,
       .sentence = "The same as a fraction of all steps (rounded up); used if warmup_steps is 0."},
      warmup_ratio, {.min = 0, .max = 1});
  table.real({.name = "beta1",
              .restart = Restart::fixed,
              .sentence = "Decay of AdamW's running mean of gradients."},
             beta1, {.min = 0, .below = 1});
  table.real({.name = "beta2",
              .restart = Restart::fixed,
              .sentence = "Decay of AdamW's running mean of squared gradients."},
             beta2, {.min = 0, .below = 1});
  table.real({.name = "eps",
              .restart = Restart::fixed,
              .sentence = "Added to the square root of the second moment."},
             eps, {.above = 0});
  table.real(
      {.name = "weight_decay",
       .restart = Restart::fixed,
       .sentence =
           "Decoupled weight decay of tensors with two or more dims; norms and biases have none."},
      weight_decay, {.min = 0});
  table.real({.name = "max_grad_norm",
              .restart = Restart::fixed,
              .sentence = "Gradients are scaled down to this global norm; 0 turns clipping off."},
             max_grad_norm, {.min = 0});
  table.choice({.name = "rounding",
                .restart = Restart::free,
                .sentence = "How weights and moments that are kept in bfloat16 (precision.mode = "
                            "\"bf16-true\") are rounded after each step. stochastic: up or down at "
                            "random, so that their mean is exact and small updates are not lost; "
                            "nearest: an update below half of a weight's last digit changes "
                            "nothing."},
               rounding, {{"stochastic", Rounding::stochastic}, {"nearest", Rounding::nearest}});
  table.boolean({.name = "offload",
                 .restart = Restart::free,
                 .sentence = "If ranks compute on GPUs: keep master weights and moments in host "
                             "memory and update them there."},
                offload);
  if (warmup_steps > 0 && warmup_ratio > 0) {
    table.problem("warmup_ratio", "both warmup_steps and warmup_ratio are set",
                  "they mean the same thing", "Remove one of them.");
  }
}

}  // namespace finetune::optim
