#pragma once
// SPDX-License-Identifier: Apache-2.0
// What came with a model's folder about its files: their hashes, and parts of downloads.

#include <filesystem>
#include <string>
#include <vector>

namespace finetune::weights {

/// The hash that a file of a folder should have.
struct KnownHash {
  enum class Kind {
    sha256,
    git,    ///< core::git_name_of
    xxh128  ///< core::file_fingerprint
  };
  std::string file;  ///< in the folder
  Kind kind = Kind::sha256;
  std::string digits;
  std::string source;  ///< who says so, for messages
};

/// Of all files that something is known of, by name: from links into the Hugging Face cache, whose
/// targets are named by their content; from what the hub's tool notes of a download to a folder
/// (.cache/huggingface/download/FILE.metadata); from SHA256SUMS, and XXH128SUMS of an export. A
/// file may be named more than once. Throws: ErrorKind::input for a list that is none.
std::vector<KnownHash> known_hashes(const std::filesystem::path& folder);

/// Downloads that did not end, as paths: their parts are still there.
std::vector<std::string> unfinished_downloads(const std::filesystem::path& folder);

/// Empty, or how the file's content differs. Throws: ErrorKind::input if the file is not there;
/// ErrorKind::io.
std::string difference(const std::filesystem::path& folder, const KnownHash& known);

/// A folder of the Hugging Face cache (models--ORG--NAME) stands for the version that its refs/main
/// names, or the only one that is there; any other folder for itself. Throws: ErrorKind::input for
/// a cache that holds no such version.
std::filesystem::path version_in_cache(const std::filesystem::path& folder);

}  // namespace finetune::weights
