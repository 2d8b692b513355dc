#pragma once
// SPDX-License-Identifier: Apache-2.0
// Modules by name or by a regular expression, as PEFT matches them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace finetune::model {

/// As PEFT matches: the whole name, or its end behind a point.
bool is_named(const std::string& module, const std::string& name);

/// A regular expression for modules' names. Sources: PEFT's get_pattern_key and
/// check_target_module_exists (peft/utils/other.py, peft/tuners/tuners_utils.py).
class ModulePattern {
 public:
  enum class Matches {
    end_of_name,  ///< re.match(r"(.*\.)?(KEY)$"), as of rank_pattern
    whole_name,   ///< re.fullmatch(KEY), as of target_modules
  };

  /// One of `count` that every module is compared with. `where` begins messages. Throws:
  /// ErrorKind::input if it is no expression.
  ModulePattern(const std::string& key, const std::string& where, std::size_t count,
                Matches what = Matches::end_of_name);

  /// Throws: ErrorKind::input if the match takes more steps than any useful expression.
  bool matches(std::string_view module) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string key_;
  std::string where_;
  std::uint32_t most_steps_;
};

/// Modules of one entry of target_modules or exclude_modules: an end of their names, or, where it
/// has characters that no name has, an expression for the whole of them.
class ModuleName {
 public:
  /// As ModulePattern.
  ModuleName(const std::string& name, const std::string& where, std::size_t count = 1);

  bool matches(const std::string& module) const;
  /// Whether `name` is an expression.
  static bool is_pattern(std::string_view name);

 private:
  std::string name_;
  std::shared_ptr<const ModulePattern> pattern_;
};

}  // namespace finetune::model
