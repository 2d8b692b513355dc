#pragma once
// SPDX-License-Identifier: Apache-2.0
// What an adapter costs. One object per kind, without state, in modules/adapters; its twin that
// computes is model::AdapterMath, and where that changes, this changes with it.

#include <cstdint>

#include "model/cost/projection_shape.hpp"

namespace finetune::model {

class AdapterCost {
 public:
  virtual ~AdapterCost() = default;

  /// Whether backward needs the product's input.
  virtual bool needs_input(const ProjectionShape& shape) const = 0;

  /// Adds to `cost` of the product of `tokens` tokens what the parts of `shape.adapted` keep, hold
  /// and do.
  virtual void add(const ProjectionShape& shape, const CostSettings& settings, std::int64_t tokens,
                   CostTape& tape, ProjectionCost& cost) const = 0;

  /// Bytes that parts of experts hold next to a product of rows, to the gradient of these, and
  /// while their own are computed.
  struct OfExperts {
    std::int64_t forward = 0;
    std::int64_t backward = 0;
    std::int64_t gradients = 0;
    OpWork forward_work = {};
    OpWork backward_work = {};
  };
  /// Of experts that have their parts together: `rows` rows, and the matrices of `num` experts, of
  /// `shape` each.
  virtual OfExperts of_experts(const ProjectionShape&, const CostSettings&, std::int64_t /*rows*/,
                               std::int64_t /*num*/) const {
    return {};
  }

  /// Adds to `cost` of looking up `tokens` tokens in an embedding what its parts hold and do.
  virtual void add_to_embedding(const ProjectionShape&, const CostSettings&, std::int64_t,
                                ProjectionCost&) const {}
};

}  // namespace finetune::model
