#pragma once
// SPDX-License-Identifier: Apache-2.0
// What one rank has made and not yet handed on: in memory, and beyond a limit in a file without a
// name, which is gone with the process whatever ends it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/fault.hpp"
#include "core/file.hpp"

namespace finetune::data {

/// A file in `folder` that no other process sees. Throws: ErrorKind::create.
core::File nameless_file(const std::filesystem::path& folder);

/// Values one behind the other.
template <typename T>
class Spool {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  /// Holds `memory_bytes` in memory; the rest goes to a file in `folder`. Without a folder all
  /// stays in memory.
  Spool(std::filesystem::path folder, std::int64_t memory_bytes)
      : folder_(std::move(folder)), memory_bytes_(memory_bytes) {}

  /// Throws: ErrorKind::create if there can be no file, ErrorKind::io if it cannot be written.
  void append(std::span<const T> values) {
    if (!folder_.empty()) make_room(values.size());
    memory_.insert(memory_.end(), values.begin(), values.end());
  }
  void append(const T& value) { append(std::span(&value, 1)); }

  /// Values so far.
  std::int64_t size() const { return num_spilled_ + std::ssize(memory_); }
  bool has_spilled() const { return file_.has_value(); }

  /// Calls `f(first, values)` for all values in order, piece by piece; `first` counts them.
  /// Throws: ErrorKind::io.
  void read(const std::function<void(std::int64_t, std::span<const T>)>& f) const {
    constexpr std::int64_t piece = std::int64_t{1} << 20;
    std::vector<T> buffer(static_cast<std::size_t>(std::min(piece, num_spilled_)));
    for (std::int64_t first = 0; first < num_spilled_; first += piece) {
      const auto values =
          std::span(buffer).first(static_cast<std::size_t>(std::min(piece, num_spilled_ - first)));
      file_->read_at(first * bytes_each, std::as_writable_bytes(values));
      f(first, values);
    }
    if (!memory_.empty()) f(num_spilled_, memory_);
  }

 private:
  static constexpr auto bytes_each = static_cast<std::int64_t>(sizeof(T));

  /// Memory grows as a vector's does, but not beyond the limit.
  void make_room(std::size_t more) {
    const auto limit = static_cast<std::size_t>(memory_bytes_) / sizeof(T);
    const std::size_t needed = memory_.size() + more;
    if (needed > limit && !memory_.empty()) spill();
    if (memory_.size() + more > memory_.capacity())
      memory_.reserve(std::max(memory_.size() + more, std::min(limit, 2 * memory_.capacity())));
  }

  void spill() {
    core::fault::hit("data.spill");
    if (!file_) file_.emplace(nameless_file(folder_));
    file_->write_at(num_spilled_ * bytes_each, std::as_bytes(std::span(memory_)));
    num_spilled_ += std::ssize(memory_);
    memory_.clear();
  }

  std::filesystem::path folder_;
  std::int64_t memory_bytes_;
  std::vector<T> memory_;
  std::optional<core::File> file_;
  std::int64_t num_spilled_ = 0;
};

}  // namespace finetune::data
