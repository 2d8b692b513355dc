#pragma once
// SPDX-License-Identifier: Apache-2.0
// The table [optimizer].

#include <cstdint>
#include <string>

#include "deck/deck.hpp"

namespace finetune::optim {

/// How the learning rate goes on after warm-up.
enum class LrSchedule { cosine, linear, constant, wsd };
/// Of weights and moments that are kept in bf16.
enum class Rounding { stochastic, nearest };
/// As the deck writes it.
std::string name_of(Rounding rounding);

struct Settings {
  std::string name = "adamw";
  double lr = 2e-5;
  double min_lr_ratio = 0;
  LrSchedule schedule = LrSchedule::cosine;
  double decay_ratio = 0.1;  ///< of all steps, for wsd
  std::int64_t warmup_steps = 0;
  double warmup_ratio = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
  double max_grad_norm = 1;
  Rounding rounding = Rounding::stochastic;
  bool offload = false;  ///< master weights and moments in host memory

  bool is_8bit() const { return name == "adamw8bit"; }
  bool rounds_stochastically() const { return rounding == Rounding::stochastic; }

  void bind(deck::Table& table);
};

}  // namespace finetune::optim
