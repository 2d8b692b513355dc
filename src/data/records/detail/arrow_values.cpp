// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/arrow_values.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/detail/json_index.hpp"

namespace finetune::data::arrow_ipc {
namespace {

constexpr std::int64_t bytes_of_value = 16;  // in JSON

OrderedJson integer(Bytes bytes, int bits) {
  switch (bits) {
    case 8:
      return number_in<std::int8_t>(bytes);
    case 16:
      return number_in<std::int16_t>(bytes);
    case 32:
      return number_in<std::int32_t>(bytes);
    default:
      return number_in<std::int64_t>(bytes);
  }
}

OrderedJson natural(Bytes bytes, int bits) {
  switch (bits) {
    case 8:
      return number_in<std::uint8_t>(bytes);
    case 16:
      return number_in<std::uint16_t>(bytes);
    case 32:
      return number_in<std::uint32_t>(bytes);
    default:
      return number_in<std::uint64_t>(bytes);
  }
}

}  // namespace

void Values::spend(std::int64_t bytes) {
  spent_ += bytes;
  if (spent_ > 4 * longest_entry_bytes)
    fail_binary(where_,
                fmt::format("is longer than {}", core::human_bytes(4 * longest_entry_bytes)));
}

Bytes Values::part(Bytes bytes, std::int64_t at, std::int64_t size) const {
  if (at < 0 || size < 0 || at > std::ssize(bytes) || size > std::ssize(bytes) - at)
    fail_binary(where_, "a value leads out of its buffer");
  return bytes.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
}

bool Values::bit(Bytes bits, std::int64_t i) const {
  return (number_in<std::uint8_t>(part(bits, i / 8, 1)) >> (i % 8) & 1) != 0;
}

std::int64_t Values::place(const Column& column, std::int64_t i) const {
  if (column.field->is_large) return number_in<std::int64_t>(part(column.places, 8 * i, 8));
  return number_in<std::int32_t>(part(column.places, 4 * i, 4));
}

OrderedJson Values::number(const Column& column, std::int64_t i) {
  const int bits = column.field->bits;
  const Bytes bytes = part(column.values, i * (bits / 8), bits / 8);
  if (column.field->number == Number::integer) return integer(bytes, bits);
  if (column.field->number == Number::natural) return natural(bytes, bits);
  if (bits == 32) return number_in<float>(bytes);
  return number_in<double>(bytes);
}

OrderedJson Values::text(Bytes letters) {
  spend(std::ssize(letters));
  std::string text(reinterpret_cast<const char*>(letters.data()), letters.size());
  if (const auto bad = core::invalid_utf8(text))
    core::fail(core::ErrorKind::input,
               {where_, fmt::format("byte {} of a text is not valid UTF-8", *bad + 1),
                "texts are UTF-8", "Write the file again from UTF-8."});
  return text;
}

OrderedJson Values::view(const Column& column, std::int64_t i) {
  constexpr int shortest_elsewhere = 13;
  const Bytes bytes = part(column.values, 16 * i, 16);
  const auto length = number_in<std::int32_t>(bytes);
  if (length < shortest_elsewhere) return text(part(bytes.subspan(4), 0, length));
  const auto buffer = number_in<std::int32_t>(bytes.subspan(8));
  const auto at = number_in<std::int32_t>(bytes.subspan(12));
  if (buffer < 0 || buffer >= std::ssize(column.views))
    fail_binary(where_, "a value leads out of its buffers");
  return text(part(column.views[static_cast<std::size_t>(buffer)], at, length));
}

OrderedJson Values::list(const Column& column, std::int64_t begin, std::int64_t end) {
  const Column& child = column.children.front();
  if (begin < 0 || end < begin || end > child.length)
    fail_binary(where_, "a list leads out of its values");
  OrderedJson values = OrderedJson::array();
  for (std::int64_t j = begin; j < end; ++j)
    values.push_back(at(child, j));
  return values;
}

OrderedJson Values::coded(const Column& column, std::int64_t i) {
  const int bits = column.field->index_bits;
  const Bytes bytes = part(column.values, i * (bits / 8), bits / 8);
  const OrderedJson index =
      column.field->index_is_signed ? integer(bytes, bits) : natural(bytes, bits);
  const auto found = dictionaries_.find(*column.field->dictionary);
  if (found == dictionaries_.end()) fail_binary(where_, "the dictionary of its values is missing");
  const bool is_there = index >= 0 && index < found->second->size();
  if (!is_there) fail_binary(where_, "a value leads out of its dictionary");
  return found->second->value(index.get<std::int64_t>(), dictionaries_, where_);
}

OrderedJson Values::at(const Column& column, std::int64_t i) {
  spend(bytes_of_value);
  if (i < 0 || i >= column.length) fail_binary(where_, "a column ends before it");
  if (column.has_nulls && column.field->kind != Kind::null && !bit(column.validity, i))
    return nullptr;
  if (column.field->dictionary) return coded(column, i);
  switch (column.field->kind) {
    case Kind::number:
      return number(column, i);
    case Kind::boolean:
      return bit(column.values, i);
    case Kind::text: {
      const std::int64_t begin = place(column, i);
      const std::int64_t end = place(column, i + 1);
      return text(part(column.values, begin, begin < 0 ? 0 : end - begin));
    }
    case Kind::text_view:
      return view(column, i);
    case Kind::list:
      return list(column, place(column, i), place(column, i + 1));
    case Kind::fixed_list: {
      const std::int64_t size = column.field->fixed_size;
      return list(column, i * size, (i + 1) * size);
    }
    case Kind::structure: {
      OrderedJson values = OrderedJson::object();
      for (const Column& child : column.children)
        if (child.field->is_readable) values[child.field->name] = at(child, i);
      return values;
    }
    default:
      return nullptr;
  }
}

}  // namespace finetune::data::arrow_ipc
