#pragma once
// SPDX-License-Identifier: Apache-2.0
// Messages of Protocol Buffers, field by field: as much as event files need.
// Format: https://protobuf.dev/programming-guides/encoding

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace finetune::metrics {

/// A message that is being written.
class Message {
 public:
  Message& integer(int field, std::int64_t value);    ///< int32, int64 or an enum; left out if 0
  Message& real(int field, double value);             ///< left out if 0
  Message& one_of(int field, float value);            ///< there even if 0: it says which it is
  Message& bytes(int field, std::string_view value);  ///< a text or a message, too

  Message& reals(int field, std::span<const double> values);  ///< packed; left out if empty

  const std::string& data() const { return data_; }

 private:
  void varint(std::uint64_t value);
  void tag(int field, unsigned wire_type);

  std::string data_;
};

/// `value` in so many bytes, the least significant first.
template <typename Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes(sizeof(Unsigned), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

/// The integer `field` of a message; 0 without one, and from where the message cannot be read.
std::int64_t integer_in(std::string_view message, int field);

}  // namespace finetune::metrics
