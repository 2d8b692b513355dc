#pragma once
// SPDX-License-Identifier: Apache-2.0
// The table [optimizer].

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "deck/deck.hpp"
#include "optim/kind.hpp"

namespace finetune::optim {

/// How the learning rate goes on after warm-up.
enum class LrSchedule {
  cosine,
  cosine_with_restarts,
  linear,
  polynomial,
  inverse_sqrt,
  constant,
  wsd
};
/// Of weights and moments that are kept in bf16.
enum class Rounding { stochastic, nearest };
/// As the deck writes it.
std::string name_of(Rounding rounding);

struct OptimizerSettings {
  std::string name = "adamw";
  const Kind* kind = nullptr;  ///< the one of that name, once the deck is read
  double lr = 2e-5;
  double min_lr_ratio = 0;
  LrSchedule schedule = LrSchedule::cosine;
  double decay_ratio = 0.1;          ///< of all steps, for wsd
  std::int64_t num_cycles = 1;       ///< for cosine_with_restarts
  double power = 1;                  ///< for polynomial
  std::int64_t timescale_steps = 0;  ///< for inverse_sqrt; 0: those of warm-up, or 10,000
  std::int64_t warmup_steps = 0;
  double warmup_ratio = 0;
  double weight_decay = 0;
  std::vector<std::string> lr_pattern = {};            ///< "PATTERN=FACTOR"
  std::vector<std::string> weight_decay_exclude = {};  ///< expressions for names of tensors
  double max_grad_norm = 1;
  Rounding rounding = Rounding::stochastic;
  bool offload = false;      ///< master weights and states in host memory
  bool in_backward = false;  ///< a unit is updated as soon as its gradient is complete

  /// By name, those that optimizers read (Kind::keys); what is missing has its default.
  std::map<std::string, double, std::less<>> numbers = {};

  bool rounds_stochastically() const { return rounding == Rounding::stochastic; }
  double number(const OptimizerKey& key) const;

  /// `kinds` outlives the settings.
  void bind(deck::Table& table, const std::vector<Kind>& kinds);
};

}  // namespace finetune::optim
