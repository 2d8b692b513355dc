#pragma once
// SPDX-License-Identifier: Apache-2.0
// Hostile JSON read event by event, so that nothing is built in memory that the
// format does not have.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.hpp"

namespace finetune::weights {

/// Receives the events of a JSON text; every event a subclass does not take is refused.
class JsonEvents : public nlohmann::json_sax<core::Json> {
 public:
  /// `where` begins every message; `first_byte` is the position of the text in its file.
  explicit JsonEvents(std::string where, std::int64_t first_byte = 0)
      : where_(std::move(where)), first_byte_(first_byte) {}

  /// Parses all of `text`. Throws: ErrorKind::input.
  void parse(std::string_view text);

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_unsigned(number_unsigned_t) override { return unexpected("a number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool string(string_t&) override { return unexpected("a string"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool start_object(std::size_t) override { return unexpected("an object"); }
  bool key(string_t&) override { return unexpected("a key"); }
  bool end_object() override { return unexpected("the end of an object"); }
  bool start_array(std::size_t) override { return unexpected("an array"); }
  bool end_array() override { return unexpected("the end of an array"); }
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override;

 protected:
  /// Where in the text the reader is, for messages: `tensor "x", "shape"`.
  virtual std::string place() const = 0;

  /// Throws: ErrorKind::input, saying that `what` does not belong at place().
  bool unexpected(std::string_view what) const;
  [[noreturn]] void refuse(const std::string& problem, const std::string& why) const;

  const std::string& where() const { return where_; }

 private:
  std::string where_;
  std::int64_t first_byte_;
};

}  // namespace finetune::weights
