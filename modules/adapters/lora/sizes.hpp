#pragma once
// SPDX-License-Identifier: Apache-2.0
// Rank and alpha of each adapted module: the adapter's own, but where a pattern names the module.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/lora/settings.hpp"
#include "model/module_pattern.hpp"
#include "model/names.hpp"
#include "model/parameter_table.hpp"

namespace finetune::adapters::lora {

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
  /// `where` begins messages. Throws: ErrorKind::input, see model::ModulePattern.
  LowRankSizes(const Settings& settings, const std::string& where);

  std::int64_t rank(const std::string& module) const { return rank_of({module}); }
  double alpha(const std::string& module) const { return alpha_of({module}); }
  /// What the low-rank product is multiplied with.
  double scale(const std::string& module) const { return scale_of({module}); }
  /// The same of a row's module, whichever of its names a pattern has.
  std::int64_t rank(const model::Parameter& row) const {
    return rank_of(model::module_names(row.name));
  }
  double scale(const model::Parameter& row) const {
    return scale_of(model::module_names(row.name));
  }

  /// The entries that match none of `modules`.
  std::vector<std::string> unused(const std::vector<std::string>& modules) const;

 private:
  struct Entry {
    model::ModulePattern pattern;
    double value;
    std::string text;
  };
  static std::vector<Entry> read(const std::vector<std::string>& entries, const std::string& where);
  static const Entry* find(const std::vector<Entry>& entries,
                           const std::vector<std::string>& names);
  std::int64_t rank_of(const std::vector<std::string>& names) const;
  double alpha_of(const std::vector<std::string>& names) const;
  double scale_of(const std::vector<std::string>& names) const;

  std::int64_t rank_;
  double alpha_;
  bool use_rslora_;
  std::vector<Entry> ranks_;
  std::vector<Entry> alphas_;
};

}  // namespace finetune::adapters::lora
