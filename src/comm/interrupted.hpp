#pragma once
// SPDX-License-Identifier: Apache-2.0
// Long work that ranks leave together, because some rank is to stop.

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>

namespace finetune::comm {

/// Thrown on all ranks alike. No error: the next start goes on with what is kept.
class Interrupted : public std::exception {
 public:
  /// `what`: "1,000 of 5,000 samples are tokenised".
  explicit Interrupted(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

/// Lets the ranks leave work of many units together. Without functions they never do.
struct Leave {
  /// Work of `num_units` begins, as many on every rank. Collective.
  std::function<void(std::int64_t num_units)> begin = {};
  /// A unit is done that is not the last. `wants_to`: this rank cannot go on. True, on every rank,
  /// if the work is to be left here. Collective.
  std::function<bool(bool wants_to)> after_unit = {};
};

}  // namespace finetune::comm
