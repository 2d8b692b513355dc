// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/settings.hpp"

#include <fmt/format.h>

#include <cmath>

#include "adapters/lora/sizes.hpp"
#include "adapters/lora/start_kind.hpp"
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
  table.texts({.name = "target_parameters",
               .restart = Restart::fixed,
               .sentence = "Matrices of experts that get low-rank parts, each expert its own: "
                           "\"mlp.experts.gate_up_proj\", \"mlp.experts.down_proj\", as PEFT and "
                           "transformers' model of the family have them, whatever the files call "
                           "them. Not with parallel.tp or parallel.ep."},
              settings.target_parameters);
  table.text(
      {.name = "init",
       .restart = Restart::fixed,
       .sentence = "What low-rank matrices begin with. lora: random numbers and zeros. pissa: "
                   "the largest singular values of the matrix and their vectors; "
                   "pissa_niter_16: the same by 16 iterations, which is faster. olora: its QR "
                   "factorisation. What they begin with is taken off the product, so the "
                   "model begins as it was. Not with qlora or parallel.tp."},
      settings.init);
  if (!StartKind::parse(settings.init))
    table.problem("init", fmt::format("adapter.init = \"{}\"", core::one_line(settings.init)),
                  "it is one of lora, pissa, pissa_niter_NUMBER and olora",
                  "Write, for example, init = \"pissa_niter_16\".");
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
  table.real({.name = "loraplus_embedding_lr_ratio",
              .restart = Restart::fixed,
              .sentence = "The learning rate of an embedding's low-rank part, as a multiple of "
                          "optimizer.lr. LoRA+ often has one of 1e-6, whatever the others have."},
             settings.loraplus_embedding_lr_ratio, {.above = 0});
  require_patterns(table, "rank_pattern", settings.rank_pattern, true);
  require_patterns(table, "alpha_pattern", settings.alpha_pattern, false);
}

double dropout(const model::AdapterSettings& settings) {
  return settings.of<Settings>().dropout;
}

void keep_of_deck(const model::AdapterSettings& deck, model::AdapterSettings& settings) {
  const auto wanted = deck.of<Settings>();
  Settings& own = settings.of<Settings>();
  own.loraplus_lr_ratio = wanted.loraplus_lr_ratio;
  own.loraplus_embedding_lr_ratio = wanted.loraplus_embedding_lr_ratio;
}

}  // namespace finetune::adapters::lora
