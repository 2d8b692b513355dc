#pragma once
// SPDX-License-Identifier: Apache-2.0
// Reads what other programs say of how they packed a model's weights.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/json.hpp"

namespace finetune::model {

/// One object of settings, with its place for messages.
class SettingsReader {
 public:
  SettingsReader(const core::Json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& problem, const std::string& why,
                         const std::string& remedy) const {
    core::fail(core::ErrorKind::input, {where_, problem, why, remedy});
  }

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  std::int64_t integer(const char* key, std::int64_t otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_number_integer())
      fail(fmt::format("\"{}\" is no integer", key), "it says how the weights are packed",
           "Use the file the model was published with.");
    return object_[key].get<std::int64_t>();
  }
  bool boolean(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_boolean())
      fail(fmt::format("\"{}\" is neither true nor false", key),
           "it says how the weights are packed", "Use the file the model was published with.");
    return object_[key].get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_string())
      fail(fmt::format("\"{}\" is no string", key), "it says how the weights are packed",
           "Use the file the model was published with.");
    return object_[key].get<std::string>();
  }
  /// The object under `key`, named so in messages; empty without.
  SettingsReader object(const char* key) const {
    static const core::Json empty = core::Json::object();
    return {has(key) && object_[key].is_object() ? object_[key] : empty, where_ + ": " + key};
  }
  const core::Json& json() const { return object_; }
  const std::string& where() const { return where_; }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> all;
    if (!has(key) || !object_[key].is_array()) return all;
    for (const core::Json& entry : object_[key])
      if (entry.is_string()) all.push_back(entry.get<std::string>());
    return all;
  }

 private:
  const core::Json& object_;
  std::string where_;
};

}  // namespace finetune::model
