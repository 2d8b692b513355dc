#pragma once
// SPDX-License-Identifier: Apache-2.0
// Flatbuffers that others wrote, read without their schema: tables whose fields have numbers.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/records/detail/binary.hpp"

namespace finetune::data {

/// A table in a buffer. A field that is not there has its default. Every place is checked before it
/// is read. Throws: ErrorKind::input beginning with the table's `where`, for places outside of the
/// buffer. Source: FlatBuffers Binary Format (flatbuffers.dev, "internals").
class FlatTable {
 public:
  /// The table that a buffer begins with, of which messages say `where`. Both outlive the table.
  static FlatTable root(std::span<const std::byte> buffer, const std::string& where);

  template <typename T>
  T number(int field, T otherwise = 0) const {
    const auto at = place(field);
    return at ? number_in<T>(bytes(*at, sizeof(T))) : otherwise;
  }
  std::string text(int field) const;
  std::optional<FlatTable> table(int field) const;
  std::vector<FlatTable> tables(int field) const;
  /// The bytes of a vector of numbers or structs of `size` bytes each.
  std::span<const std::byte> structs(int field, std::size_t size) const;

 private:
  FlatTable(std::span<const std::byte> buffer, std::size_t at, const std::string& where);

  std::span<const std::byte> bytes(std::size_t at, std::size_t size) const;
  std::optional<std::size_t> place(int field) const;
  /// Where the reference at `at` leads.
  std::size_t target(std::size_t at) const;
  /// The places of a vector's elements and their number.
  std::span<const std::byte> elements(std::size_t at, std::size_t size) const;

  std::span<const std::byte> buffer_;
  const std::string* where_;
  std::size_t at_;
  std::span<const std::byte> fields_;  ///< u16 each: places of the fields, from the table on
};

}  // namespace finetune::data
