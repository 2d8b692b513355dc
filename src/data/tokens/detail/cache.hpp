#pragma once
// SPDX-License-Identifier: Apache-2.0
// The folder of the token cache: finding a file, and writing one that is never seen half done.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/file.hpp"
#include "data/text/format.hpp"
#include "data/text/source.hpp"
#include "data/tokens/detail/cache_file.hpp"
#include "data/tokens/detail/options.hpp"
#include "data/tokens/detail/ranks.hpp"

namespace finetune::data {

/// What decides all tokens: the bytes of the data files, their kinds (of their names only the
/// record_ending), the source's settings, and `options`. Collective on the world. Throws: see
/// digest_files, whose memo is in the folder of `cache`.
core::Json describe_key(const DataRanks& ranks, const SampleSource& source, Layout layout,
                        const DatasetOptions& options, const CacheOptions& cache);

/// <folder>/<32 digits of the key>.h5
std::filesystem::path cache_path(const std::filesystem::path& folder, const core::Json& key);

/// The file at `path`, if every node sees a sound one. All of it is read and compared with its
/// checksums, each part by one rank of all, or of each node where nodes have copies of their own.
/// A damaged file is warned about. Collective on the world.
std::optional<CacheFile> find_cached(const DataRanks& ranks, const std::filesystem::path& path,
                                     const DatasetOptions& options);

/// A file next to the cache's, which becomes one of them at the end. What is left by a writer that
/// died is removed by a later one. All functions are collective on the world.
class NewCacheFile {
 public:
  /// Throws: comm::AgreedError of ErrorKind::create if the root cannot make it, or a node does not
  /// see it.
  NewCacheFile(const DataRanks& ranks, std::filesystem::path target);

  /// Removes it if it was not published. Not collective.
  ~NewCacheFile();
  NewCacheFile(const NewCacheFile&) = delete;
  NewCacheFile& operator=(const NewCacheFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Renames it into place. Two jobs that make the same file make the same bytes: the last wins.
  /// Throws: comm::AgreedError of ErrorKind::io.
  void publish();

 private:
  const DataRanks& ranks_;
  std::filesystem::path target_;
  std::filesystem::path path_;
  std::optional<core::File> file_;  ///< on the root, locked for as long as it writes
};

/// Removes files that writers left in `folder`: those that nobody holds a lock on and nobody has
/// written to for ten minutes (a day, where the file system has no locks); and what was tokenised
/// in starts that did not come to an end a month ago.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace finetune::data
