// SPDX-License-Identifier: Apache-2.0
#include "train/input/trained_tensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "train/input/detail/tensor_pattern.hpp"

namespace finetune::train {
namespace {

/// Of each row whether one of `patterns` names it; none does that names no row.
std::vector<bool> named_by(const std::vector<std::string>& patterns, const char* key,
                           const Input& input) {
  std::vector<bool> named(input.parameters.rows.size(), false);
  for (const std::string& text : patterns) {
    const TensorPattern pattern(text, fmt::format("{}: train.{}", input.deck_path.string(), key));
    for (const int row : pattern.rows_in(input.parameters))
      named[static_cast<std::size_t>(row)] = true;
  }
  return named;
}

[[noreturn]] void refuse(const Input& input, const std::string& problem, const std::string& why,
                         const std::string& remedy) {
  core::fail(core::ErrorKind::deck, {input.deck_path.string(), problem, why, remedy});
}

/// What is frozen stays as the model's files have it.
void require_in_files(const Input& input) {
  for (const model::Parameter& row : input.parameters.rows) {
    if (row.trainable || row.is_constant) continue;
    if (input.model.init == InitialWeights::random)
      refuse(input, "train.frozen or train.trainable with model.init = \"random\"",
             fmt::format("{} would stay a random tensor", row.name),
             "Remove the key, or set model.init = \"pretrained\".");
    if (row.is_new)
      refuse(input, fmt::format("train.frozen and train.trainable leave {} as it is", row.name),
             "the model's files do not have it: it begins with random numbers",
             "Leave it out of train.frozen, or name it in train.trainable.");
  }
}

/// Constants are of the model's files: a run that begins without any would have none to train with.
void require_constants(const Input& input) {
  if (input.model.init != InitialWeights::random) return;
  const auto& rows = input.parameters.rows;
  const auto constant = std::ranges::find_if(rows, &model::Parameter::is_constant);
  if (constant == rows.end()) return;
  refuse(input, "model.init = \"random\" with a model of this family",
         fmt::format("{} is no weight that training finds", constant->name),
         "Set model.init = \"pretrained\", or choose another family.");
}

/// One product reads all experts of a layer.
void require_whole_layers_of_experts(const Input& input) {
  std::map<int, bool> is_trained;
  for (const model::Parameter& row : input.parameters.rows) {
    if (!row.of_experts) continue;
    const auto [layer, is_first] = is_trained.emplace(row.stage, row.trainable);
    if (is_first || layer->second == row.trainable) continue;
    refuse(input, fmt::format("only some experts of layer {} are frozen", row.stage - 1),
           "the experts of a layer are trained together, or none of them",
           fmt::format("Name all of the layer's experts, or none ({} is one).", row.name));
  }
}

/// "0 to 3, 7".
std::string ranges(const std::vector<int>& layers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1)
      ++end;
    parts.push_back(end - i == 1 ? fmt::format("{}", layers[i])
                                 : fmt::format("{} to {}", layers[i], layers[end - 1]));
    i = end;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

void require_no_adapter(const Input& input, deck::Deck& deck) {
  if (!input.adapter.exists()) return;
  const bool has_frozen = !input.train.frozen.empty();
  if (!has_frozen && input.train.trainable.empty()) return;
  const char* key = has_frozen ? "frozen" : "trainable";
  deck.table("train", "")
      .problem(
          key,
          fmt::format("train.{} is given beside adapter.name = \"{}\"", key, input.adapter.name),
          "an adapter leaves all weights of the model as they are",
          "Remove it; adapter.target_modules, layers_to_transform and modules_to_save say "
          "what is trained.");
}

void freeze_named(Input& input) {
  require_constants(input);
  const std::vector<std::string>&frozen = input.train.frozen, &trainable = input.train.trainable;
  if (frozen.empty() && trainable.empty()) return;
  const std::vector<bool> is_frozen = named_by(frozen, "frozen", input);
  const std::vector<bool> is_named = named_by(trainable, "trainable", input);
  std::vector<model::Parameter>& rows = input.parameters.rows;
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i].trainable = (trainable.empty() || is_named[i]) && !is_frozen[i] && !rows[i].is_constant;
  if (std::ranges::none_of(rows, &model::Parameter::trainable))
    refuse(input, "train.frozen and train.trainable leave nothing to train",
           "all weights would stay as they are", "Name fewer tensors in train.frozen.");
  require_in_files(input);
  require_whole_layers_of_experts(input);
}

std::string frozen_in_words(const Input& input) {
  if (input.is_adapted()) return "";
  const model::ParameterTable& table = input.parameters;
  const std::int64_t num_layers = input.architecture.num_layers;
  // Block i is stage 1 + i.
  const auto is_of_layer = [&](const model::Parameter& row) {
    return row.stage >= 1 && row.stage <= num_layers;
  };
  std::map<int, bool> is_frozen;
  for (const model::Parameter& row : table.rows) {
    if (!is_of_layer(row)) continue;
    bool& is_whole = is_frozen.emplace(row.stage - 1, true).first->second;
    is_whole = is_whole && !row.trainable;
  }
  std::vector<int> layers;
  for (const auto& [layer, is_whole] : is_frozen)
    if (is_whole) layers.push_back(layer);
  std::vector<std::string> parts;
  if (!layers.empty())
    parts.push_back(fmt::format("layer{} {}", layers.size() == 1 ? "" : "s", ranges(layers)));
  constexpr std::int64_t most_named = 3;
  std::int64_t num_others = 0;
  for (const model::Parameter& row : table.rows) {
    const bool is_said = is_of_layer(row) && is_frozen.at(row.stage - 1);
    if (row.trainable || row.is_constant || is_said) continue;
    if (num_others++ < most_named) parts.push_back(row.name);
  }
  if (num_others > most_named)
    parts.push_back(fmt::format("{} more tensors", core::with_commas(num_others - most_named)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace finetune::train
