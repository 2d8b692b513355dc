// SPDX-License-Identifier: Apache-2.0
#include "core/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/text.hpp"

namespace finetune::core {
namespace {

constexpr std::size_t largest_transfer = std::size_t{1} << 30;

int flags(File::Mode mode) {
  switch (mode) {
    case File::Mode::create_new:
      return O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    case File::Mode::write_existing:
      return O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    case File::Mode::create_or_write:
      return O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    case File::Mode::read_no_link:
      return O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;
    default:
      // Opening a pipe would wait for a writer for ever; files do not mind.
      return O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  }
}

bool reads(File::Mode mode) {
  return mode == File::Mode::read || mode == File::Mode::read_no_link;
}

[[noreturn]] void fail_io(const std::filesystem::path& path, const std::string& problem) {
  fail(ErrorKind::io, {path.string(), problem, system_reason(),
                       remedy_for_space("Look at the file system and its quota.")});
}

}  // namespace

std::string system_reason() {
  return std::strerror(errno);
}

std::string remedy_for_space(std::string_view otherwise) {
  if (errno != EFBIG) return std::string(otherwise);
  return "Raise the limit on the size of a file (ulimit -f), or write to a file system that holds "
         "larger ones.";
}

File::File(const std::filesystem::path& path, Mode mode, ErrorKind kind) : path_(path) {
  descriptor_ = ::open(path.c_str(), flags(mode), 0666);
  if (descriptor_ < 0) {
    const char* verb = reads(mode) ? "cannot be opened" : "cannot be created";
    fail(kind, {path.string(), verb, system_reason(), "Check the path and its permissions."});
  }
  struct stat status {};
  if (reads(mode) && (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode))) {
    ::close(descriptor_);
    fail(kind, {path.string(), "is not a file", "folders, pipes and devices are not read",
                "Name the file itself."});
  }
}

File::File(int descriptor, std::filesystem::path path)
    : path_(std::move(path)), descriptor_(descriptor) {}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

std::int64_t File::size_bytes() const {
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) fail_io(path_, "its size cannot be read");
  return status.st_size;
}

void File::read_at(std::int64_t offset, std::span<std::byte> target) const {
  while (!target.empty()) {
    const auto n =
        ::pread(descriptor_, target.data(), std::min(target.size(), largest_transfer), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io(path_, "cannot be read");
    if (n == 0) {
      fail(ErrorKind::input, {path_.string(), fmt::format("ends at byte {}", size_bytes()),
                              fmt::format("{} more bytes are needed", target.size()),
                              "The file is truncated; copy or download it again."});
    }
    target = target.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

void File::write_at(std::int64_t offset, std::span<const std::byte> source) const {
  while (!source.empty()) {
    const auto n =
        ::pwrite(descriptor_, source.data(), std::min(source.size(), largest_transfer), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_io(path_, "cannot be written");
    source = source.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

void File::cut(std::int64_t size_bytes) const {
  if (::ftruncate(descriptor_, size_bytes) != 0) fail_io(path_, "cannot be cut");
}

void File::sync() const {
  if (::fsync(descriptor_) != 0) fail_io(path_, "cannot be synced to disk");
}

void File::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_io(path_, "cannot be closed");
}

std::string read_text(const std::filesystem::path& path, std::int64_t limit_bytes, ErrorKind kind,
                      File::Mode mode) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail(kind, {path.string(), "is a folder", "a file is needed", "Name the file itself."});
  }
  const File file(path, mode, kind);
  const std::int64_t size = file.size_bytes();
  if (size > limit_bytes) {
    fail(kind,
         {path.string(), fmt::format("has {}", human_bytes(size)),
          fmt::format("at most {} are read", human_bytes(limit_bytes)), "Is it the right file?"});
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text_atomically(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = path.string() + fmt::format(".tmp.{}", ::getpid());
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  try {
    File file(temporary, File::Mode::create_new, ErrorKind::create);
    file.write_at(0, std::as_bytes(std::span(text)));
    file.sync();
    file.close();
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      fail_io(path, "cannot be renamed into place");
  } catch (const Error&) {
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  sync_folder(path.parent_path().empty() ? "." : path.parent_path());
}

void sync_folder(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_io(path, "cannot be opened");
  const int result = ::fsync(descriptor);
  ::close(descriptor);
  if (result != 0) fail_io(path, "cannot be synced to disk");
}

}  // namespace finetune::core
