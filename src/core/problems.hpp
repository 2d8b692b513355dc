#pragma once
// SPDX-License-Identifier: Apache-2.0
// Mistakes that do not depend on each other, reported at once.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace finetune::core {

class Problems {
 public:
  /// Calls `f`. What is wrong with input, deck or output is kept, once each; other errors pass.
  /// Returns whether nothing was.
  bool collect(const std::function<void()>& f);

  bool any() const { return !messages_.empty(); }

  /// The kind of the first problem, and all messages, a line each or several. Of more than one the
  /// last line says how many there are, behind `where`. Nothing if there is none.
  std::optional<Error> error(const std::string& where) const;

 private:
  ErrorKind kind_ = ErrorKind::input;
  std::vector<std::string> messages_;
};

}  // namespace finetune::core
