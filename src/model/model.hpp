#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model as a whole: what runs over its blocks calls this.

#include <ATen/ATen.h>

#include <cstdint>

#include "model/ops.hpp"
#include "model/parameter_table.hpp"
#include "model/sequence.hpp"
#include "model/sides.hpp"

namespace finetune::model {

/// A model as written for one device: pure functions of activations; weights come through `Ops`.
class Model {
 public:
  virtual ~Model() = default;

  /// Rows of the token embedding, and of the head (the embedding's if tied).
  virtual int embedding_row() const = 0;
  virtual int head_row() const = 0;
  /// The rows of block `i_layer`.
  virtual RowRange block_rows(std::int64_t i_layer) const = 0;

  /// Looked up beside the embedding (SideLayout::looked_up); -1: nothing is.
  virtual int layer_embedding_row() const = 0;

  /// x_ND -> y_ND of transformer block `i_layer`.
  virtual at::Tensor block(Ops& ops, std::int64_t i_layer, const at::Tensor& x_ND,
                           const Sequence& sequence, Sides<at::Tensor>& sides) const = 0;
  /// Of a model with nothing beside the stream.
  at::Tensor block(Ops& ops, std::int64_t i_layer, const at::Tensor& x_ND,
                   const Sequence& sequence) const {
    Sides<at::Tensor> none;
    return block(ops, i_layer, x_ND, sequence, none);
  }

  /// The last block's output to the head's input.
  virtual at::Tensor final_norm(Ops& ops, const at::Tensor& x_ND) const = 0;
};

}  // namespace finetune::model
