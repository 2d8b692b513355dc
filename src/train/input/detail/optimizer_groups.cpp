// SPDX-License-Identifier: Apache-2.0
#include "train/input/detail/optimizer_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "kernels/composed_adafactor.hpp"
#include "train/input/detail/tensor_pattern.hpp"

namespace finetune::train {
namespace {

std::string place_of(const Input& input, const char* key) {
  return fmt::format("{}: optimizer.{}", input.deck_path.string(), key);
}

[[noreturn]] void refuse_nothing(const Input& input, const char* key, const std::string& pattern,
                                 const char* why) {
  core::fail(core::ErrorKind::deck,
             {place_of(input, key),
              fmt::format("\"{}\" names nothing that is left to it", core::one_line(pattern)), why,
              "Remove it, or write another."});
}

void set_rates(Input& input) {
  std::vector<bool> is_set(input.parameters.rows.size(), false);
  for (const std::string& text : input.optimizer.lr_pattern) {
    const NumberedPattern group = read_numbered_pattern(text, place_of(input, "lr_pattern"));
    if (group.number == 0)
      core::fail(core::ErrorKind::deck,
                 {place_of(input, "lr_pattern"),
                  fmt::format("\"{}\" is a learning rate of 0", core::one_line(text)),
                  "gradients and moments would be kept for nothing",
                  "Name the tensors in train.frozen instead."});
    bool names_any = false;
    for (const int i : group.pattern.rows_in(input.parameters)) {
      model::Parameter& row = input.parameters.rows[static_cast<std::size_t>(i)];
      if (!row.trainable || is_set[static_cast<std::size_t>(i)]) continue;
      row.lr_ratio *= group.number;
      is_set[static_cast<std::size_t>(i)] = names_any = true;
    }
    if (!names_any)
      refuse_nothing(input, "lr_pattern", text,
                     "its tensors are frozen, or an earlier pattern has them");
  }
}

void exclude_from_decay(Input& input) {
  for (const std::string& text : input.optimizer.weight_decay_exclude) {
    const TensorPattern pattern(text, place_of(input, "weight_decay_exclude"));
    bool names_any = false;
    for (const int i : pattern.rows_in(input.parameters)) {
      model::Parameter& row = input.parameters.rows[static_cast<std::size_t>(i)];
      names_any = names_any || (row.trainable && row.decayed);
      row.decayed = false;
    }
    if (!names_any)
      refuse_nothing(input, "weight_decay_exclude", text,
                     "its tensors are frozen, or have no weight decay anyway");
  }
}

/// Optimizers that update all elements of a unit in one pass have one learning rate.
void require_one_rate(const Input& input) {
  const bool has_ratios = std::ranges::any_of(
      input.parameters.rows, [](const model::Parameter& row) { return row.lr_ratio != 1; });
  if (!has_ratios || input.optimizer.kind->has_lr_ratios) return;
  const std::string key =
      input.optimizer.lr_pattern.empty() ? "adapter.loraplus_lr_ratio" : "optimizer.lr_pattern";
  core::fail(core::ErrorKind::deck,
             {input.deck_path.string(),
              fmt::format("optimizer.name = \"{}\" with {}", input.optimizer.kind->name(), key),
              "it has one learning rate for all that is trained",
              fmt::format("Set optimizer.name = \"adamw\", or remove {}.", key)});
}

/// Optimizers with means of rows and columns take them of so many squares at most.
void require_exact_means(const Input& input) {
  const bool has_means = std::ranges::any_of(
      input.optimizer.kind->footprint.states,
      [](const auto& state) { return state.of == plan::OptimizerState::Of::rows; });
  if (!has_means) return;
  for (const model::Parameter& row : input.parameters.rows) {
    const bool is_trained = row.trainable && (!row.trained_rows || row.trained_rows->num > 0);
    if (!is_trained || row.shape.size() < 2) continue;
    const std::int64_t width = row.shape.back(), height = row.shape[row.shape.size() - 2];
    if (std::max(height, width) <= kernels::composed::most_factor_terms) continue;
    core::fail(core::ErrorKind::deck,
               {input.deck_path.string(),
                fmt::format("optimizer.name = \"{}\", but {} is a matrix of {} x {}",
                            input.optimizer.kind->name(), row.name, height, width),
                fmt::format("its means of rows and columns are exact up to {} values",
                            kernels::composed::most_factor_terms),
                "Set optimizer.name = \"adamw8bit\", or leave the matrix out with train.frozen."});
  }
}

}  // namespace

void set_optimizer_groups(Input& input) {
  set_rates(input);
  exclude_from_decay(input);
  require_one_rate(input);
  require_exact_means(input);
}

}  // namespace finetune::train
