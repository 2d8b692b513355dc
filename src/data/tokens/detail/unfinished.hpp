#pragma once
// SPDX-License-Identifier: Apache-2.0
// Samples that a start tokenised and that no cache file holds yet, because it was stopped or killed
// in its midst: in files of their own next to the cache's, one for each rank of that start.
//
// A file is a list of blocks, each some samples in a row with their number and a CRC32C. It is
// appended to and never synced: what a crash tears off is tokenised again.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/file.hpp"
#include "data/tokens/detail/made.hpp"
#include "data/tokens/detail/ranks.hpp"

namespace finetune::data {

/// What earlier starts left for a cache file. Reads no more than the list of blocks until samples
/// are asked for.
class UnfinishedReader {
 public:
  UnfinishedReader() = default;  ///< nothing
  /// Of those the blocks that have some of `samples`.
  UnfinishedReader(const std::filesystem::path& target, Share samples);

  /// Samples i, i + 1, ... below `end` that one block holds; none if none holds sample i, or if it
  /// is damaged or has a token that `options` do not allow.
  std::vector<Made> take(std::int64_t i, std::int64_t end, const DatasetOptions& options);

  /// The first sample above i with which a block begins; nothing if there is none.
  std::optional<std::int64_t> next(std::int64_t i) const;

 private:
  struct Block {
    std::int64_t count;
    std::size_t file;
    std::int64_t offset;
    std::int64_t bytes;
    std::uint32_t crc;
  };

  void add_blocks(const std::filesystem::path& path, Share samples);

  std::vector<core::File> files_;
  std::map<std::int64_t, Block> blocks_;  ///< by their first samples
};

/// The file of this process for a cache file. Where it cannot be written it is removed, as others
/// need the space: that costs time alone, and nothing is thrown.
class UnfinishedWriter {
 public:
  UnfinishedWriter() = default;  ///< writes nothing
  /// Begins with samples that are added once `after_tokens` others were.
  UnfinishedWriter(std::filesystem::path target, std::int64_t after_tokens)
      : target_(std::move(target)), after_tokens_(after_tokens) {}

  /// Samples first, first + 1, ... They may go on from the last ones, or lie elsewhere.
  void add(std::int64_t first, std::span<const Made> samples);

  /// Writes what waits to become a block.
  void flush();

  /// Samples that are in the file.
  std::int64_t num_kept() const { return num_kept_; }

 private:
  void open();

  std::filesystem::path target_;
  std::int64_t after_tokens_ = 0;
  std::int64_t num_tokens_ = 0;
  std::optional<core::File> file_;
  std::int64_t size_bytes_ = 0;
  std::int64_t num_kept_ = 0;
  std::int64_t first_ = 0, count_ = 0;  ///< of those that wait
  std::vector<std::byte> waiting_;
};

/// Removes the files of a cache file, which holds it all now.
void remove_unfinished(const std::filesystem::path& target);

/// Whether a file of that name is one of them.
bool is_unfinished(const std::filesystem::path& path);

}  // namespace finetune::data
