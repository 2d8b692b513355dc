// SPDX-License-Identifier: Apache-2.0
#include "train/step/detail/side_stream.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

namespace finetune::train {

using model::Side;
using model::SideSlice;

SideStream::SideStream(const Engine& engine)
    : engine_(engine),
      layout_(model::lay_out_sides(engine.architecture)),
      slots_(layout_.channels.size()) {}

void SideStream::look_up(const at::Tensor& ids_N) {
  if (layout_.looked_up.exists())
    at(layout_.looked_up).tensor =
        engine_.ops.embedding(ids_N, engine_.model.layer_embedding_row());
}

void SideStream::look_up_backward(const at::Tensor& ids_N) {
  if (!layout_.looked_up.exists()) return;
  Slot& slot = at(layout_.looked_up);
  engine_.ops.embedding_backward(ids_N, slot.gradient, engine_.model.layer_embedding_row());
  slot = {};
}

SideStream::Sides SideStream::open(std::int64_t i_layer, bool as_leaves) const {
  Sides sides{.layout = layout_.block(i_layer)};
  for (const Side side : model::all_sides) {
    const SideSlice& slice = sides.layout.read[side];
    if (!slice.exists()) continue;
    const at::Tensor& whole = slots_[static_cast<std::size_t>(slice.slot)].tensor;
    const at::Tensor part =
        slice.size < whole.size(1) ? whole.narrow(1, slice.first, slice.size) : whole;
    sides.read[side] = as_leaves ? part.detach().set_requires_grad(true) : part;
  }
  return sides;
}

void SideStream::close(const Sides& sides) {
  for (const Side side : model::all_sides)
    if (const SideSlice& slice = sides.layout.written[side]; slice.exists())
      at(slice).tensor = sides.written[side].detach();
}

at::Tensor SideStream::pull_back(const at::Tensor& input, const at::Tensor& output,
                                 const Sides& sides, const at::Tensor& d_output) {
  std::vector<at::Tensor> outputs{output}, d_outputs{d_output}, inputs{input};
  for (const Side side : model::all_sides) {
    if (sides.layout.read[side].exists()) inputs.push_back(sides.read[side]);
    const SideSlice& written = sides.layout.written[side];
    // Of the last layers nobody may have read what they wrote in a pass without a loss.
    if (!written.exists() || !at(written).gradient.defined()) continue;
    outputs.push_back(sides.written[side]);
    d_outputs.push_back(at(written).gradient);
    at(written) = {};
  }
  const std::vector<at::Tensor> d_inputs = torch::autograd::grad(outputs, inputs, d_outputs);
  std::size_t next = 1;
  for (const Side side : model::all_sides)
    if (const SideSlice& read = sides.layout.read[side]; read.exists())
      add_gradient(read, d_inputs[next++]);
  return d_inputs[0];
}

void SideStream::add_gradient(const SideSlice& slice, const at::Tensor& gradient) {
  const at::NoGradGuard no_autograd;
  Slot& slot = at(slice);
  const std::int64_t channels = layout_.channels[static_cast<std::size_t>(slice.slot)];
  if (!slot.gradient.defined() && slice.size == channels) {
    slot.gradient = gradient;
    return;
  }
  // Of another's memory nothing is changed: a gradient may be part of what autograd still reads.
  if (!slot.gradient.defined())
    slot.gradient = at::zeros({gradient.size(0), channels}, gradient.options());
  at::Tensor part = slot.gradient.narrow(1, slice.first, slice.size);
  part.add_(gradient);
}

}  // namespace finetune::train
