#pragma once
// SPDX-License-Identifier: Apache-2.0
// What an adapter computes. One object per kind, without state, in modules/adapters.

#include <ATen/ATen.h>

#include <functional>
#include <span>
#include <vector>

#include "model/projection.hpp"

namespace finetune::model {

class AdapterMath {
 public:
  virtual ~AdapterMath() = default;

  /// Whether backward needs the product's input.
  virtual bool needs_input(const std::vector<AdaptedPart>& parts) const = 0;

  /// The whole product, frozen matrices included. `parts` is not empty; some matrices of the range
  /// may have none. Shapes: x [N, D] -> [N, F].
  virtual Projected project(const Projection& projection, const std::vector<AdaptedPart>& parts,
                            const at::Tensor& x_ND) const = 0;

  /// Gives dx to `ends`, and adds the gradients of the parts. `kept` is what `project` kept.
  virtual void project_backward(const Projection& projection, const std::vector<AdaptedPart>& parts,
                                const at::Tensor& dy_NF, InputTravel& ends,
                                std::span<const at::Tensor> kept) const = 0;

  /// The biases [F] that are added to a product, where parts lie on top of them. In fresh memory.
  virtual at::Tensor bias(const Projection& projection, const std::vector<AdaptedPart>& parts,
                          const at::Tensor& bias_F) const;
  virtual void bias_backward(const Projection& projection, const std::vector<AdaptedPart>& parts,
                             const at::Tensor& dy_NF) const;

  /// A row of the table in fp32, with the adapter in it. `part(i)`: the i-th of the row's parts, in
  /// fp32 and its own shape. `values` has the row's shape, and is changed in place.
  using ReadPart = std::function<at::Tensor(std::size_t i)>;
  virtual void merge(const Adapted& adapted, const ReadPart& part, at::Tensor& values) const = 0;
};

}  // namespace finetune::model
