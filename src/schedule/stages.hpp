#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which units each part of a pass needs, in the order of the forward pass.

#include <cstdint>
#include <vector>

namespace finetune::schedule {

/// What is gathered together, as far as its order matters.
struct Unit {
  bool is_trained = true;
  /// Read by many stages and small: gathered once per step and released at its end.
  bool stays_gathered = false;
};

/// Stage 0 is the embedding, stages 1 to L are the blocks, stage L + 1 is the head. A unit may
/// belong to several: a tied embedding to the first and the last, a bucket of everything to all,
/// adapters to those of their matrices.
class Stages {
 public:
  /// `units_of_stages`: of at least two stages, each without repetitions, as indices of `units`.
  Stages(std::vector<std::vector<int>> units_of_stages, std::vector<Unit> units);

  int num_stages() const { return static_cast<int>(of_stages_.size()); }
  int embedding() const { return 0; }
  int block(std::int64_t i_layer) const { return 1 + static_cast<int>(i_layer); }
  int head() const { return num_stages() - 1; }
  std::int64_t layer(int stage) const { return stage - 1; }

  int num_units() const { return static_cast<int>(units_.size()); }
  const Unit& unit(int i) const { return units_[static_cast<std::size_t>(i)]; }

  const std::vector<int>& units(int stage) const {
    return of_stages_[static_cast<std::size_t>(stage)];
  }
  /// Units that neighbouring stages share, or that stay gathered: held through the whole pass.
  const std::vector<int>& all_along() const { return all_along_; }
  /// Units whose gradient is complete once backward has passed `stage`: no earlier one has them.
  const std::vector<int>& completed(int stage) const {
    return completed_[static_cast<std::size_t>(stage)];
  }

 private:
  std::vector<std::vector<int>> of_stages_;
  std::vector<Unit> units_;
  std::vector<std::vector<int>> completed_;
  std::vector<int> all_along_;
};

}  // namespace finetune::schedule
