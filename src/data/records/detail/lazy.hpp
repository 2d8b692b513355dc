#pragma once
// SPDX-License-Identifier: Apache-2.0
// What is found out when it is first needed: a start that finds its tokens in the cache needs no
// index of the data files.

#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace finetune::data {

/// Thread-safe.
template <typename T>
class Lazy {
 public:
  explicit Lazy(std::function<T()> make) : make_(std::move(make)) {}

  /// Throws: as `make`, which is tried again next time.
  const T& get() const {
    const std::lock_guard lock(mutex_);
    if (!value_) value_.emplace(make_());
    return *value_;
  }

  /// Null if it was not needed yet.
  const T* look() const {
    const std::lock_guard lock(mutex_);
    return value_ ? &*value_ : nullptr;
  }

  /// Takes the place of what would be made.
  void set(T value) {
    const std::lock_guard lock(mutex_);
    value_.emplace(std::move(value));
  }

 private:
  std::function<T()> make_;
  mutable std::mutex mutex_;
  mutable std::optional<T> value_;
};

}  // namespace finetune::data
