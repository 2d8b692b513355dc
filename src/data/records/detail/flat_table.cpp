// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/flat_table.hpp"

#include "core/error.hpp"

namespace finetune::data {

FlatTable FlatTable::root(std::span<const std::byte> buffer, const std::string& where) {
  const FlatTable begin(buffer, 0, where);
  return {buffer, begin.target(0), where};
}

FlatTable::FlatTable(std::span<const std::byte> buffer, std::size_t at, const std::string& where)
    : buffer_(buffer), where_(&where), at_(at) {
  if (at == 0) return;  // the buffer itself
  const auto back = number_in<std::int32_t>(bytes(at, 4));
  const std::int64_t description = static_cast<std::int64_t>(at) - back;
  const auto begin = static_cast<std::size_t>(std::max<std::int64_t>(description, 0));
  if (description < 0) bytes(buffer_.size(), 1);
  const auto size = number_in<std::uint16_t>(bytes(begin, 2));
  if (size > 4) fields_ = bytes(begin + 4, size - 4u);
}

std::span<const std::byte> FlatTable::bytes(std::size_t at, std::size_t size) const {
  if (at <= buffer_.size() && size <= buffer_.size() - at) return buffer_.subspan(at, size);
  core::fail(core::ErrorKind::input, {*where_, "its description is damaged",
                                      "it leads out of itself", "Copy or write the file again."});
}

std::optional<std::size_t> FlatTable::place(int field) const {
  const std::size_t at = 2 * static_cast<std::size_t>(field);
  if (at + 2 > fields_.size()) return std::nullopt;
  const auto from_table = number_in<std::uint16_t>(fields_.subspan(at));
  if (from_table == 0) return std::nullopt;
  return at_ + from_table;
}

std::size_t FlatTable::target(std::size_t at) const {
  return at + number_in<std::uint32_t>(bytes(at, 4));
}

std::span<const std::byte> FlatTable::elements(std::size_t at, std::size_t size) const {
  const std::size_t begin = target(at);
  const auto count = number_in<std::uint32_t>(bytes(begin, 4));
  return bytes(begin + 4, count * size);
}

std::string FlatTable::text(int field) const {
  const auto at = place(field);
  if (!at) return "";
  const auto letters = elements(*at, 1);
  return {reinterpret_cast<const char*>(letters.data()), letters.size()};
}

std::optional<FlatTable> FlatTable::table(int field) const {
  const auto at = place(field);
  if (!at) return std::nullopt;
  return FlatTable(buffer_, target(*at), *where_);
}

std::vector<FlatTable> FlatTable::tables(int field) const {
  std::vector<FlatTable> made;
  const auto at = place(field);
  if (!at) return made;
  const auto references = elements(*at, 4);
  const auto begin = static_cast<std::size_t>(references.data() - buffer_.data());
  for (std::size_t i = 0; i < references.size(); i += 4)
    made.push_back({buffer_, target(begin + i), *where_});
  return made;
}

std::span<const std::byte> FlatTable::structs(int field, std::size_t size) const {
  const auto at = place(field);
  return at ? elements(*at, size) : std::span<const std::byte>();
}

}  // namespace finetune::data
