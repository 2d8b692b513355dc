// SPDX-License-Identifier: Apache-2.0
#include "model/adapter.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/text.hpp"
#include "model/low_rank_sizes.hpp"

namespace finetune::model {
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

void AdapterSettings::bind(deck::Table& table, const std::vector<std::string>& names) {
  using deck::Restart;
  std::vector<std::string> choices = {"none"};
  choices.insert(choices.end(), names.begin(), names.end());
  table.choice(
      {.name = "name",
       .restart = Restart::fixed,
       .sentence = "none: all weights are trained; lora: low-rank matrices on top of frozen "
                   "weights; qlora: the same on weights quantised to 4 bits (NF4)."},
      name, choices);
  table.text({.name = "path",
              .restart = Restart::fixed,
              .sentence = "Folder of a PEFT adapter to continue from; its r, alpha, targets and "
                          "kind are used. Empty: a new one."},
             path);
  table.integer(
      {.name = "lora_r", .restart = Restart::fixed, .sentence = "Rank of the low-rank matrices."},
      lora_r, {.min = 1, .max = 65536});
  table.real({.name = "lora_alpha",
              .restart = Restart::fixed,
              .sentence = "The low-rank product is multiplied by lora_alpha / lora_r."},
             lora_alpha, {.above = 0});
  table.real(
      {.name = "lora_dropout",
       .restart = Restart::fixed,
       .sentence = "Fraction of the low-rank product's inputs that is set to zero in training."},
      lora_dropout, {.min = 0, .below = 1});
  table.texts({.name = "target_modules",
               .restart = Restart::fixed,
               .sentence = "Matrices that get a low-rank part: ends of their modules' names, such "
                           "as q_proj, or all-linear for all matrices of the blocks."},
              target_modules);
  table.texts({.name = "modules_to_save",
               .restart = Restart::fixed,
               .sentence = "Modules that are trained in full in addition to the adapter: ends of "
                           "their names, such as embed_tokens or lm_head."},
              modules_to_save);
  table.texts({.name = "rank_pattern",
               .restart = Restart::fixed,
               .sentence = "Other ranks for some modules: \"PATTERN=RANK\", such as "
                           "\"layers.0.mlp.up_proj=4\". The pattern is the end of a module's name "
                           "or a regular expression for it, as in PEFT; the first that matches "
                           "counts."},
              rank_pattern);
  table.texts({.name = "alpha_pattern",
               .restart = Restart::fixed,
               .sentence = "Other lora_alpha for some modules, written in the same way."},
              alpha_pattern);
  table.boolean({.name = "use_rslora",
                 .restart = Restart::fixed,
                 .sentence = "Divide lora_alpha by the square root of lora_r instead of lora_r."},
                use_rslora);
  table.boolean(
      {.name = "use_dora",
       .restart = Restart::fixed,
       .sentence =
           "Train the norm of each row of an adapted matrix separately from its direction (DoRA)."},
      use_dora);
  table.boolean({.name = "double_quant",
                 .restart = Restart::fixed,
                 .sentence = "qlora: quantise the maxima of NF4's blocks as well: 4.13 instead of "
                             "4.5 bits per weight."},
                double_quant);
  require_patterns(table, "rank_pattern", rank_pattern, true);
  require_patterns(table, "alpha_pattern", alpha_pattern, false);
}

}  // namespace finetune::model
