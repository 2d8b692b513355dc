// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/disk.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/file.hpp"

namespace finetune::preflight {
namespace {

namespace fs = std::filesystem;

/// A file that is removed with this.
class ProbeFile {
 public:
  explicit ProbeFile(fs::path path)
      : path_(std::move(path)),
        file_(path_, core::File::Mode::create_new, core::ErrorKind::create) {}
  ~ProbeFile() { ::unlink(path_.c_str()); }
  ProbeFile(const ProbeFile&) = delete;
  ProbeFile& operator=(const ProbeFile&) = delete;

  const core::File& file() const { return file_; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  core::File file_;
};

constexpr std::size_t piece_bytes = 4 << 20;

/// Name of a file that nobody else makes.
std::string probe_name(int rank) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return fmt::format(".finetune-check-{}-{}-{:x}", rank, ::getpid(), now);
}

DiskRates try_file(const ProbeFile& probe, std::int64_t bytes) {
  DiskRates rates;
  // Not zeros: file systems that compress would write nothing.
  std::vector<std::byte> piece(std::min<std::size_t>(piece_bytes, static_cast<std::size_t>(bytes)));
  std::uint64_t state = 88172645463325252u;
  for (std::byte& byte : piece) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    byte = static_cast<std::byte>(state);
  }
  const auto size_at = [&](std::int64_t begin) {
    return std::min(piece.size(), static_cast<std::size_t>(bytes - begin));
  };
  core::Stopwatch watch;
  for (std::int64_t at = 0; at < bytes; at += std::ssize(piece))
    probe.file().write_at(at, std::span(piece).first(size_at(at)));
  probe.file().sync();
  rates.write_gb_per_s = static_cast<double>(bytes) / 1e9 / watch.seconds();
  const core::File file(probe.path(), core::File::Mode::read);
  // Only a wish: file systems in memory keep their pages.
  (void)::posix_fadvise(file.descriptor(), 0, bytes, POSIX_FADV_DONTNEED);
  watch.restart();
  for (std::int64_t at = 0; at < bytes; at += std::ssize(piece))
    file.read_at(at, std::span(piece).first(size_at(at)));
  rates.read_gb_per_s = static_cast<double>(bytes) / 1e9 / watch.seconds();
  return rates;
}

/// Network file systems may show a new file only after a while.
bool appears(const fs::path& path) {
  constexpr auto patience = std::chrono::seconds(5);
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::error_code ignored;
    if (fs::exists(path, ignored)) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

template <typename F>
void note_problem(DiskFacts& facts, const F& f) {
  try {
    f();
  } catch (const std::exception& error) {
    if (facts.problem.empty()) facts.problem = error.what();
  }
}

}  // namespace

fs::path existing_folder(const fs::path& path) {
  std::error_code ignored;
  fs::path folder = fs::absolute(path, ignored).lexically_normal();
  while (!fs::is_directory(folder, ignored) && folder.has_relative_path())
    folder = folder.parent_path();
  return folder;
}

std::int64_t free_bytes(const fs::path& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return -1;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

DiskRates try_disk(const fs::path& folder, std::int64_t bytes) {
  const ProbeFile probe(folder / probe_name(0));
  return bytes > 0 ? try_file(probe, bytes) : DiskRates();
}

DiskFacts look_at_disk(const comm::Communicator& leaders, const fs::path& output,
                       std::int64_t probe_bytes) {
  DiskFacts facts;
  facts.folder = leaders.broadcast_text(existing_folder(output).string());
  facts.free_bytes = free_bytes(facts.folder);
  if (leaders.size() == 1 && probe_bytes == 0) return facts;

  // One file of rank 0, which all others look for.
  std::unique_ptr<ProbeFile> marker;
  const fs::path folder = facts.folder;
  const fs::path name = leaders.broadcast_text((folder / probe_name(leaders.rank())).string());
  if (leaders.is_root()) note_problem(facts, [&] { marker = std::make_unique<ProbeFile>(name); });
  const bool is_there = leaders.all_reduce(std::int64_t{marker != nullptr}, comm::Reduce::max) != 0;
  if (is_there && !leaders.is_root()) facts.sees_root = appears(name);
  leaders.barrier();
  if (!leaders.is_root() || probe_bytes > 0) {
    note_problem(facts, [&] {
      const ProbeFile probe(folder / probe_name(leaders.rank()));
      if (probe_bytes == 0) return;
      const DiskRates rates = try_file(probe, probe_bytes);
      facts.write_gb_per_s = rates.write_gb_per_s;
      facts.read_gb_per_s = rates.read_gb_per_s;
    });
  }
  return facts;
}

}  // namespace finetune::preflight
