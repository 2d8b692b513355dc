// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detail/protobuf.hpp"

#include <fmt/format.h>

#include <bit>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::tokenizer {

ProtobufReader::ProtobufReader(std::string_view message, std::string place)
    : rest_(message), place_(std::move(place)) {}

void ProtobufReader::refuse(const std::string& problem, const std::string& why) const {
  core::fail(core::ErrorKind::input, {core::one_line(place_), core::one_line(problem),
                                      core::one_line(why), "Get the file again."});
}

std::string_view ProtobufReader::take(std::uint64_t count) {
  if (count > rest_.size()) {
    refuse(fmt::format("a field has {} bytes, and {} are left", count, rest_.size()),
           "the file is cut off or damaged");
  }
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return taken;
}

std::uint64_t ProtobufReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  refuse("a number of more than ten bytes", "the file is damaged");
}

bool ProtobufReader::next() {
  if (rest_.empty()) return false;
  const std::uint64_t tag = varint();
  number_ = tag >> 3;
  kind_ = static_cast<Kind>(tag & 7);
  if (number_ == 0) refuse("field 0", "fields count from 1");
  switch (kind_) {
    case Kind::integer:
      integer_ = varint();
      return true;
    case Kind::eight_bytes:
      bytes_ = take(8);
      return true;
    case Kind::bytes:
      bytes_ = take(varint());
      return true;
    case Kind::four_bytes:
      bytes_ = take(4);
      return true;
  }
  refuse(fmt::format("wire type {}", tag & 7), "this is not a protobuf message");
}

void ProtobufReader::require(Kind kind) const {
  if (kind_ == kind) return;
  refuse(fmt::format("field {} is of another type than expected", number_),
         "this is not the message it should be");
}

std::uint64_t ProtobufReader::integer() const {
  require(Kind::integer);
  return integer_;
}

float ProtobufReader::real() const {
  require(Kind::four_bytes);
  std::uint32_t bits = 0;
  for (unsigned i = 0; i < 4; ++i)
    bits |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
  return std::bit_cast<float>(bits);
}

std::string_view ProtobufReader::bytes() const {
  require(Kind::bytes);
  return bytes_;
}

}  // namespace finetune::tokenizer
