// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_lock.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/file_lock.hpp"
#include "core/host.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t largest_name_bytes = 4096;

/// The scheduler's name of this job, empty without one.
std::string job_id() {
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID"})
    if (const char* id = std::getenv(name)) return id;
  return {};
}

/// "job 12 on node3 (process 456)", in the words of whoever took the lock.
std::string describe_this_job() {
  const std::string job = job_id();
  if (job.empty()) return fmt::format("process {} on {}", ::getpid(), core::host_name());
  return fmt::format("job {} on {} (process {})", job, core::host_name(), ::getpid());
}

/// Whom the file names; empty: nobody, as after an end in good order.
std::string named_in(const core::File& file) {
  if (file.size_bytes() <= 0 || file.size_bytes() >= largest_name_bytes) return {};
  std::string name(static_cast<std::size_t>(file.size_bytes()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(name)));
  return core::printable(name);
}

/// The number behind "process ", 0 without one.
pid_t process_in(std::string_view name) {
  constexpr std::string_view before = "process ";
  const std::size_t at = name.find(before);
  if (at == std::string_view::npos) return 0;
  const std::string_view digits = name.substr(at + before.size());
  pid_t process = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), process);
  return process;
}

/// Whether whom the file names has certainly ended.
bool has_ended(const std::string& name) {
  const std::string job = job_id();
  const std::string here = " on " + core::host_name();
  const bool is_here = name.ends_with(here) || name.find(here + " (process ") != std::string::npos;
  if (const pid_t process = process_in(name); is_here && process > 0)
    return process == ::getpid() || (::kill(process, 0) != 0 && errno == ESRCH);
  // A scheduler runs a job once at a time: this is its next start, on other nodes.
  return !job.empty() && name.starts_with(fmt::format("job {} on ", job));
}

/// A job that was just killed may hold its lock for as long as its processes take to end: the next
/// start, which its script makes at once, waits for that.
core::Locked lock_soon(int file) {
  // Whoever tests what happens without locks has file systems that have them.
  if (core::fault::hit("run.lock") == core::fault::FaultAction::flip) {
    errno = ENOLCK;
    return core::Locked::impossible;
  }
  constexpr auto longest = std::chrono::seconds(5);
  const auto end = std::chrono::steady_clock::now() + longest;
  core::Locked locked = core::try_lock(file, core::Lock::exclusive);
  while (locked == core::Locked::held_by_another && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    locked = core::try_lock(file, core::Lock::exclusive);
  }
  return locked;
}

[[noreturn]] void refuse_in_use(const fs::path& root, const std::string& owner,
                                const std::string& remedy) {
  core::fail(core::ErrorKind::create, {root.string(), "is in use by " + owner,
                                       "two runs would overwrite each other", remedy});
}

}  // namespace

RunLock::RunLock(const fs::path& root, Access access)
    : file_(root / lock_name, core::File::Mode::create_or_write, core::ErrorKind::create) {
  ::fchmod(file_.descriptor(), file_mode(access));
  const core::Locked locked = lock_soon(file_.descriptor());
  const std::string reason = core::system_reason();
  const std::string owner = named_in(file_);
  if (locked == core::Locked::held_by_another)
    refuse_in_use(root, owner.empty() ? "another job" : owner,
                  "Wait until it ends, or set another train.output.");
  if (locked == core::Locked::impossible) {
    if (!owner.empty() && !has_ended(owner))
      refuse_in_use(
          root, owner,
          fmt::format("Wait until it ends, or set another train.output. If it was killed, "
                      "remove {}: this file system has no locks to ask ({}).",
                      (root / lock_name).string(), reason));
    log::warn(fmt::format("{} cannot be locked ({}): see to it that no second job uses it",
                          root.string(), reason));
  }
  const std::string name = describe_this_job();
  if (::ftruncate(file_.descriptor(), 0) == 0) file_.write_at(0, std::as_bytes(std::span(name)));
  // Without locks the name is all that another node sees.
  if (locked == core::Locked::impossible) file_.sync();
}

RunLock::~RunLock() {
  // Also where there are locks: the next start may be on a node that has none.
  (void)!::ftruncate(file_.descriptor(), 0);
}

}  // namespace finetune::checkpoint
