// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/digest_memo.hpp"

#include <sys/stat.h>

#include <ctime>
#include <system_error>

#include "core/file.hpp"
#include "core/file_identity.hpp"
#include "core/json.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_memo_bytes = std::int64_t{64} << 20;

fs::path memo_of(const fs::path& folder) {
  return folder / "digests.json";
}

/// {"path": ["identity", "digest"], ...}
core::Json read_memo(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(memo_of(folder), ignored)) return core::Json::object();
  try {
    core::Json memo = core::read_json(memo_of(folder), most_memo_bytes);
    if (memo.is_object()) return memo;
  } catch (const core::Error&) {
    // Made anew.
  }
  return core::Json::object();
}

std::string name_of(const fs::path& file) {
  std::error_code error;
  const fs::path whole = fs::absolute(file, error);
  return (error ? file : whole).lexically_normal().string();
}

bool has_settled(const fs::path& file, std::int64_t after_s) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 &&
         std::time(nullptr) - status.st_ctim.tv_sec >= after_s;
}

}  // namespace

std::vector<std::string> recall_digests(const fs::path& folder, std::span<const fs::path> files) {
  const core::Json memo = read_memo(folder);
  std::vector<std::string> digests;
  for (const fs::path& file : files) {
    const auto entry = memo.find(name_of(file));
    const bool is_known = entry != memo.end() && entry->is_array() && entry->size() == 2 &&
                          (*entry)[0].is_string() && (*entry)[1].is_string() &&
                          (*entry)[0] == core::file_identity(file);
    digests.push_back(is_known ? (*entry)[1].get<std::string>() : std::string());
  }
  return digests;
}

void keep_digests(const fs::path& folder, std::span<const fs::path> files,
                  std::span<const std::string> digests, std::int64_t settled_after_s) {
  core::Json memo = read_memo(folder);
  bool has_news = false;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!has_settled(files[i], settled_after_s)) continue;
    memo[name_of(files[i])] = {core::file_identity(files[i]), digests[i]};
    has_news = true;
  }
  if (!has_news) return;
  const std::string text = memo.dump();
  try {
    if (static_cast<std::int64_t>(text.size()) < most_memo_bytes)
      core::write_text_atomically(memo_of(folder), text);
  } catch (const core::Error&) {
    // The files are read again.
  }
}

}  // namespace finetune::data
