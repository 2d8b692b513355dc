#pragma once
// SPDX-License-Identifier: Apache-2.0
// Rank and alpha of each adapted module: the adapter's own, but where a pattern names the module.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/lora/settings.hpp"

namespace finetune::adapters::lora {

/// A regular expression as PEFT matches it against a module's name: re.match(r"(.*\.)?(KEY)$").
/// Source: peft/utils/other.py, get_pattern_key.
class ModulePattern {
 public:
  /// One of `count` that every module is compared with. `where` begins messages. Throws:
  /// ErrorKind::input if it is no expression.
  ModulePattern(const std::string& key, const std::string& where, std::size_t count);

  /// Throws: ErrorKind::input if the match takes more steps than any useful expression.
  bool matches(std::string_view module) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string key_;
  std::string where_;
  std::uint32_t most_steps_;
};

/// "KEY=VALUE", the last '=' counts.
struct PatternValue {
  std::string key;
  double value = 0;

  /// Nothing for what is none.
  static std::optional<PatternValue> parse(std::string_view entry);
  /// The shortest text that reads back.
  std::string text() const;
};

/// The first pattern that matches counts.
class LowRankSizes {
 public:
  /// `where` begins messages. Throws: ErrorKind::input, see ModulePattern.
  LowRankSizes(const Settings& settings, const std::string& where);

  std::int64_t rank(std::string_view module) const;
  double alpha(std::string_view module) const;
  /// What the low-rank product is multiplied with.
  double scale(std::string_view module) const;

  /// The entries that match none of `modules`.
  std::vector<std::string> unused(const std::vector<std::string>& modules) const;

 private:
  struct Entry {
    ModulePattern pattern;
    double value;
    std::string text;
  };
  static std::vector<Entry> read(const std::vector<std::string>& entries, const std::string& where);
  static const Entry* find(const std::vector<Entry>& entries, std::string_view module);

  std::int64_t rank_;
  double alpha_;
  bool use_rslora_;
  std::vector<Entry> ranks_;
  std::vector<Entry> alphas_;
};

}  // namespace finetune::adapters::lora
