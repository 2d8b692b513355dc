#pragma once
// SPDX-License-Identifier: Apache-2.0
// The tensors of a pass that lie beside the stream, from the block that writes them to those that
// read them, and their gradients back.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "model/sides.hpp"
#include "train/step/passes.hpp"

namespace finetune::train {

class SideStream {
 public:
  using Sides = model::Sides<at::Tensor>;

  explicit SideStream(const Engine& engine);

  /// What the embedding's stage gives for the first block. ids_N int64.
  void look_up(const at::Tensor& ids_N);
  void look_up_backward(const at::Tensor& ids_N);

  /// What a block is called with; `as_leaves`: its gradients will be asked for.
  Sides open(std::int64_t i_layer, bool as_leaves) const;
  /// Takes what it wrote.
  void close(const Sides& sides);

  /// The gradient of a block's input by that of its output; those of what it read wait for the
  /// blocks that wrote it, and what it wrote is gone.
  at::Tensor pull_back(const at::Tensor& input, const at::Tensor& output, const Sides& sides,
                       const at::Tensor& d_output);

 private:
  struct Slot {
    at::Tensor tensor;    ///< [N, channels]
    at::Tensor gradient;  ///< undefined: nobody has added to it
  };

  Slot& at(const model::SideSlice& slice) { return slots_[static_cast<std::size_t>(slice.slot)]; }
  void add_gradient(const model::SideSlice& slice, const at::Tensor& gradient);

  const Engine& engine_;
  model::SideLayout layout_;
  std::vector<Slot> slots_;
};

}  // namespace finetune::train
