// SPDX-License-Identifier: Apache-2.0
#include "metrics/tensorboard/detail/wire.hpp"

#include <bit>
#include <optional>

namespace finetune::metrics {
namespace {

enum WireType : unsigned { varint_type = 0, eight_bytes = 1, counted = 2, four_bytes = 5 };

std::optional<std::uint64_t> take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// False if `rest` ends before.
bool skip(std::string_view& rest, unsigned wire_type) {
  std::uint64_t size = wire_type == four_bytes ? 4 : 8;
  if (wire_type == counted) {
    const auto count = take_varint(rest);
    if (!count) return false;
    size = *count;
  }
  if (size > rest.size()) return false;
  rest.remove_prefix(static_cast<std::size_t>(size));
  return true;
}

}  // namespace

void Message::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    data_ += static_cast<char>((value & 0x7f) | 0x80);
  data_ += static_cast<char>(value);
}

void Message::tag(int field, unsigned wire_type) {
  varint(static_cast<std::uint64_t>(field) << 3 | wire_type);
}

Message& Message::integer(int field, std::int64_t value) {
  if (value == 0) return *this;
  tag(field, varint_type);
  varint(static_cast<std::uint64_t>(value));
  return *this;
}

Message& Message::real(int field, double value) {
  if (value == 0) return *this;
  tag(field, eight_bytes);
  data_ += little_endian(std::bit_cast<std::uint64_t>(value));
  return *this;
}

Message& Message::one_of(int field, float value) {
  tag(field, four_bytes);
  data_ += little_endian(std::bit_cast<std::uint32_t>(value));
  return *this;
}

Message& Message::reals(int field, std::span<const double> values) {
  if (values.empty()) return *this;
  std::string packed;
  for (const double value : values)
    packed += little_endian(std::bit_cast<std::uint64_t>(value));
  return bytes(field, packed);
}

Message& Message::bytes(int field, std::string_view value) {
  tag(field, counted);
  varint(value.size());
  data_ += value;
  return *this;
}

std::int64_t integer_in(std::string_view message, int field) {
  while (!message.empty()) {
    const auto tag = take_varint(message);
    if (!tag) return 0;
    const auto wire_type = static_cast<unsigned>(*tag & 7);
    const bool is_wanted = *tag >> 3 == static_cast<std::uint64_t>(field);
    if (wire_type == varint_type) {
      const auto value = take_varint(message);
      if (!value || is_wanted) return static_cast<std::int64_t>(value.value_or(0));
    } else if (!skip(message, wire_type)) {
      return 0;
    }
  }
  return 0;
}

}  // namespace finetune::metrics
