// SPDX-License-Identifier: Apache-2.0
#include "data/text/listing.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

/// A folder with one of them is a model, an adapter or the output of a run, and holds no data.
constexpr std::array<std::string_view, 4> other_folders = {
    "adapter_config.json", "model.safetensors.index.json", "starts.jsonl", "tokenizer_config.json"};

bool has_magic(std::string_view name) {
  return name.find_first_of("*?[") != std::string_view::npos;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// Names in the order of their bytes: that of a folder's entries differs between file systems, and
/// so between ranks.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error))
    names.push_back(i->path().filename().string());
  if (error) {
    core::fail(core::ErrorKind::input, {folder.string(), "the folder cannot be listed",
                                        error.message(), "Check its permissions."});
  }
  std::ranges::sort(names);
  return names;
}

bool is_hidden(const std::string& name) {
  return name.starts_with('.') || (name.starts_with("__") && name.ends_with("__"));
}

/// The folders above one, by what they are rather than by their names: a link may lead to them.
class Above {
 public:
  /// Goes into `folder`; false if that is where it comes from.
  bool enter(const fs::path& folder) {
    std::error_code error;
    const fs::path real = fs::canonical(folder, error);
    if (error || std::ranges::find(folders_, real) != folders_.end()) return false;
    folders_.push_back(real);
    return true;
  }
  void leave() { folders_.pop_back(); }

 private:
  std::vector<fs::path> folders_;
};

void add_below(const fs::path& folder, const std::string& prefix, Above& above,
               std::set<std::string>& files) {
  if (!above.enter(folder)) return;
  const std::vector<std::string> names = names_in(folder);
  const bool is_other =
      !prefix.empty() && std::ranges::any_of(other_folders, [&](std::string_view name) {
        return std::ranges::find(names, name) != names.end();
      });
  for (const std::string& name : names) {
    if (is_other || is_hidden(name)) continue;
    if (is_file(folder / name)) files.insert(prefix + name);
    if (is_folder(folder / name)) add_below(folder / name, prefix + name + "/", above, files);
  }
  above.leave();
}

/// What the rest of a pattern matches in a folder.
class Matcher {
 public:
  explicit Matcher(std::vector<std::string> parts) : parts_(std::move(parts)) {}

  void match(const fs::path& folder, std::size_t at) {
    if (at == parts_.size()) return;
    const std::string& part = parts_[at];
    if (part == "**") {
      // A pattern that ends in it means all files.
      if (at + 1 == parts_.size()) return match_any(folder, at, "*");
      match(folder, at + 1);
      return match_any(folder, at, "");
    }
    if (!has_magic(part)) return take(folder / part, at);
    for (const std::string& name : listed(folder))
      if (::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) == 0) take(folder / name, at);
  }

  std::set<std::string> found;

 private:
  static std::vector<std::string> listed(const fs::path& folder) {
    const fs::path place = folder.empty() ? fs::path(".") : folder;
    return is_folder(place) ? names_in(place) : std::vector<std::string>();
  }

  /// A file or folder that part `at` matches.
  void take(const fs::path& path, std::size_t at) {
    if (at + 1 < parts_.size()) {
      if (is_folder(path)) match(path, at + 1);
    } else if (is_file(path)) {
      found.insert(path.string());
    }
  }

  /// The same part in each folder below, and files where there are no more parts.
  void match_any(const fs::path& folder, std::size_t at, std::string_view files) {
    if (!above_.enter(folder.empty() ? fs::path(".") : folder)) return;
    for (const std::string& name : listed(folder)) {
      if (is_hidden(name)) continue;
      if (!files.empty() && is_file(folder / name)) found.insert((folder / name).string());
      if (is_folder(folder / name)) match(folder / name, at);
    }
    above_.leave();
  }

  std::vector<std::string> parts_;
  Above above_;
};

/// The beginning of a pattern without patterns, and the names behind it.
std::pair<fs::path, std::vector<std::string>> cut(const fs::path& pattern) {
  fs::path begin;
  std::vector<std::string> parts;
  for (const fs::path& part : pattern) {
    if (part.empty()) continue;
    if (parts.empty() && !has_magic(part.string()))
      begin /= part;
    else
      parts.push_back(part.string());
  }
  return {begin, parts};
}

}  // namespace

std::vector<std::string> files_below(const fs::path& folder) {
  std::set<std::string> files;
  Above above;
  add_below(folder, "", above, files);
  return {files.begin(), files.end()};
}

bool is_pattern(const fs::path& path) {
  std::error_code ignored;
  return has_magic(path.string()) && !fs::exists(path, ignored);
}

std::vector<fs::path> matching_files(const fs::path& pattern) {
  auto [begin, parts] = cut(pattern);
  Matcher matcher(std::move(parts));
  matcher.match(begin, 0);
  return {matcher.found.begin(), matcher.found.end()};
}

std::vector<fs::path> matching_files(const fs::path& folder, const std::string& pattern) {
  auto [begin, parts] = cut(pattern);
  Matcher matcher(std::move(parts));
  if (begin.empty() || !is_file(folder / begin)) matcher.match(folder / begin, 0);
  if (is_file(folder / begin)) matcher.found.insert((folder / begin).string());
  return {matcher.found.begin(), matcher.found.end()};
}

fs::path folder_of_pattern(const fs::path& pattern) {
  const fs::path begin = cut(pattern).first;
  return begin.empty() ? fs::path(".") : begin;
}

}  // namespace finetune::data
