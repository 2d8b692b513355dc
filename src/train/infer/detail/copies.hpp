#pragma once
// SPDX-License-Identifier: Apache-2.0
// Copies of a model that share work out: what one has found out, all get to know.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "train/step/passes.hpp"

namespace finetune::train {

/// Of a model that has no other copies there is one. Functions but size and rank are collective on
/// dp_replicate.
class Copies {
 public:
  explicit Copies(const Engine& engine) : copies_(engine.shards.groups().dp_replicate.get()) {}

  std::size_t size() const {
    return copies_ == nullptr ? 1 : static_cast<std::size_t>(copies_->size());
  }
  std::size_t rank() const {
    return copies_ == nullptr ? 0 : static_cast<std::size_t>(copies_->rank());
  }
  /// Adds up the values of all copies.
  void all_reduce(std::span<double> values) const {
    if (copies_ != nullptr) copies_->communicator().all_reduce(values, comm::Reduce::sum);
  }
  std::vector<std::string> all_gather_text(const std::string& text) const {
    if (copies_ == nullptr) return {text};
    return copies_->communicator().all_gather_text(text);
  }

 private:
  const comm::Group* copies_;  ///< null: there is one
};

}  // namespace finetune::train
