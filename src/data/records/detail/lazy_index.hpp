#pragma once
// SPDX-License-Identifier: Apache-2.0
// An index that is made when it is first needed: a start that finds its tokens in the cache needs
// none.

#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "data/records/detail/entry_index.hpp"

namespace finetune::data {

/// Thread-safe.
class LazyIndex {
 public:
  explicit LazyIndex(std::function<EntryIndex()> make) : make_(std::move(make)) {}

  /// Throws: as `make`, which is tried again next time.
  const EntryIndex& get() const {
    const std::lock_guard lock(mutex_);
    if (!index_) index_.emplace(make_());
    return *index_;
  }

  /// Takes the place of what would be made.
  void set(EntryIndex index) {
    const std::lock_guard lock(mutex_);
    index_.emplace(std::move(index));
  }

 private:
  std::function<EntryIndex()> make_;
  mutable std::mutex mutex_;
  mutable std::optional<EntryIndex> index_;
};

}  // namespace finetune::data
