#pragma once
// SPDX-License-Identifier: Apache-2.0
// Early stopping: how often in a row a run has measured nothing better.

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/run_state.hpp"
#include "core/json.hpp"
#include "train/input/input.hpp"

namespace finetune::train {

/// As transformers' EarlyStoppingCallback counts.
class Patience {
 public:
  /// `limit`: so many scores in a row without a better one are too many; 0: never. `threshold`: by
  /// how much one has to be better to count. `state`: what to_json wrote, or null. That of another
  /// score is forgotten: `name` is what is measured now.
  Patience(std::int64_t limit, double threshold, const std::string& name, const core::Json& state);

  /// A score was measured, of the name that this is about.
  void add(const checkpoint::Score& score);

  bool is_lost() const { return limit_ > 0 && num_worse_ >= limit_; }
  /// "nothing better than arc/accuracy 0.5 in 3 measurements".
  std::string why() const;
  /// Nothing where nothing was measured.
  std::optional<core::Json> to_json() const;

 private:
  std::int64_t limit_;
  double threshold_;
  std::optional<checkpoint::Score> best_;
  std::int64_t num_worse_ = 0;  ///< since the last that was better
};

/// Of a run with this deck. `state`: as its constructor takes it.
Patience patience_of(const Input& input, const core::Json& state);

}  // namespace finetune::train
