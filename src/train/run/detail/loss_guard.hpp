#pragma once
// SPDX-License-Identifier: Apache-2.0
// Notices a loss that grows without becoming infinite.

#include <cstdint>
#include <optional>
#include <string>

#include "model/outputs.hpp"

namespace finetune::train {

/// A model that knows nothing guesses, and its loss is that of a guess. Training that ends far
/// above it, and above where it began, has made the model worse than none.
class LossGuard {
 public:
  /// What a loss is compared with: of a guess among the tokens of the vocabulary, or among labels.
  /// Losses of rewards, values and labels of which several hold have no such measure, and are not
  /// watched: they may be large in good order.
  LossGuard(const model::Outputs& outputs, std::int64_t vocab_size);

  /// After each step of a start, in their order. A message (with place, reason and remedy) for the
  /// first loss far beyond the limit, or the second in a row beyond it, and for that alone.
  std::optional<std::string> add(std::int64_t step, double loss);

 private:
  double guess_ = 0;   ///< loss of a guess; 0: nothing is watched
  double factor_ = 0;  ///< of it, and of the first loss, no usual loss exceeds
  std::int64_t num_choices_ = 0;
  bool is_of_tokens_ = true;
  std::optional<double> first_;
  bool is_above_ = false;  ///< the last loss was beyond the limit
  bool has_told_ = false;
};

}  // namespace finetune::train
