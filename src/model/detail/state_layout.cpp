// SPDX-License-Identifier: Apache-2.0
#include "model/detail/state_layout.hpp"

namespace finetune::model {

std::vector<Parameter> state_space_rows(const StateHeads& heads, std::int64_t d_model,
                                        const std::string& prefix) {
  const Pieces values{heads.num_groups, heads.heads_per_group * heads.head_size};
  const Pieces keys{heads.num_groups, heads.state_size};
  const Pieces numbers{heads.num_groups, heads.heads_per_group};
  const TensorSplit by_channels{0, {values, keys, keys}}, by_heads{0, {numbers}};
  const std::int64_t inputs = heads.width() + heads.channels() + heads.num_heads();
  const auto vector = [&](const char* name, std::int64_t size, Init init,
                          const TensorSplit& split) -> Parameter {
    return {.name = prefix + name, .shape = {size}, .decayed = false, .init = init, .split = split};
  };
  return {{.name = prefix + "in_proj.weight",
           .shape = {inputs, d_model},
           .role = Role::linear,
           .split = TensorSplit{0, {values, values, keys, keys, numbers}}},
          {.name = prefix + "conv1d.weight",
           .shape = {heads.channels(), 1, heads.taps},
           .split = by_channels},
          vector("conv1d.bias", heads.channels(), Init::zeros, by_channels),
          vector("A_log", heads.num_heads(), Init::decays, by_heads),
          vector("dt_bias", heads.num_heads(), Init::ones, by_heads),
          vector("D", heads.num_heads(), Init::ones, by_heads),
          vector("norm.weight", heads.width(), Init::ones, TensorSplit{0, {values}}),
          {.name = prefix + "out_proj.weight",
           .shape = {d_model, heads.width()},
           .role = Role::linear,
           .split = TensorSplit{1, {values}}}};
}

}  // namespace finetune::model
