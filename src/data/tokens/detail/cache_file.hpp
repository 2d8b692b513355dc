#pragma once
// SPDX-License-Identifier: Apache-2.0
// One file of the token cache. To other programs it is an HDF5 file, but it is read here
// without HDF5, by a trailer behind its last dataset that says what lies where and has a checksum
// of everything; so no damaged file is ever given to HDF5.
//
//   /tokens       int32   ids; those that are not trained as their complement ~id = -1 - id
//   /bounds       int64   sample i is tokens [bounds[i], bounds[i + 1] + overlap)
//   /targets      int32   trained tokens of each sample behind its first
//   /digests      int64   XXH3-128 of each block of block_bytes of the three above, in order
//   /description  uint8   the data report and what the key was made of: JSON, then spaces

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/hash.hpp"
#include "core/json.hpp"
#include "data/tokens/detail/dataset.hpp"

namespace finetune::data {

/// Part of every key: tokens that an older program kept are not used.
inline constexpr std::int64_t cache_version = 1;
inline constexpr std::int64_t cache_block_bytes = std::int64_t{4} << 20;

/// The bytes of the arrays in blocks of cache_block_bytes, the tokens' first.
class CacheBlocks {
 public:
  explicit CacheBlocks(const TokenArrays& arrays);

  std::int64_t size() const { return std::ssize(blocks_); }
  core::Digest digest(std::int64_t i) const {
    return core::digest(blocks_[static_cast<std::size_t>(i)]);
  }

 private:
  std::shared_ptr<const void> owner_;
  std::vector<std::span<const std::byte>> blocks_;
};

/// 32 digits that identify these samples, however they are stored.
std::string content_fingerprint(const TokenArrays& arrays,
                                const std::vector<core::Digest>& digests);

/// Where things are in a file.
struct CacheLayout {
  std::int64_t num_tokens = 0;
  std::int64_t num_samples = 0;
  std::int64_t overlap = 0;
  std::int64_t tokens_at = 0;  ///< first byte; the others the same
  std::int64_t bounds_at = 0;
  std::int64_t targets_at = 0;
  std::int64_t digests_at = 0;
  std::int64_t description_at = 0;
  std::int64_t file_bytes = 0;

  std::int64_t num_digests() const;
};

/// What a file contains in addition to arrays and description. Main thread only.
struct CacheSkeleton {
  CacheLayout layout;
  std::map<std::int64_t, std::vector<std::byte>> metadata;
};
CacheSkeleton lay_out_cache(std::int64_t num_tokens, std::int64_t num_samples,
                            std::int64_t overlap);

/// Digests, description and trailer, behind which a file counts as complete; synced.
/// Throws: ErrorKind::io.
void complete_cache_file(const std::filesystem::path& path, const CacheLayout& layout,
                         const std::vector<core::Digest>& digests, const core::Json& description);

/// The arrays in a file, mapped: what is used comes into memory, and goes if others need it.
/// The file must stay as it is (it may be removed). Throws: ErrorKind::io.
TokenArrays map_arrays(const std::filesystem::path& path, const CacheLayout& layout);

struct CacheFile {
  CacheLayout layout;
  TokenArrays arrays;
  std::vector<core::Digest> digests;
  core::Json description;

  /// Looks at sizes, version, trailer and description, not at the arrays.
  /// Throws: ErrorKind::input saying what is damaged; ErrorKind::io if it cannot be read.
  static CacheFile open(const std::filesystem::path& path);

  /// Reads blocks [first, last) again and compares. Throws: ErrorKind::input naming the block.
  void verify(const std::filesystem::path& path, std::int64_t first, std::int64_t last) const;
};

}  // namespace finetune::data
