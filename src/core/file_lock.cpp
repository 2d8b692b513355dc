// SPDX-License-Identifier: Apache-2.0
#include "core/file_lock.hpp"

#include <fcntl.h>

#include <cerrno>

namespace finetune::core {
namespace {

/// The whole file, however long it becomes.
struct flock range_of(short type) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  return range;
}

int set_lock(int descriptor, int command, Lock lock) {
  struct flock range = range_of(lock == Lock::shared ? F_RDLCK : F_WRLCK);
  return ::fcntl(descriptor, command, &range);
}

}  // namespace

Locked try_lock(int descriptor, Lock lock) {
  if (set_lock(descriptor, F_OFD_SETLK, lock) == 0) return Locked::yes;
  return errno == EAGAIN || errno == EACCES ? Locked::held_by_another : Locked::impossible;
}

bool wait_for_lock(int descriptor, Lock lock) {
  while (set_lock(descriptor, F_OFD_SETLKW, lock) != 0)
    if (errno != EINTR) return false;
  return true;
}

std::optional<bool> is_locked_by_another(const File& file) {
  struct flock range = range_of(F_WRLCK);
  if (::fcntl(file.descriptor(), F_OFD_GETLK, &range) != 0) return std::nullopt;
  return range.l_type != F_UNLCK;
}

}  // namespace finetune::core
