// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/detail/folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

#include "checkpoint/format/layout.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/file.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_root(const fs::path& root, const char* problem, const char* why) {
  core::fail(core::ErrorKind::create,
             {root.string(), problem, why, "Name a folder of your own (train.output)."});
}

/// `root`/`prefix`NNNNNNNNNN.XXXXXX, new and empty.
fs::path make_unique_folder(const fs::path& root, std::string_view prefix, std::int64_t step) {
  std::string path = (root / fmt::format("{}{:010}.XXXXXX", prefix, step)).string();
  if (::mkdtemp(path.data()) == nullptr) {
    core::fail(core::ErrorKind::create,
               {root.string(), "no folder can be created in it", core::system_reason(),
                "Choose a folder you may write to (train.output), on a disk with free space."});
  }
  return path;
}

[[noreturn]] void fail_rename(const fs::path& folder) {
  core::fail(core::ErrorKind::io, {folder.string(), "cannot be renamed", core::system_reason(),
                                   "Look at the folder and its permissions."});
}

}  // namespace

void make_root(const fs::path& root, Access access) {
  std::error_code error;
  const fs::path parent = root.has_parent_path() ? root.parent_path() : fs::path(".");
  if (!fs::exists(root, error)) {
    fs::create_directories(parent, error);
    if (!error && ::mkdir(root.c_str(), folder_mode(access)) == 0) {
      ::chmod(root.c_str(), folder_mode(access));  // whatever the umask says
      return core::sync_folder(parent);
    }
    const std::string reason = error ? error.message() : core::system_reason();
    if (error || errno != EEXIST) {
      core::fail(core::ErrorKind::create, {root.string(), "cannot be created", reason,
                                           "Set train.output to a folder you may write to."});
    }
  }
  struct stat status;
  if (::stat(root.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    refuse_root(root, "is not a folder", "checkpoints need one");
  if (status.st_uid != ::geteuid())
    refuse_root(root, "belongs to another user", "its owner could change what is written there");
  if ((status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0)
    refuse_root(root, "everybody may write into it", "anybody could change what is written there");
}

void make_private_root(const fs::path& root) {
  struct stat status;
  if (::lstat(root.c_str(), &status) == 0 &&
      (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)) {
    core::fail(core::ErrorKind::create, {root.string(), "is not a folder that only you may enter",
                                         "others could have put it there",
                                         "Remove it, or set another checkpoint.local_dir."});
  }
  make_root(root, Access::owner);
  // Between the two looks somebody may have put a link there.
  if (::lstat(root.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    refuse_root(root, "is a link", "it could lead anywhere");
}

void require_space(const fs::path& root, std::int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(root, error);
  if (error || space.available >= static_cast<std::uintmax_t>(bytes)) return;
  core::fail(core::ErrorKind::io,
             {root.string(), fmt::format("a checkpoint needs {}", core::human_bytes(bytes)),
              fmt::format("the file system has {} free",
                          core::human_bytes(static_cast<std::int64_t>(space.available))),
              "Free some space or lower checkpoint.save_total_limit."});
}

fs::path make_temporary_folder(const fs::path& root, std::int64_t step, Access access) {
  make_root(root, access);
  remove_leftovers(root);
  fs::path folder = make_unique_folder(root, temporary_prefix, step);
  ::chmod(folder.c_str(), folder_mode(access));
  return folder;
}

void remove_leftovers(const fs::path& root) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(temporary_prefix) || name.starts_with(deleted_prefix))
      leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers)
    remove_quietly(leftover);
}

void write_new_file(const fs::path& path, std::string_view text, mode_t mode) {
  core::File file(path, core::File::Mode::create_new, core::ErrorKind::create);
  ::fchmod(file.descriptor(), mode);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.sync();
  file.close();
}

void write_manifest_file(const fs::path& folder, std::string_view text, mode_t mode) {
  const fs::path temporary = folder / ".MANIFEST.tmp";
  write_new_file(temporary, text, mode);
  core::fault::hit("ckpt.manifest_tmp", temporary.native());
  if (::rename(temporary.c_str(), (folder / manifest_name).c_str()) != 0) fail_rename(temporary);
  core::fault::hit("ckpt.manifest_rename", folder.native());
  core::sync_folder(folder);
}

void publish(const fs::path& temporary, const fs::path& root, std::int64_t step) {
  const fs::path folder = root / folder_name(step);
  core::fault::hit("ckpt.dir_rename", folder.native());
  const auto rename_with = [&](unsigned flags) {
    return ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, folder.c_str(), flags) == 0;
  };
  // An old folder of this step is damaged or of another run: the temporary name then holds it.
  const bool exchanged = rename_with(RENAME_EXCHANGE);
  if (!exchanged) {
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(folder, ignored))) remove_checkpoint(root, step);
    if (::rename(temporary.c_str(), folder.c_str()) != 0) fail_rename(temporary);
  }
  core::fault::hit("ckpt.dir_fsync", folder.native());
  core::sync_folder(root);
  if (exchanged) remove_quietly(temporary);
}

void remove_checkpoint(const fs::path& root, std::int64_t step) {
  const fs::path folder = root / folder_name(step);
  // Renaming onto an empty folder replaces it, which makes the unique name ours.
  const fs::path grave = make_unique_folder(root, deleted_prefix, step);
  if (::rename(folder.c_str(), grave.c_str()) != 0) {
    const int reason = errno;
    ::rmdir(grave.c_str());
    errno = reason;
    fail_rename(folder);
  }
  core::sync_folder(root);
  core::fault::hit("ckpt.retire", grave.native());
  remove_quietly(grave);
}

void remove_quietly(const fs::path& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

std::vector<std::int64_t> list_steps(const fs::path& root) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  if (!fs::exists(root, error) && !error) return steps;
  for (auto entry = fs::directory_iterator(root, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const auto step = step_of(entry->path().filename().string());
    std::error_code ignored;
    if (step && fs::is_directory(entry->symlink_status(ignored))) steps.push_back(*step);
  }
  if (error) {
    core::fail(core::ErrorKind::input, {root.string(), "the checkpoint folder cannot be read",
                                        error.message(), "Check the path and its permissions."});
  }
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

void require_own(const fs::path& folder) {
  struct stat status;
  if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return;  // told by others
  const bool is_others = status.st_uid != ::geteuid();
  if (!is_others && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return;
  core::fail(core::ErrorKind::input,
             {folder.string(), is_others ? "belongs to another user" : "others may write into it",
              "its numbers could be anybody's",
              is_others ? "Copy it, so that it is yours." : "Remove the permission (chmod go-w)."});
}

std::string read_regular_file(const fs::path& path, std::int64_t limit_bytes) {
  regular_file_bytes(path);
  return core::read_text(path, limit_bytes, core::ErrorKind::input, core::File::Mode::read_no_link);
}

std::int64_t regular_file_bytes(const fs::path& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) != 0) {
    core::fail(core::ErrorKind::input,
               {path.string(), "cannot be opened", core::system_reason(),
                "The checkpoint is incomplete; remove it or restore it from a copy."});
  }
  if (!S_ISREG(status.st_mode)) {
    core::fail(core::ErrorKind::input,
               {path.string(), "is not a regular file", "links could lead anywhere",
                "Remove this checkpoint folder or restore it from a copy."});
  }
  return status.st_size;
}

}  // namespace finetune::checkpoint
