// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/mds_values.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/detail/binary.hpp"

namespace finetune::data {
namespace {

constexpr std::size_t most_mds_dims = 63;  // as the writer has it

struct MdsNumber {
  std::string_view name;
  int code;  ///< of numpy's types in arrays that name none
  std::size_t bytes;
  OrderedJson (*read)(Bytes);
};

template <typename T>
OrderedJson read_mds(Bytes bytes) {
  return number_in<T>(bytes);
}

constexpr auto mds_numbers = std::to_array<MdsNumber>({{"uint8", 8, 1, read_mds<std::uint8_t>},
                                                       {"int8", 9, 1, read_mds<std::int8_t>},
                                                       {"uint16", 16, 2, read_mds<std::uint16_t>},
                                                       {"int16", 17, 2, read_mds<std::int16_t>},
                                                       {"uint32", 32, 4, read_mds<std::uint32_t>},
                                                       {"int32", 33, 4, read_mds<std::int32_t>},
                                                       {"float32", 34, 4, read_mds<float>},
                                                       {"uint64", 64, 8, read_mds<std::uint64_t>},
                                                       {"int64", 65, 8, read_mds<std::int64_t>},
                                                       {"float64", 66, 8, read_mds<double>}});

const MdsNumber* mds_number(std::string_view name) {
  for (const MdsNumber& number : mds_numbers)
    if (number.name == name) return &number;
  return nullptr;
}

std::string mds_text(Bytes bytes, const std::string& where) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (const auto bad = core::invalid_utf8(text))
    fail_binary(where, fmt::format("byte {} is not valid UTF-8", *bad + 1));
  return text;
}

/// The next bytes of a value, which it does without from here on.
Bytes take_mds(Bytes& bytes, std::size_t size, const std::string& where) {
  if (size > bytes.size()) fail_binary(where, "the array ends early");
  const Bytes taken = bytes.first(size);
  bytes = bytes.subspan(size);
  return taken;
}

/// Lists in lists, with the numbers at `bytes`, of which there are enough.
OrderedJson mds_list(Bytes& bytes, const MdsNumber& number, std::span<const std::uint64_t> shape) {
  if (shape.empty()) {
    OrderedJson value = number.read(bytes);
    bytes = bytes.subspan(number.bytes);
    return value;
  }
  OrderedJson list = OrderedJson::array();
  for (std::uint64_t i = 0; i < shape.front(); ++i)
    list.push_back(mds_list(bytes, number, shape.subspan(1)));
  return list;
}

std::vector<std::uint64_t> mds_shape_in(Bytes& bytes, const std::string& where) {
  const auto begin = number_in<std::uint8_t>(take_mds(bytes, 1, where));
  const std::size_t width = std::size_t{1} << (begin % 4);
  std::vector<std::uint64_t> shape;
  for (int dim = 0; dim < begin / 4; ++dim) {
    std::array<std::byte, 8> wide{};
    const Bytes narrow = take_mds(bytes, width, where);
    std::copy(narrow.begin(), narrow.end(), wide.begin());
    shape.push_back(number_in<std::uint64_t>(wide));
  }
  return shape;
}

std::vector<std::uint64_t> mds_shape(std::string_view text, const std::string& where) {
  std::vector<std::uint64_t> shape;
  while (!text.empty()) {
    const std::string_view digits = text.substr(0, text.find(','));
    std::uint64_t dim = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), dim);
    if (error != std::errc() || end != digits.data() + digits.size())
      fail_binary(where, "the shape of its arrays is no list of numbers");
    shape.push_back(dim);
    if (shape.size() > most_mds_dims) fail_binary(where, "its arrays have too many dimensions");
    text.remove_prefix(std::min(digits.size() + 1, text.size()));
  }
  return shape;
}

/// "ndarray", "ndarray:int32" or "ndarray:int32:2,3": what the name does not say, the bytes do.
std::optional<OrderedJson> mds_array(std::string_view name, Bytes bytes, const std::string& where) {
  constexpr int float16 = 18;
  const std::size_t colon = std::min(name.find(':'), name.size());
  const MdsNumber* number = mds_number(name.substr(0, colon));
  if (name.empty()) {
    const int code = number_in<std::uint8_t>(take_mds(bytes, 1, where));
    for (const MdsNumber& each : mds_numbers)
      if (each.code == code) number = &each;
    if (number == nullptr && code != float16)
      fail_binary(where, "the array's numbers are of no type");
  }
  if (number == nullptr) return std::nullopt;
  std::vector<std::uint64_t> shape;
  if (colon < name.size())
    shape = mds_shape(name.substr(colon + 1), where);
  else
    shape = mds_shape_in(bytes, where);
  std::uint64_t count = bytes.size() / number->bytes;
  for (const std::uint64_t dim : shape)
    count = dim > 0 && count % dim == 0 ? count / dim : 0;
  if (count != 1 || bytes.size() % number->bytes != 0)
    fail_binary(where, "the array has not as many numbers as its shape");
  return mds_list(bytes, *number, shape);
}

}  // namespace

std::optional<OrderedJson> mds_value(const std::string& encoding, Bytes bytes,
                                     const std::string& where) {
  if (encoding == "str" || encoding == "str_decimal") return mds_text(bytes, where);
  if (encoding == "json") {
    return core::ordered_json(mds_text(bytes, where), where);
  }
  if (encoding == "str_int" || encoding == "str_float") {
    const OrderedJson value = OrderedJson::parse(mds_text(bytes, where), nullptr, false);
    if (!value.is_number()) fail_binary(where, "is no number");
    return value;
  }
  if (encoding == "ndarray") return mds_array("", bytes, where);
  if (encoding.starts_with("ndarray:"))
    return mds_array(std::string_view(encoding).substr(8), bytes, where);
  const MdsNumber* number = mds_number(encoding == "int" ? "int64" : encoding);
  if (number == nullptr) return std::nullopt;
  if (bytes.size() != number->bytes)
    fail_binary(where, fmt::format("a number has {} bytes", bytes.size()));
  return number->read(bytes);
}

}  // namespace finetune::data
