#pragma once
// SPDX-License-Identifier: Apache-2.0
// Files opened, read and written with every return value checked.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace finetune::core {

/// A file descriptor that closes itself. Movable, not copyable.
class File {
 public:
  enum class Mode { read, read_no_link, create_new, write_existing, create_or_write };

  /// Throws: `kind` with the path and the system's reason, or if there is no file to read but a
  /// folder, a pipe or a device.
  File(const std::filesystem::path& path, Mode mode, ErrorKind kind = ErrorKind::input);
  /// Takes over an open descriptor; `path` is what messages call it.
  File(int descriptor, std::filesystem::path path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;

  std::int64_t size_bytes() const;
  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }

  /// Reads exactly `target.size()` bytes at `offset`. Throws: ErrorKind::io, or ErrorKind::input at
  /// the end of the file.
  void read_at(std::int64_t offset, std::span<std::byte> target) const;

  /// Writes all of `source` at `offset`. Throws: ErrorKind::io with the system's reason.
  void write_at(std::int64_t offset, std::span<const std::byte> source) const;

  /// What is behind `size_bytes` goes. Throws: ErrorKind::io with the system's reason.
  void cut(std::int64_t size_bytes) const;

  /// fsync. Never retried: after a failure the kernel may have dropped the pages.
  void sync() const;

  /// Closes and checks. The destructor closes without checking.
  void close();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// The whole file as text. Throws: `kind` if it is missing, unreadable or larger than
/// `limit_bytes`.
std::string read_text(const std::filesystem::path& path, std::int64_t limit_bytes,
                      ErrorKind kind = ErrorKind::input, File::Mode mode = File::Mode::read);

/// Writes next to `path`, syncs and renames, so that a reader sees the old or the new text, whole.
void write_text_atomically(const std::filesystem::path& path, std::string_view text);

/// fsync of a folder, so that renames in it survive a power loss.
void sync_folder(const std::filesystem::path& path);

/// "No such file or directory" for the current errno.
std::string system_reason();

/// What to do where the current errno kept a file from growing: a limit on the size of single files
/// (EFBIG) is no full disk. For other reasons, what is said `otherwise`.
std::string remedy_for_space(std::string_view otherwise);

}  // namespace finetune::core
