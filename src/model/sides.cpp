// SPDX-License-Identifier: Apache-2.0
#include "model/sides.hpp"

namespace finetune::model {

SideLayout lay_out_sides(const Architecture& a) {
  SideLayout layout;
  layout.blocks.resize(static_cast<std::size_t>(a.num_layers));
  const auto add = [&](std::int64_t channels) -> SideSlice {
    layout.channels.push_back(channels);
    return {static_cast<int>(layout.channels.size()) - 1, 0, channels};
  };
  if (a.layer_input_size > 0) {
    const std::int64_t channels = a.num_layers * a.layer_input_size;
    layout.looked_up = add(channels);
    const SideSlice all = add(channels);
    layout.blocks.front().read[Side::layer_inputs] = layout.looked_up;
    layout.blocks.front().written[Side::layer_inputs] = all;
    for (std::int64_t i = 1; i < a.num_layers; ++i)
      layout.blocks[static_cast<std::size_t>(i)].read[Side::layer_inputs] = {
          all.slot, i * a.layer_input_size, a.layer_input_size};
  }
  for (std::int64_t i = 0; i < a.num_layers; ++i) {
    const Layer layer = a.layer(i);
    if (layer.keys_of < 0) continue;
    SideSlice& written =
        layout.blocks[static_cast<std::size_t>(layer.keys_of)].written[Side::keys_values];
    if (!written.exists()) written = add(2 * a.num_kv_heads_of(layer) * a.head_size_of(layer));
    layout.blocks[static_cast<std::size_t>(i)].read[Side::keys_values] = written;
  }
  return layout;
}

}  // namespace finetune::model
