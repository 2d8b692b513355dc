// SPDX-License-Identifier: Apache-2.0
#include "weights/folder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "core/text.hpp"
#include "weights/detail/names.hpp"

namespace finetune::weights {
namespace {

namespace fs = std::filesystem;

/// Whether a link's target is where the Hugging Face cache keeps contents: named by their SHA-1
/// (small files) or SHA-256 (large ones).
bool is_cache_blob(std::string_view target) {
  constexpr std::string_view blobs = "../../blobs/";
  if (!target.starts_with(blobs)) return false;
  target.remove_prefix(blobs.size());
  return (target.size() == 40 || target.size() == 64) &&
         target.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

struct stat status_of(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    core::fail(core::ErrorKind::input, {path.string(), "cannot be opened", core::system_reason(),
                                        "Check the path and that the model is complete."});
  }
  return status;
}

/// `folder`/`name`, or what it links to.
fs::path resolve(const fs::path& folder, const std::string& name) {
  const fs::path path = folder / name;
  if (!S_ISLNK(status_of(path).st_mode)) return path;
  std::error_code problem;
  const std::string target = fs::read_symlink(path, problem).string();
  if (problem || !is_cache_blob(target)) {
    core::fail(core::ErrorKind::input,
               {path.string(), fmt::format("is a symbolic link to {}", in_quotes(target)),
                "links are followed only into the Hugging Face cache's ../../blobs",
                "Copy the model with `cp -rL`, or name the folder the files are in."});
  }
  return folder / target;
}

}  // namespace

core::File open_in_folder(const fs::path& folder, const std::string& name) {
  const fs::path path = resolve(folder, name);
  const struct stat seen = status_of(path);
  if (!S_ISREG(seen.st_mode)) {
    core::fail(core::ErrorKind::input, {path.string(), "is not a file",
                                        "folders, pipes, devices and links to links are not read",
                                        "Put the file itself there."});
  }
  core::File file(path, core::File::Mode::read);
  struct stat opened {};
  // Nobody may have put a link there between the look and the opening.
  if (::fstat(file.descriptor(), &opened) != 0 || opened.st_dev != seen.st_dev ||
      opened.st_ino != seen.st_ino) {
    core::fail(core::ErrorKind::input, {path.string(), "was replaced while it was opened",
                                        "another process is writing to the model folder",
                                        "Try again when the folder is at rest."});
  }
  return file;
}

bool is_in_folder(const fs::path& folder, const std::string& name) {
  struct stat status {};
  return ::lstat((folder / name).c_str(), &status) == 0;
}

std::string read_text_in_folder(const fs::path& folder, const std::string& name,
                                std::int64_t limit_bytes) {
  const core::File file = open_in_folder(folder, name);
  const std::int64_t size = file.size_bytes();
  if (size > limit_bytes) {
    core::fail(core::ErrorKind::input,
               {file.path().string(), fmt::format("has {}", core::human_bytes(size)),
                fmt::format("at most {} are read", core::human_bytes(limit_bytes)),
                "Is it the right file?"});
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace finetune::weights
