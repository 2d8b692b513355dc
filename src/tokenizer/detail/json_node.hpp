#pragma once
// SPDX-License-Identifier: Apache-2.0
// A value inside tokenizer.json together with its place, so that every refusal can name it.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"

namespace finetune::tokenizer {

/// Refers to a value of a document that must outlive it. Throws ErrorKind::input with the place of
/// the value whenever it is not of the type asked for.
class JsonNode {
 public:
  /// `place` is shown to users: "model/tokenizer.json: pre_tokenizer.pretokenizers[1]".
  JsonNode(const core::Json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  const core::Json& value() const { return *value_; }
  const std::string& place() const { return place_; }

  /// The member `key`; nothing if it is absent or null.
  std::optional<JsonNode> find(std::string_view key) const;
  JsonNode at(std::string_view key) const;

  std::string text(std::string_view key) const;
  bool boolean(std::string_view key) const;
  bool boolean(std::string_view key, bool fallback) const;
  /// A whole number in [0, 2^31).
  std::int32_t id(std::string_view key) const;
  std::vector<JsonNode> list(std::string_view key) const;

  std::string as_text() const;
  std::int32_t as_id() const;
  std::vector<JsonNode> as_list() const;

  /// Refuses any member that is not in `keys`: what is not understood must not be ignored.
  void only(std::initializer_list<std::string_view> keys) const;

  /// Refuses the step about to be added to a chain of `num_steps` if the chain is absurdly long:
  /// each step may call the next one, and each may make the text longer.
  void limit_steps(std::size_t num_steps) const;

  [[noreturn]] void refuse(const std::string& problem, const std::string& why,
                           const std::string& remedy = "") const;
  /// For a part of the format this program does not have; `supported` lists what it has.
  [[noreturn]] void refuse_type(const std::string& type, const std::string& supported) const;

 private:
  const core::Json* value_;
  std::string place_;
};

/// Refuses text that the steps of a file blew up from `before` to `after` bytes; no real normalizer
/// comes near the limit.
void check_growth(std::size_t before, std::size_t after);

}  // namespace finetune::tokenizer
