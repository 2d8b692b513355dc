#pragma once
// SPDX-License-Identifier: Apache-2.0
// What an adapter computes. One object per kind, without state, in modules/adapters.

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/projection.hpp"

namespace finetune::model {

class ExpertRowProducts;  // model/expert_row_products.hpp

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

  /// Adds to x [N, D], which were looked up in an embedding, what `part` says of ids [N]; and the
  /// gradients of the part.
  virtual void embed(const Projection& projection, const AdaptedPart& part, const at::Tensor& ids_N,
                     at::Tensor& x_ND) const;
  virtual void embed_backward(const Projection& projection, const AdaptedPart& part,
                              const at::Tensor& ids_N, const at::Tensor& d_x_ND) const;

  /// Of experts that have their parts together (Adapted::together). Rows are sorted by expert:
  /// adds to their products y [M, out] with the experts' matrices what the parts make of x [M, in];
  /// to the gradient dx [M, in] what they pull back of dy [M, out]; and their own gradients.
  virtual void project_experts(const Weights& weights, const Adapted& adapted,
                               const ExpertRowProducts& rows, const at::Tensor& x,
                               at::Tensor& y) const;
  virtual void pull_back_experts(const Weights& weights, const Adapted& adapted,
                                 const ExpertRowProducts& rows, const at::Tensor& dy,
                                 at::Tensor& dx) const;
  virtual void add_expert_gradients(Weights& weights, const Adapted& adapted,
                                    const ExpertRowProducts& rows, const at::Tensor& dy,
                                    const at::Tensor& x) const;

  /// First values of a row's parts, in fp32 and their own shapes, where they follow from the row
  /// (Adapted::start). `weight`: fp32, on the CPU. Random numbers follow from `seed` alone.
  virtual std::vector<at::Tensor> begin(const Adapted& adapted, const at::Tensor& weight,
                                        const std::vector<std::vector<std::int64_t>>& shapes,
                                        std::uint64_t seed) const;

  /// A row of the table in fp32, with the adapter in it. `part(i)`: the i-th of the row's parts, in
  /// fp32 and its own shape. `values` has the row's shape, and is changed in place.
  using ReadPart = std::function<at::Tensor(std::size_t i)>;
  virtual void merge(const Adapted& adapted, const ReadPart& part, at::Tensor& values) const = 0;
};

}  // namespace finetune::model
