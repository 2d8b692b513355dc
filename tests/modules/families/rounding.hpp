#pragma once
// SPDX-License-Identifier: Apache-2.0
// How far results may be from transformers' numbers, by how far these are from exact ones.

#include <algorithm>
#include <string>

#include "core/json.hpp"
#include "support/golden.hpp"

namespace finetune::golden_test {

/// The bounds of one model. Golden numbers are transformers' in fp32, and
/// golden/models/rounding.json has how far those are from its own in fp64 where that is much,
/// because a model is ill-conditioned: the numbers may be off by that, and ours by twice as much.
class Rounding {
 public:
  explicit Rounding(const std::string& model) {
    const core::Json all = core::read_json(tests::golden("models/rounding.json"), 1 << 20);
    if (all.contains(model)) recorded_ = all.at(model);
  }

  /// Of a logit.
  double logits() const { return bound("logits", 3e-5); }
  /// Of an entry, as part of the largest one of its tensor.
  double gradient(const std::string& tensor) const { return bound("grad." + tensor, 2e-5); }

 private:
  double bound(const std::string& name, double usual) const {
    return std::max(usual, 3 * recorded_.value(name, 0.0));
  }

  core::Json recorded_ = core::Json::object();
};

}  // namespace finetune::golden_test
