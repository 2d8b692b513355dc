#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where the entries of a file begin, for files of any number of them: some places are kept, and
// those between are found again from there.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.hpp"
#include "data/records/detail/cursor.hpp"

namespace finetune::data {

/// The entry at which the cursor stands; leaves it at the next one, or at the end of the file.
using NextEntry = std::function<JsonEntry(Cursor&)>;

/// Memory: 32 bytes for `stride` entries, and up to `most_blocks` times as many entries around the
/// places that were asked for last. Reading entries in order passes over the file once more.
class EntryIndex {
 public:
  static constexpr std::int64_t stride = 512;
  static constexpr std::size_t most_blocks = 16;

  /// One pass from where `cursor` stands to the end of its file, or over `most_entries`.
  /// Throws: as `next`.
  EntryIndex(Cursor& cursor, NextEntry next, std::size_t most_entries);

  /// That of another process, which has read the same file. Throws: ErrorKind::input if `bytes` is
  /// none.
  EntryIndex(NextEntry next, std::string_view bytes);

  std::int64_t size() const { return size_; }

  /// Entry 0 <= i < size() of `file`. Thread-safe. Throws: as `next`, if the file has changed.
  JsonEntry at(const core::File& file, std::int64_t i) const;

  /// Lets the entries go that were asked for last.
  void forget() const;

  /// For the constructor above: numbers of this machine's kind.
  std::string bytes() const;

 private:
  using Block = std::vector<JsonEntry>;
  struct Recent {
    std::int64_t number = -1;
    std::shared_ptr<const Block> block;
  };

  /// Entries [number * stride, (number + 1) * stride).
  std::shared_ptr<const Block> block(const core::File& file, std::int64_t number) const;
  Block read(const core::File& file, std::int64_t number) const;

  NextEntry next_;
  std::int64_t size_ = 0;
  std::vector<JsonEntry> places_;  ///< of every `stride`th entry; their lengths do not matter
  struct Cache {
    std::mutex mutex;
    std::array<Recent, most_blocks> recent;
    std::size_t oldest = 0;
  };
  std::unique_ptr<Cache> cache_ = std::make_unique<Cache>();
};

}  // namespace finetune::data
