// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>
#include <utility>

#include "core/file.hpp"
#include "core/log_file.hpp"
#include "core/text.hpp"

namespace finetune::log {
namespace {

// The one piece of process-wide state: whether this process is the first rank never changes while
// a run lasts, and passing it to every caller of `info` would say nothing.
std::atomic<bool> root{true};

/// "2026-11-22 23:47:30 "
std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm local = {};
  ::localtime_r(&time, &local);
  std::array<char, 32> text = {};
  return {text.data(), std::strftime(text.data(), text.size(), "%F %T ", &local)};
}

bool write_whole(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

/// What was printed, for a file. Other threads print, too: the one that saves, the watchdog.
class Copy {
 public:
  void remember() {
    const std::lock_guard lock(mutex_);
    remembers_ = true;
  }

  void forget() {
    const std::lock_guard lock(mutex_);
    remembers_ = is_to_open_ = false;
    remembered_.clear();
    path_.clear();
    close();
  }

  /// Returns why it could not be opened, or nothing.
  std::string open(const std::filesystem::path& path, mode_t mode) {
    const std::lock_guard lock(mutex_);
    remembers_ = false;
    close();
    path_ = path.string();
    descriptor_ = ::open(path.c_str(),
                         O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode);
    struct stat status = {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) return core::system_reason();
    if (!S_ISREG(status.st_mode)) {
      close();
      return "it is no file";
    }
    const std::string remembered = std::move(remembered_);
    remembered_.clear();
    return put(remembered);
  }

  void open_later(const std::filesystem::path& path) {
    const std::lock_guard lock(mutex_);
    remembers_ = false;
    remembered_.clear();
    close();
    path_ = path.string();
    is_to_open_ = true;
  }

  /// Returns why it could not be written, once, or nothing.
  std::string add(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_to_open_, false))
      descriptor_ =
          ::open(path_.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor_ < 0 && !remembers_) return "";
    const std::string line = now() + std::string(text);
    if (descriptor_ >= 0) return put(line);
    if (remembered_.size() + line.size() <= most_remembered) remembered_ += line;
    return "";
  }

  const std::string& path() const { return path_; }

 private:
  static constexpr std::size_t most_remembered = std::size_t{1} << 20;

  std::string put(std::string_view text) {
    if (write_whole(descriptor_, text)) return "";
    const std::string reason = core::system_reason();
    close();
    return reason;
  }

  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  std::mutex mutex_;
  bool remembers_ = false;
  std::string remembered_;
  std::string path_;
  bool is_to_open_ = false;  ///< for the first line
  int descriptor_ = -1;
};

/// Never destroyed: what ends last may still print.
Copy& copy() {
  static Copy& copy = *new Copy;
  return copy;
}

void write(std::FILE* stream, std::string_view prefix, std::string_view line);

void warn_of_copy(const std::string& reason) {
  if (!reason.empty())
    write(stderr, "warning: ",
          fmt::format("{}: the log cannot be written ({}). Lines are printed here alone.",
                      copy().path(), reason));
}

void write(std::FILE* stream, std::string_view prefix, std::string_view line) {
  // One fwrite a line, so that lines of several ranks do not tear.
  std::string text(prefix);
  text += core::printable(line);
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
  warn_of_copy(copy().add(text));
}

}  // namespace

void set_root(bool is_root) {
  root = is_root;
}

bool is_root() {
  return root;
}

void info(std::string_view line) {
  if (root) write(stdout, "", line);
}

void warn(std::string_view line) {
  if (root) write(stderr, "warning: ", line);
}

void warn_of_rank(std::string_view line) {
  write(stderr, "warning: ", line);
}

void error(std::string_view line) {
  write(stderr, "error: ", line);
}

void remember() {
  copy().remember();
}

void forget() {
  copy().forget();
  root = true;
}

void copy_to(const std::filesystem::path& path, mode_t mode) {
  warn_of_copy(copy().open(path, mode));
}

void copy_errors_to(const std::filesystem::path& path) {
  copy().open_later(path);
}

void note(std::string_view line) {
  if (root) warn_of_copy(copy().add(core::printable(line) + '\n'));
}

}  // namespace finetune::log
