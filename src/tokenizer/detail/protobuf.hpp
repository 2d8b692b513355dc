#pragma once
// SPDX-License-Identifier: Apache-2.0
// The fields of a protobuf message, one after the other, with every length checked:
// https://protobuf.dev/programming-guides/encoding/

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace finetune::tokenizer {

/// Reads a message that must outlive it. Throws: ErrorKind::input, at `place`, if it is damaged or
/// a value is of another kind than asked for.
class ProtobufReader {
 public:
  ProtobufReader(std::string_view message, std::string place);

  /// Moves to the next field; false behind the last.
  bool next();

  /// Of the current field.
  std::uint64_t number() const { return number_; }
  std::uint64_t integer() const;
  bool boolean() const { return integer() != 0; }
  float real() const;
  /// A text, bytes, or a message within.
  std::string_view bytes() const;

  [[noreturn]] void refuse(const std::string& problem, const std::string& why) const;

 private:
  enum class Kind : std::uint8_t { integer = 0, eight_bytes = 1, bytes = 2, four_bytes = 5 };

  std::uint64_t varint();
  std::string_view take(std::uint64_t count);
  void require(Kind kind) const;

  std::string_view rest_;
  std::string place_;
  std::uint64_t number_ = 0;
  Kind kind_ = Kind::integer;
  std::uint64_t integer_ = 0;
  std::string_view bytes_;
};

}  // namespace finetune::tokenizer
