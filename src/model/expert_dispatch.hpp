#pragma once
// SPDX-License-Identifier: Apache-2.0
// The seam between a layer's router and whoever computes its experts: this rank, or others too.

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "model/part.hpp"

namespace finetune::model {

/// How many rows each expert has, from where they end (int64 [E]). A GPU's host waits here, once
/// per layer: it cannot start the products of a layer before it knows their sizes, which the layers
/// before decide.
std::vector<std::int64_t> counts_of(const at::Tensor& ends);

/// The way of a layer's rows, copies of tokens in the experts' order [M, ...], to the rank that
/// computes them, and back.
class ExpertRoute {
 public:
  ExpertRoute(IndexRange held, std::vector<std::int64_t> counts)
      : held_(held), counts_(std::move(counts)) {}
  virtual ~ExpertRoute() = default;

  /// Experts that this rank computes.
  IndexRange held() const { return held_; }
  /// Rows of each of them.
  const std::vector<std::int64_t>& counts() const { return counts_; }

  /// [M, ...] -> the rows of the experts held, which are in their order. Any dtype.
  virtual at::Tensor there(const at::Tensor& rows) const = 0;
  /// What was computed of them -> [M, ...]; 0 where no rank of this route has the expert.
  virtual at::Tensor back(const at::Tensor& rows) const = 0;

 private:
  IndexRange held_;
  std::vector<std::int64_t> counts_;
};

/// Whether each expert of a layer has tensors of its own, or one tensor holds all experts.
enum class ExpertTensors { separate, fused };

class ExpertDispatch {
 public:
  virtual ~ExpertDispatch() = default;

  /// `ends`: int64 [E], of the rows of each expert.
  virtual std::shared_ptr<const ExpertRoute> route(const at::Tensor& ends,
                                                   ExpertTensors tensors) const = 0;
};

/// The experts of a layer with `num` of them that the rank at `place` holds.
IndexRange held_of(std::int64_t num, ExpertTensors tensors, const PartPlace& place);

/// Rows of experts that the rank at `place` holds; those of others are somebody else's business.
class HeldExperts final : public ExpertDispatch {
 public:
  explicit HeldExperts(const PartPlace& place = {}) : place_(place) {}

  std::shared_ptr<const ExpertRoute> route(const at::Tensor& ends,
                                           ExpertTensors tensors) const override;

 private:
  PartPlace place_;
};

}  // namespace finetune::model
