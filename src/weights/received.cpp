// SPDX-License-Identifier: Apache-2.0
#include "weights/received.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <system_error>

#include "core/error.hpp"
#include "core/file_hash.hpp"
#include "core/hash.hpp"
#include "core/text.hpp"
#include "weights/folder.hpp"

namespace finetune::weights {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t largest_list_bytes = std::int64_t{16} << 20;
constexpr std::string_view metadata = ".metadata", incomplete = ".incomplete";

/// By how the hub names contents: small files as git does, large ones by SHA-256.
std::optional<KnownHash::Kind> kind_of(std::string_view digits) {
  if (digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  if (digits.size() == 64) return KnownHash::Kind::sha256;
  if (digits.size() == 40) return KnownHash::Kind::git;
  return std::nullopt;
}

/// Files below a folder, as paths in it; none where there is no such folder.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code problem;
  for (fs::recursive_directory_iterator i(folder, problem), end; !problem && i != end;
       i.increment(problem))
    if (!i->is_directory(problem)) files.push_back(i->path().lexically_relative(folder));
  std::ranges::sort(files);
  return files;
}

fs::path notes_of(const fs::path& folder) {
  return folder / ".cache/huggingface/download";
}

void add_links(const fs::path& folder, std::vector<KnownHash>& all) {
  std::error_code problem;
  for (const fs::path& file : files_below(folder)) {
    const fs::path target = fs::read_symlink(folder / file, problem);
    if (problem) continue;
    const std::string digits = target.filename().string();
    if (const auto kind = kind_of(digits))
      all.push_back({file.string(), *kind, digits, "its name in the Hugging Face cache"});
  }
}

/// Three lines: the commit, the hash of the content, when it came.
void add_notes(const fs::path& folder, std::vector<KnownHash>& all) {
  for (const fs::path& note : files_below(notes_of(folder))) {
    if (note.extension() != metadata) continue;
    std::istringstream lines(core::read_text(notes_of(folder) / note, largest_list_bytes));
    std::string commit, digits;
    std::getline(lines, commit);
    std::getline(lines, digits);
    std::string file = note.string();
    file.resize(file.size() - metadata.size());
    if (const auto kind = kind_of(digits); kind && is_in_folder(folder, file))
      all.push_back({file, *kind, digits, "the hub when it was downloaded"});
  }
}

/// Lines of sha256sum and xxhsum: "DIGITS  FILE", or " *FILE".
void add_list(const fs::path& folder, const char* list, KnownHash::Kind kind,
              std::vector<KnownHash>& all) {
  if (!is_in_folder(folder, list)) return;
  const std::size_t num_digits = kind == KnownHash::Kind::sha256 ? 64 : 32;
  std::istringstream lines(read_text_in_folder(folder, list, largest_list_bytes));
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::string digits = line.substr(0, num_digits);
    const bool is_entry = line.size() > num_digits + 2 && line[num_digits] == ' ' &&
                          digits.find_first_not_of("0123456789abcdef") == std::string::npos;
    const std::string file = is_entry ? line.substr(num_digits + 2) : "";
    if (file.empty() || fs::path(file).is_absolute() || file.find("..") != std::string::npos)
      core::fail(core::ErrorKind::input,
                 {fmt::format("{}:{}", (folder / list).string(), number),
                  "is no hash with a file of this folder", core::one_line(line),
                  fmt::format("A line is \"HASH  FILE\", as {} writes it.",
                              kind == KnownHash::Kind::sha256 ? "sha256sum" : "xxhsum -H2")});
    all.push_back({file, kind, digits, list});
  }
}

}  // namespace

std::vector<KnownHash> known_hashes(const fs::path& folder) {
  std::vector<KnownHash> all;
  add_links(folder, all);
  add_notes(folder, all);
  add_list(folder, "SHA256SUMS", KnownHash::Kind::sha256, all);
  add_list(folder, "XXH128SUMS", KnownHash::Kind::xxh128, all);
  std::ranges::stable_sort(all, {}, &KnownHash::file);
  return all;
}

std::vector<std::string> unfinished_downloads(const fs::path& folder) {
  std::vector<std::string> all;
  for (const fs::path& parts : {notes_of(folder), folder / "../../blobs"})
    for (const fs::path& file : files_below(parts))
      if (file.extension() == incomplete) all.push_back((parts / file).lexically_normal().string());
  return all;
}

std::string difference(const fs::path& folder, const KnownHash& known) {
  const core::File file = open_in_folder(folder, known.file);
  const std::string found = known.kind == KnownHash::Kind::sha256 ? core::sha256_of(file)
                            : known.kind == KnownHash::Kind::git
                                ? core::git_name_of(file)
                                : core::file_fingerprint(file.path());
  if (found == known.digits) return "";
  return fmt::format("{} hashes to {}..., and {} says {}...", core::human_bytes(file.size_bytes()),
                     found.substr(0, 12), known.source, known.digits.substr(0, 12));
}

fs::path version_in_cache(const fs::path& folder) {
  std::error_code ignored;
  const fs::path versions = folder / "snapshots";
  if (fs::exists(folder / "config.json", ignored) || !fs::is_directory(versions, ignored))
    return folder;
  if (fs::exists(folder / "refs/main", ignored)) {
    std::string commit = core::read_text(folder / "refs/main", 1 << 10);
    std::erase_if(commit, [](char c) { return c == '\n' || c == '\r' || c == ' '; });
    if (kind_of(commit) == KnownHash::Kind::git && fs::is_directory(versions / commit, ignored))
      return versions / commit;
  }
  std::vector<fs::path> all;
  for (fs::directory_iterator i(versions, ignored), end; !ignored && i != end; i.increment(ignored))
    all.push_back(i->path());
  if (all.size() == 1) return all.front();
  core::fail(core::ErrorKind::input,
             {folder.string(),
              all.empty() ? "is a cache that holds no version of its model"
                          : "is a cache that holds several versions of its model",
              "refs/main names none that is there",
              all.empty() ? "Download it again, with the hub's tool."
                          : fmt::format("Name one: {}.", std::ranges::min(all).string())});
}

}  // namespace finetune::weights
