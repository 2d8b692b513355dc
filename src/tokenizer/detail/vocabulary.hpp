#pragma once
// SPDX-License-Identifier: Apache-2.0
// Pieces of text and their ids, both ways, in flat tables that stay in cache.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

/// Ids are 0 .. size() - 1; each has at most one piece. Open addressing with linear probing over
/// eight-byte slots (hash, id); the bytes of all pieces lie in one buffer.
class Vocabulary {
 public:
  static constexpr std::int32_t none = -1;

  /// `num_ids` ids without a piece yet.
  explicit Vocabulary(std::int32_t num_ids);

  /// False if the piece or the id is taken.
  bool insert(std::string_view piece, std::int32_t id);

  /// The id of `piece`, `none` if it has no entry.
  std::int32_t find(std::string_view piece) const;

  bool contains(std::int32_t id) const {
    return id >= 0 && id < size() && entries_[static_cast<std::size_t>(id)].used;
  }
  /// Empty if the id has no piece.
  std::string_view piece(std::int32_t id) const;

  std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }

 private:
  struct Slot {
    std::uint32_t hash;
    std::int32_t id;
  };
  struct Entry {
    std::uint32_t offset = 0;
    std::uint32_t length : 31 = 0;
    std::uint32_t used : 1 = 0;
  };

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::vector<Entry> entries_;
  std::string bytes_;
};

/// Merge rules: (left id, right id) -> (rank, id of the merged piece). Open addressing.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    std::int32_t id;
  };

  explicit MergeTable(std::size_t num_merges);

  /// A later rule for the same pair replaces the earlier one.
  void insert(std::int32_t left, std::int32_t right, Merge merge);

  /// nullptr if the two are never merged.
  const Merge* find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t pair;
    Merge merge;
  };

  std::size_t start(std::uint64_t pair) const;

  std::vector<Slot> slots_;
};

}  // namespace finetune::tokenizer
