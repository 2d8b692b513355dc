// SPDX-License-Identifier: Apache-2.0
// The deck's table [model].
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "train/input/settings.hpp"

namespace finetune::train {

using deck::Restart;

void ModelSettings::bind(deck::Table& table) {
  table.text(
      {.name = "path",
       .restart = Restart::fixed,
       .sentence = "Folder in Hugging Face format: config.json, *.safetensors, tokenizer.json.",
       .required = true},
      path);
  table.choice({.name = "init",
                .restart = Restart::fixed,
                .sentence = "pretrained: weights from the folder's safetensors; random: new "
                            "weights from train.seed, "
                            "only config.json and tokenizer.json are read."},
               init,
               {{"pretrained", InitialWeights::pretrained}, {"random", InitialWeights::random}});
  table.choice({.name = "problem_type",
                .restart = Restart::fixed,
                .sentence = "What is learnt: to continue text; or of each text (data.format = "
                            "\"labelled\"), by a head on its last token: which label is right, "
                            "which of several are, or a number; or of two texts (\"preference\") "
                            "which is preferred."},
               problem_type,
               {{"causal_lm", model::HeadKind::next_token},
                {"single_label_classification", model::HeadKind::one_label},
                {"multi_label_classification", model::HeadKind::labels},
                {"regression", model::HeadKind::value},
                {"reward", model::HeadKind::reward}});
  table.texts({.name = "labels",
               .restart = Restart::fixed,
               .sentence = "Names of the labels, in the order of their numbers in the data from 0. "
                           "Of a regression none, or what the number is."},
              labels);
  bind_labels(table);
  bind_new_tokens(table);
  table.real({.name = "router_aux_loss_coef",
              .restart = Restart::fixed,
              .sentence = "Weight of the load-balancing loss of a model with experts; -1: as "
                          "config.json says, and none unless its output_router_logits is true."},
             router_aux_loss_coef, {.min = -1});
  table.choice({.name = "router_aux_loss_load",
                .restart = Restart::fixed,
                .sentence = "Over what that term counts how often experts are chosen: sample: each "
                            "sample and layer by itself, identical however a step is split; "
                            "micro_batch: all tokens and layers of a micro-batch together, as "
                            "transformers defines it."},
               router_aux_loss_load,
               {{"sample", RouterLoad::sample}, {"micro_batch", RouterLoad::micro_batch}});
}

void ModelSettings::bind_labels(deck::Table& table) {
  using Kind = model::HeadKind;
  if (problem_type == Kind::value && labels.empty()) labels = {"value"};
  if (problem_type == Kind::reward && labels.empty()) labels = {"reward"};
  const auto refuse = [&](const char* key, const std::string& problem, const char* why,
                          const char* remedy) { table.problem(key, problem, why, remedy); };
  if (problem_type == Kind::next_token) {
    if (!labels.empty())
      refuse("labels", "model.labels are given, but model.problem_type = \"causal_lm\"",
             "text that is continued has no labels",
             "Set model.problem_type = \"single_label_classification\", or remove labels.");
    return;
  }
  std::vector<std::string> sorted = labels;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end())
    refuse("labels", "model.labels has a name twice", "labels are told apart by it",
           "Name each once.");
  if ((problem_type == Kind::value || problem_type == Kind::reward) && labels.size() > 1)
    refuse("labels", "model.labels has several names", "one number is learnt",
           "Leave one, or none.");
  if (problem_type == Kind::one_label && labels.size() < 2)
    refuse("labels", "model.labels has fewer than two names", "one of them is to be right",
           "Name all labels of the data, for example labels = [\"negative\", \"positive\"].");
  if (problem_type == Kind::labels && (labels.empty() || std::ssize(labels) > model::most_flags))
    refuse("labels", "model.labels has " + std::to_string(labels.size()) + " names",
           "from 1 to 30 can each be right or not", "Name all labels of the data.");
}

void ModelSettings::bind_new_tokens(deck::Table& table) {
  table.texts({.name = "add_tokens",
               .restart = Restart::fixed,
               .sentence = "New tokens, found in text as they are written here. Tokenizer, "
                           "embedding and head grow by them."},
              new_tokens.plain);
  table.texts({.name = "add_special_tokens",
               .restart = Restart::fixed,
               .sentence = "New special tokens, such as those of a chat template: text of the data "
                           "cannot spell them."},
              new_tokens.special);
  table.texts({.name = "new_tokens_from",
               .restart = Restart::fixed,
               .sentence = "Tokens of the model with the mean of whose rows the new ones begin. "
                           "Empty: of all."},
              new_tokens_from);
  table.boolean(
      {.name = "train_new_tokens",
       .restart = Restart::fixed,
       .sentence = "With an adapter: train the new tokens' rows of embedding and head, and "
                   "no others, unless adapter.modules_to_save names these."},
      train_new_tokens);
  require_tokens(table);
}

void ModelSettings::require_tokens(deck::Table& table) const {
  std::vector<std::string> all = new_tokens.plain;
  all.insert(all.end(), new_tokens.special.begin(), new_tokens.special.end());
  const char* key = new_tokens.plain.empty() ? "add_special_tokens" : "add_tokens";
  std::ranges::sort(all);
  if (!all.empty() && all.front().empty())
    table.problem(key, fmt::format("model.{} has an empty token", key), "no text holds it",
                  "Leave it out.");
  if (const auto twice = std::ranges::adjacent_find(all); twice != all.end())
    table.problem(key,
                  fmt::format("model.{} has the token \"{}\" twice", key, core::one_line(*twice)),
                  "a token has one id", "Name each once.");
  if (new_tokens.any() && init == InitialWeights::random)
    table.problem(key, fmt::format("model.{} with model.init = \"random\"", key),
                  "new rows begin with the mean of trained ones",
                  "Add them to tokenizer and config.json before.");
  if (!new_tokens.any() && !new_tokens_from.empty())
    table.problem("new_tokens_from", "model.new_tokens_from is given, but no new tokens are",
                  "nothing would begin with them", "Set model.add_tokens, or remove it.");
}

}  // namespace finetune::train
