// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/settings.hpp"

#include <fmt/format.h>

#include <cmath>

#include "adapters/lora/sizes.hpp"
#include "core/text.hpp"

namespace finetune::adapters::lora {
namespace {

/// Entries "PATTERN=VALUE" with values that are fit.
void require_patterns(deck::Table& table, const char* key, const std::vector<std::string>& entries,
                      bool are_ranks) {
  constexpr double largest_rank = 65536;
  for (const std::string& entry : entries) {
    const auto parsed = PatternValue::parse(entry);
    const bool is_fit =
        parsed && (are_ranks ? parsed->value >= 1 && parsed->value <= largest_rank &&
                                   parsed->value == std::floor(parsed->value)
                             : parsed->value > 0);
    if (is_fit) continue;
    table.problem(key, fmt::format("adapter.{} holds \"{}\"", key, core::one_line(entry)),
                  are_ranks ? "it is a module's name, '=' and a rank from 1 to 65536"
                            : "it is a module's name, '=' and an alpha above 0",
                  fmt::format("Write, for example, {} = [\"q_proj=16\"].", key));
  }
}

}  // namespace

void bind(model::AdapterSettings& adapter, deck::Table& table) {
  using deck::Restart;
  Settings& settings = adapter.of<Settings>();
  table.integer(
      {.name = "lora_r", .restart = Restart::fixed, .sentence = "Rank of the low-rank matrices."},
      settings.r, {.min = 1, .max = 65536});
  table.real({.name = "lora_alpha",
              .restart = Restart::fixed,
              .sentence = "The low-rank product is multiplied by lora_alpha / lora_r."},
             settings.alpha, {.above = 0});
  table.real(
      {.name = "lora_dropout",
       .restart = Restart::fixed,
       .sentence = "Fraction of the low-rank product's inputs that is set to zero in training."},
      settings.dropout, {.min = 0, .below = 1});
  table.texts({.name = "rank_pattern",
               .restart = Restart::fixed,
               .sentence = "Other ranks for some modules: \"PATTERN=RANK\", such as "
                           "\"layers.0.mlp.up_proj=4\". The pattern is the end of a module's name "
                           "or a regular expression for it, as in PEFT; the first that matches "
                           "counts."},
              settings.rank_pattern);
  table.texts({.name = "alpha_pattern",
               .restart = Restart::fixed,
               .sentence = "Other lora_alpha for some modules, written in the same way."},
              settings.alpha_pattern);
  table.boolean({.name = "use_rslora",
                 .restart = Restart::fixed,
                 .sentence = "Divide lora_alpha by the square root of lora_r instead of lora_r."},
                settings.use_rslora);
  table.boolean(
      {.name = "use_dora",
       .restart = Restart::fixed,
       .sentence =
           "Train the norm of each row of an adapted matrix separately from its direction (DoRA)."},
      settings.use_dora);
  table.real({.name = "loraplus_lr_ratio",
              .restart = Restart::fixed,
              .sentence = "LoRA+: the learning rate of each B, and of all that has one dim, as a "
                          "multiple of that of each A, which is optimizer.lr; often 16."},
             settings.loraplus_lr_ratio, {.above = 0});
  require_patterns(table, "rank_pattern", settings.rank_pattern, true);
  require_patterns(table, "alpha_pattern", settings.alpha_pattern, false);
}

double dropout(const model::AdapterSettings& settings) {
  return settings.of<Settings>().dropout;
}

void keep_of_deck(const model::AdapterSettings& deck, model::AdapterSettings& settings) {
  settings.of<Settings>().loraplus_lr_ratio = deck.of<Settings>().loraplus_lr_ratio;
}

}  // namespace finetune::adapters::lora
