// SPDX-License-Identifier: Apache-2.0
#include "model/detail/delta_layout.hpp"

#include <utility>

namespace finetune::model {

std::vector<Parameter> delta_rule_rows(const DeltaHeads& d, std::int64_t d_model,
                                       const std::string& prefix) {
  const Pieces keys{d.num_keys, d.key_size}, values{d.num_keys, d.values_per_key * d.value_size};
  const Pieces numbers{d.num_keys, d.values_per_key};
  const TensorSplit by_values{0, {values}}, by_numbers{0, {numbers}};
  const TensorSplit by_channels{0, {keys, keys, values}};
  const auto inputs = [&](const char* name, TensorSplit split) -> Parameter {
    std::int64_t outputs = 0;
    for (const Pieces& pieces : split.matrices)
      outputs += pieces.total();
    return {.name = prefix + name + ".weight",
            .shape = {outputs, d_model},
            .role = Role::linear,
            .split = std::move(split)};
  };
  std::vector<Parameter> rows;
  if (d.is_by_key_head) {
    const std::int64_t of_key = 2 * (keys.size + values.size);
    rows = {inputs("in_proj_qkvz", {0, {{d.num_keys, of_key}}}),
            inputs("in_proj_ba", {0, {{d.num_keys, 2 * numbers.size}}})};
  } else {
    rows = {inputs("in_proj_qkv", by_channels), inputs("in_proj_z", by_values),
            inputs("in_proj_b", by_numbers), inputs("in_proj_a", by_numbers)};
  }
  const auto vector = [&](const char* name, std::int64_t size, Init init) -> Parameter {
    return {.name = prefix + name, .shape = {size}, .decayed = false, .init = init};
  };
  rows.push_back(
      {.name = prefix + "conv1d.weight", .shape = {d.channels(), 1, d.taps}, .split = by_channels});
  rows.push_back(vector("A_log", d.num_values(), Init::decays));
  rows.back().split = by_numbers;
  rows.push_back(vector("dt_bias", d.num_values(), Init::ones));
  rows.back().split = by_numbers;
  rows.push_back(vector("norm.weight", d.value_size, Init::ones));
  rows.push_back({.name = prefix + "out_proj.weight",
                  .shape = {d_model, d.num_values() * d.value_size},
                  .role = Role::linear,
                  .split = TensorSplit{1, {values}}});
  return rows;
}

}  // namespace finetune::model
