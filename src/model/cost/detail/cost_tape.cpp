// SPDX-License-Identifier: Apache-2.0
#include "model/cost/detail/cost_tape.hpp"

#include <algorithm>
#include <map>

namespace finetune::model {
namespace {

/// Tensors by number: what they hold, and by how many ops they are kept.
class KeptTensors {
 public:
  void add(const OpCost& op) {
    for (const TensorSize& tensor : op.kept)
      if (counts_[tensor.number]++ == 0) bytes_ += tensor.bytes;
  }
  void remove(const OpCost& op) {
    for (const TensorSize& tensor : op.kept)
      if (--counts_[tensor.number] == 0) bytes_ -= tensor.bytes;
  }
  bool holds(int number) const {
    const auto found = counts_.find(number);
    return found != counts_.end() && found->second > 0;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::map<int, int> counts_;
  std::int64_t bytes_ = 0;
};

/// Between which ops a tensor is alive in the forward pass, though nobody may keep it.
struct Life {
  int made_by = -1;  ///< -1: before the first
  int last_read_by = -1;
  std::int64_t bytes = 0;
};

std::map<int, Life> lives_of(const std::vector<OpCost>& ops) {
  std::map<int, Life> lives;
  for (int i = 0; i < std::ssize(ops); ++i) {
    const OpCost& op = ops[static_cast<std::size_t>(i)];
    for (const int number : op.outputs)
      lives[number].made_by = i;
    for (const TensorSize& tensor : op.inputs) {
      lives[tensor.number].last_read_by = i;
      lives[tensor.number].bytes = tensor.bytes;
    }
  }
  return lives;
}

}  // namespace

void OpWork::add(const OpWork& other, int times) {
  for (int i = 0; i < times; ++i) {
    products.insert(products.end(), other.products.begin(), other.products.end());
    attention.insert(attention.end(), other.attention.begin(), other.attention.end());
    passes.insert(passes.end(), other.passes.begin(), other.passes.end());
    travels.insert(travels.end(), other.travels.begin(), other.travels.end());
  }
}

TensorSize CostTape::tensor(std::int64_t rows, std::int64_t columns, std::int64_t element_bytes) {
  return {num_tensors_++, rows, columns, rows * columns * element_bytes};
}

std::int64_t CostTape::kept_bytes() const {
  KeptTensors kept;
  for (const OpCost& op : ops_)
    kept.add(op);
  return kept.bytes();
}

BytesHeld CostTape::worst(const TensorSize& input, const TensorSize& output) const {
  const BytesHeld worst = larger(worst_forward(), worst_backward(input, output));
  return worst + -kept_bytes();
}

BytesHeld CostTape::worst_forward() const {
  const std::map<int, Life> lives = lives_of(ops_);
  BytesHeld worst;
  KeptTensors kept;
  for (int i = 0; i < std::ssize(ops_); ++i) {
    const OpCost& op = ops_[static_cast<std::size_t>(i)];
    kept.add(op);
    std::int64_t alive = kept.bytes();
    for (const auto& [number, life] : lives)
      if (life.made_by < i && life.last_read_by >= i && !kept.holds(number)) alive += life.bytes;
    for (const BytesHeld& moment : op.forward)
      worst = larger(worst, moment + alive);
  }
  return worst;
}

BytesHeld CostTape::worst_without_backward() const {
  const std::map<int, Life> lives = lives_of(ops_);
  BytesHeld worst;
  for (int i = 0; i < std::ssize(ops_); ++i) {
    std::int64_t alive = 0;
    for (const auto& [number, life] : lives)
      if (life.made_by < i && life.last_read_by >= i) alive += life.bytes;
    for (const BytesHeld& moment : ops_[static_cast<std::size_t>(i)].forward)
      worst = larger(worst, moment + alive);
  }
  return worst;
}

BytesHeld CostTape::worst_backward(const TensorSize& input, const TensorSize& output) const {
  KeptTensors kept;
  for (const OpCost& op : ops_)
    kept.add(op);
  const std::int64_t held_input = kept.holds(input.number) ? 0 : input.bytes;
  // The output and its gradient.
  const std::int64_t held = held_input + 2 * output.bytes;
  BytesHeld worst;
  std::map<int, std::int64_t> gradients;
  const auto sum_of_gradients = [&] {
    std::int64_t sum = 0;
    for (const auto& [number, bytes] : gradients)
      sum += bytes;
    return sum;
  };
  for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) {
    const std::int64_t alive = held + kept.bytes() + sum_of_gradients();
    for (const BytesHeld& moment : op->backward)
      worst = larger(worst, moment + alive);
    kept.remove(*op);
    std::int64_t of_outputs = 0;
    for (const int number : op->outputs) {
      of_outputs += gradients[number];
      gradients.erase(number);
    }
    // Several gradients of one tensor are added up in place.
    int earliest = -1;
    for (const InputGradient& gradient : op->gradients) {
      gradients[gradient.of] = std::max(gradients[gradient.of], gradient.bytes);
      if (gradient.bytes == 0 && (earliest < 0 || gradient.of < earliest)) earliest = gradient.of;
    }
    // Of those that share the memory of the outputs' own the one that was made first is the last to
    // be read.
    if (earliest >= 0) gradients[earliest] = std::max(gradients[earliest], of_outputs);
  }
  return worst;
}

OpWork CostTape::work(OpWork OpCost::*part) const {
  OpWork sum;
  for (const OpCost& op : ops_)
    sum.add(op.*part);
  return sum;
}

}  // namespace finetune::model
