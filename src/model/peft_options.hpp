#pragma once
// SPDX-License-Identifier: Apache-2.0
// adapter_config.json: options of PEFT, read with errors that name them.

#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"

namespace finetune::model {

/// Every function throws ErrorKind::input, beginning with `where`, for a value of another type.
class PeftOptions {
 public:
  /// `in_order`: the same with its keys in the order of the file, if that is known. All outlive
  /// this.
  PeftOptions(const core::Json& config, const std::string& where,
              const nlohmann::ordered_json* in_order = nullptr);

  [[noreturn]] void fail(const std::string& problem, const std::string& why,
                         const std::string& remedy) const;
  /// The value that `key` has cannot be used, for the reason `why`.
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;
  /// Refuses every option that is on, neither in `known` nor one that says nothing about what an
  /// adapter's tensors mean.
  void refuse_others(const std::vector<std::string_view>& known) const;

  /// Whether it is on: PEFT writes null, false and empty lists for options that are not used.
  bool has(const char* key) const;
  bool boolean(const char* key) const;
  double number(const char* key, double otherwise) const;
  /// Sorted: PEFT writes sets in any order.
  std::vector<std::string> texts(const char* key) const;
  /// The keys of an object, in the order of the file if that is known.
  std::vector<std::string> keys(const char* key) const;

  const core::Json& config() const { return config_; }

 private:
  const core::Json& config_;
  const std::string& where_;
  const nlohmann::ordered_json* in_order_;
};

/// A value of the file for one line of a message.
std::string shown(const core::Json& value);

/// What a person can do about an adapter that cannot be read here.
inline constexpr const char* continue_elsewhere =
    "Continue it where it was trained, or train a new adapter here.";

}  // namespace finetune::model
