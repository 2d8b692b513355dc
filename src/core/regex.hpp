#pragma once
// SPDX-License-Identifier: Apache-2.0
// Regular expressions of other programs' files, as Python's `re` reads the common ones.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::core {

/// Immutable; a match that needs too many steps is none.
class Regex {
 public:
  /// Throws: ErrorKind::input beginning with `where` for what is no expression.
  Regex(const std::string& pattern, bool ignores_case, const std::string& where);

  /// Of each match in turn its first group that took part, or all of it where there is no group.
  std::vector<std::string> find_all(std::string_view text) const;
  /// Whether a match begins where the text does.
  bool matches_beginning(std::string_view text) const;
  /// Text without what matches.
  std::string removed_from(std::string_view text) const;
  /// What is between matches, in front of the first and behind the last one.
  std::vector<std::string> split(std::string_view text) const;
  /// Calls f(begin, end) for each match.
  void for_each(std::string_view text,
                const std::function<void(std::size_t, std::size_t)>& f) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace finetune::core
