#pragma once
// SPDX-License-Identifier: Apache-2.0
// How Parquet writes numbers and texts in its pages.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "data/records/detail/binary.hpp"
#include "data/records/detail/parquet_schema.hpp"

namespace finetune::data::parquet_file {

/// Memory that a group of rows may take: what is claimed is taken from it before it is allocated.
class Room {
 public:
  Room(std::int64_t bytes, const std::string& where) : left_(bytes), where_(where) {}
  /// Throws: ErrorKind::input.
  void take(std::int64_t count, std::int64_t bytes_each);

 private:
  std::int64_t left_;
  const std::string& where_;
};

/// Values of a leaf: bits of numbers, or texts that are views of pages.
struct Values {
  std::vector<std::uint64_t> numbers = {};
  std::vector<Bytes> texts = {};
};

/// Appends `count` numbers of `width` bits (at most 32), in runs and groups of 8.
/// Source: Apache Parquet, Encodings.md, "RLE / Bit-Packing Hybrid".
template <typename T>
void read_hybrid(Bytes bytes, int width, std::int64_t count, std::vector<T>& out,
                 const std::string& where);

/// Appends `count` values that begin `bytes`. `encoding`: as in parquet.thrift, but for those of
/// dictionaries; `owned`: texts whose letters stand nowhere together. Throws: ErrorKind::input
/// beginning with `where`, also for an encoding that is not known. Source: Encodings.md.
void read_values(int encoding, Physical physical, Bytes bytes, std::int64_t count, Values& out,
                 std::deque<std::vector<std::byte>>& owned, Room& room, const std::string& where);

}  // namespace finetune::data::parquet_file
