// SPDX-License-Identifier: Apache-2.0
#include "data/records/decompress.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/error.hpp"
#include "core/file_lock.hpp"
#include "core/hash.hpp"
#include "core/text.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

enum class Compression { none, gzip, zstd };

constexpr std::int64_t chunk_bytes = 1 << 20;

Compression compression_of(const core::File& file) {
  std::array<char, 4> magic{};
  const auto n = static_cast<std::size_t>(std::min<std::int64_t>(file.size_bytes(), 4));
  file.read_at(0, std::as_writable_bytes(std::span(magic).first(n)));
  const std::string_view begin(magic.data(), n);
  if (begin.starts_with("\x1F\x8B")) return Compression::gzip;
  if (begin.starts_with("\x28\xB5\x2F\xFD")) return Compression::zstd;
  const std::string extension = file.path().extension().string();
  if ((extension == ".gz" || extension == ".zst") && n > 0) {
    core::fail(
        core::ErrorKind::input,
        {file.path().string(), fmt::format("is no {} file", extension == ".gz" ? "gzip" : "zstd"),
         "its first bytes are others",
         "Rename it if it is not compressed; otherwise copy or download it again."});
  }
  return Compression::none;
}

[[noreturn]] void fail_damaged(const core::File& source, const std::string& reason) {
  core::fail(core::ErrorKind::input, {source.path().string(), "cannot be decompressed", reason,
                                      "Copy or download the file again."});
}

/// Reads the source from start to end, and writes what it becomes, within bounds.
class Pump {
 public:
  Pump(const core::File& source, const core::File& target)
      : source_(source), target_(target), size_(source.size_bytes()) {}

  /// The next bytes of the source; empty at its end.
  std::span<const unsigned char> next() {
    buffer_.resize(static_cast<std::size_t>(std::min(chunk_bytes, size_ - read_)));
    source_.read_at(read_, std::as_writable_bytes(std::span(buffer_)));
    read_ += std::ssize(buffer_);
    return buffer_;
  }

  void put(std::span<const unsigned char> bytes) {
    constexpr std::int64_t always_allowed = std::int64_t{64} << 20;
    constexpr std::int64_t largest_ratio = 250;
    const std::int64_t end = written_ + std::ssize(bytes);
    if (end > always_allowed && end / largest_ratio > size_) {
      core::fail(core::ErrorKind::input,
                 {source_.path().string(),
                  fmt::format("{} expand to more than {}", core::human_bytes(size_),
                              core::human_bytes(written_)),
                  "no text does; such a file is built to fill disks",
                  "Do not use it, or decompress it yourself."});
    }
    try {
      target_.write_at(written_, std::as_bytes(bytes));
    } catch (const core::Error& error) {
      core::fail(core::ErrorKind::io,
                 {source_.path().string(), "there is no room to decompress it", error.what(),
                  "Set TMPDIR to a folder with more, or decompress the file once yourself."});
    }
    written_ = end;
  }

 private:
  const core::File& source_;
  const core::File& target_;
  std::int64_t size_;
  std::int64_t read_ = 0;
  std::int64_t written_ = 0;
  std::vector<unsigned char> buffer_;
};

/// All members of a gzip file, one after the other. Zeros may follow them, as on tapes.
void gunzip(const core::File& source, Pump& pump) {
  z_stream stream{};
  constexpr int gzip_only = 15 + 16;
  core::check(inflateInit2(&stream, gzip_only) == Z_OK, "zlib starts");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  std::vector<unsigned char> out(chunk_bytes);
  bool between = true;  // members, or before the first
  bool any = false;
  for (auto in = pump.next(); !in.empty(); in = pump.next()) {
    stream.next_in = const_cast<unsigned char*>(in.data());
    stream.avail_in = static_cast<uInt>(in.size());
    while (stream.avail_in > 0) {
      if (between && any && *stream.next_in == 0) {
        ++stream.next_in;
        --stream.avail_in;
        continue;
      }
      between = false;
      int status = Z_OK;
      do {
        stream.next_out = out.data();
        stream.avail_out = static_cast<uInt>(out.size());
        status = inflate(&stream, Z_NO_FLUSH);
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
          fail_damaged(source, stream.msg != nullptr ? stream.msg : "it is no valid gzip");
        pump.put(std::span(out).first(out.size() - stream.avail_out));
      } while (status == Z_OK && stream.avail_out == 0);
      if (status != Z_STREAM_END) continue;
      inflateReset(&stream);
      between = any = true;
    }
  }
  if (!between) fail_damaged(source, "the file is truncated");
}

void unzstd(const core::File& source, Pump& pump) {
  const std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                             ZSTD_freeDStream);
  core::check(stream != nullptr, "zstd starts");
  std::vector<unsigned char> out(chunk_bytes);
  std::size_t missing = 0;  // 0: a frame has ended
  for (auto in = pump.next(); !in.empty(); in = pump.next()) {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    bool is_full = true;
    while (input.pos < input.size || is_full) {
      ZSTD_outBuffer output{out.data(), out.size(), 0};
      const std::size_t at = input.pos;
      missing = ZSTD_decompressStream(stream.get(), &output, &input);
      if (ZSTD_isError(missing) != 0) fail_damaged(source, ZSTD_getErrorName(missing));
      pump.put(std::span(out).first(output.pos));
      is_full = output.pos == output.size;
      // A frame that ends with the input: calling again would ask for another one.
      if (missing == 0 && input.pos == input.size) break;
      if (input.pos == at && output.pos == 0) break;
    }
  }
  if (missing != 0) fail_damaged(source, "the file is truncated");
}

/// The folder for this user's copies, which nobody else can write to.
fs::path copies_folder() {
  const char* named = std::getenv("TMPDIR");
  const fs::path folder = fs::path(named != nullptr && *named != '\0' ? named : "/tmp") /
                          fmt::format("finetune-{}", ::geteuid());
  ::mkdir(folder.c_str(), 0700);
  struct stat status {};
  const bool is_ours = ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                       status.st_uid == ::geteuid() && (status.st_mode & 022) == 0;
  if (!is_ours) {
    core::fail(core::ErrorKind::environment,
               {folder.string(), "is no folder that only this user writes to",
                "compressed data are decompressed there",
                "Remove it, or set TMPDIR to a folder of your own."});
  }
  return folder;
}

/// Whether the name still leads to the open file: another may have taken its place.
bool is_at(int descriptor, const fs::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(descriptor, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/// Removes a copy that no other process has open.
void unlink_if_unused(int descriptor, const fs::path& path) {
  if (core::try_lock(descriptor, core::Lock::exclusive) == core::Locked::yes &&
      is_at(descriptor, path))
    ::unlink(path.c_str());
}

/// Removes copies that nobody has locked, which killed runs left, but for those of `wanted`.
void remove_leftovers(const fs::path& folder, const std::string& wanted) {
  std::error_code ignored;
  std::vector<fs::path> copies;
  for (fs::directory_iterator each(folder, ignored), end; !ignored && each != end;
       each.increment(ignored)) {
    const fs::path& path = each->path();
    const bool is_copy = path.extension() == ".plain" || path.extension() == ".partial";
    if (is_copy && path.stem() != wanted) copies.push_back(path);
  }
  for (const fs::path& path : copies) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0) continue;
    unlink_if_unused(descriptor, path);
    ::close(descriptor);
  }
}

/// An open, locked copy. The last process to let go of it removes it.
class Keeper {
 public:
  Keeper(int descriptor, fs::path path) : descriptor_(descriptor), path_(std::move(path)) {}
  ~Keeper() {
    unlink_if_unused(descriptor_, path_);
    ::close(descriptor_);
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  int descriptor_;
  fs::path path_;
};

void lock(int descriptor, core::Lock how, const fs::path& path) {
  if (core::wait_for_lock(descriptor, how)) return;
  core::fail(core::ErrorKind::io, {path.string(), "cannot be locked", core::system_reason(),
                                   "Set TMPDIR to a folder on a local disk."});
}

bool is_unlinked(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) != 0 || status.st_nlink == 0;
}

PlainFile keep(int descriptor, const fs::path& copy, const fs::path& source) {
  auto keeper = std::make_shared<Keeper>(descriptor, copy);
  const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  core::check(own >= 0, "a descriptor can be duplicated");
  return PlainFile(core::File(own, source), std::move(keeper));
}

/// The shared copy of `source`, which `write` makes if nobody has. `name` tells versions apart.
PlainFile shared_copy(const core::File& source, const std::string& name,
                      const std::function<void(const core::File&)>& write) {
  const fs::path folder = copies_folder();
  remove_leftovers(folder, name);
  const fs::path whole = folder / (name + ".plain");
  const fs::path partial = folder / (name + ".partial");
  while (true) {
    int descriptor = ::open(whole.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor >= 0) {
      lock(descriptor, core::Lock::shared, whole);
      if (!is_unlinked(descriptor)) return keep(descriptor, whole, source.path());
      ::close(descriptor);  // removed between opening and locking
      continue;
    }
    descriptor = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0) {
      core::fail(core::ErrorKind::io, {partial.string(), "cannot be created", core::system_reason(),
                                       "Set TMPDIR to a folder that can be written to."});
    }
    core::File target(descriptor, partial);
    if (core::try_lock(descriptor, core::Lock::exclusive) == core::Locked::held_by_another) {
      // Who writes it keeps it when it is whole, as one of many: to wait for it alone would be to
      // wait for the end of a run that waits for us. Either it is whole now, or the writer is gone.
      lock(descriptor, core::Lock::shared, partial);
      continue;
    }
    lock(descriptor, core::Lock::exclusive, partial);
    // Whoever held the lock before may have finished: then this is no longer the partial file.
    if (is_unlinked(descriptor) || ::access(whole.c_str(), F_OK) == 0) continue;
    core::check(::ftruncate(descriptor, 0) == 0, "an open file can be emptied");
    try {
      write(target);
    } catch (...) {
      ::unlink(partial.c_str());
      throw;
    }
    if (::rename(partial.c_str(), whole.c_str()) != 0) {
      core::fail(core::ErrorKind::io, {partial.string(), "cannot be renamed", core::system_reason(),
                                       "Look at the file system."});
    }
    lock(descriptor, core::Lock::shared, whole);
    const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    core::check(own >= 0, "a descriptor can be duplicated");
    return keep(own, whole, source.path());
  }
}

/// Copies are of one node: unlike core::file_identity, this tells its disks apart.
std::string version_of(const core::File& source) {
  struct stat status {};
  core::check(::fstat(source.descriptor(), &status) == 0, "an open file has a status");
  return core::fingerprint(fmt::format("{} {} {} {} {}", status.st_dev, status.st_ino,
                                       status.st_size, status.st_mtim.tv_sec,
                                       status.st_mtim.tv_nsec));
}

}  // namespace

PlainFile open_plain(const fs::path& path) {
  core::File source(path, core::File::Mode::read);
  const Compression compression = compression_of(source);
  if (compression == Compression::none) return PlainFile(std::move(source));
  return shared_copy(source, version_of(source), [&](const core::File& target) {
    Pump pump(source, target);
    compression == Compression::gzip ? gunzip(source, pump) : unzstd(source, pump);
  });
}

}  // namespace finetune::data
