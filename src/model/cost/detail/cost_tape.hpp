#pragma once
// SPDX-License-Identifier: Apache-2.0
// The ops of a piece of a model in the order of the forward pass, with what they cost: a ledger of
// the bytes that are alive while they run forward and then backward.

#include <cstdint>
#include <utility>
#include <vector>

#include "model/cost/cost.hpp"

namespace finetune::model {

class CostTape {
 public:
  /// A tensor that nothing else shares its memory with.
  TensorSize tensor(std::int64_t rows, std::int64_t columns, std::int64_t element_bytes);

  void record(OpCost op) { ops_.push_back(std::move(op)); }

  /// Of all ops, from forward to backward.
  std::int64_t kept_bytes() const;
  /// The most at once in addition to `kept_bytes`. Whoever runs the ops holds `input`, `output` and
  /// the output's gradient until backward is through.
  BytesHeld worst(const TensorSize& input, const TensorSize& output) const;

  /// The most at once of a forward pass that no backward pass follows: nothing is kept.
  BytesHeld worst_without_backward() const;

  OpWork forward_work() const { return work(&OpCost::forward_work); }
  OpWork backward_work() const { return work(&OpCost::backward_work); }
  OpWork again_work() const { return work(&OpCost::again_work); }

 private:
  OpWork work(OpWork OpCost::*part) const;
  BytesHeld worst_forward() const;
  BytesHeld worst_backward(const TensorSize& input, const TensorSize& output) const;

  std::vector<OpCost> ops_;
  int num_tensors_ = 0;
};

}  // namespace finetune::model
