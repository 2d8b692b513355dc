#pragma once
// SPDX-License-Identifier: Apache-2.0
// Locks between processes. One belongs to an open file, copies of its descriptor included: it ends
// when the last of them is closed, however their processes end.

#include <optional>

#include "core/file.hpp"

namespace finetune::core {

enum class Lock { shared, exclusive };
enum class Locked {
  yes,
  held_by_another,
  impossible,  ///< the file system has no locks; errno says what it answered
};

/// Takes the lock, or turns the one that this open file has into it, without waiting. A shared lock
/// needs a file that is open for reading, an exclusive one for writing.
[[nodiscard]] Locked try_lock(int descriptor, Lock lock);

/// As `try_lock`, but waits for others. False, with errno, where the file system has no locks.
[[nodiscard]] bool wait_for_lock(int descriptor, Lock lock);

/// Whether another open file holds a lock of this one; nothing where the file system has no locks.
std::optional<bool> is_locked_by_another(const File& file);

}  // namespace finetune::core
