#pragma once
// SPDX-License-Identifier: Apache-2.0
// One job at a time uses a folder, also where the file system has no locks.

#include <filesystem>

#include "checkpoint/format/layout.hpp"
#include "core/file.hpp"

namespace finetune::checkpoint {

inline constexpr const char* lock_name = ".lock";

/// Holds `.lock` of a folder, in which its job is named, until it goes or the process ends.
class RunLock {
 public:
  /// Who holds it has 5 s to end first. Where the file system has no locks, whom `.lock` names
  /// counts as holding it, unless that is a process of this host that has ended, or the job of this
  /// process, which runs anew; the name is removed when this object goes.
  /// Throws: ErrorKind::create naming the job that holds it.
  RunLock(const std::filesystem::path& root, Access access);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  core::File file_;
};

}  // namespace finetune::checkpoint
