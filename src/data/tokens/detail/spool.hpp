#pragma once
// SPDX-License-Identifier: Apache-2.0
// Tokens that one rank has made and not yet handed on: in memory, and beyond a limit in a file
// without a name, which is gone with the process whatever ends it.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/file.hpp"
#include "data/tokens/detail/dataset.hpp"

namespace finetune::data {

/// A file in `folder` that no other process sees. Throws: ErrorKind::create.
core::File nameless_file(const std::filesystem::path& folder);

class Spool {
 public:
  /// Holds `memory_bytes` in memory; the rest goes to a file in `folder`. Without a folder all
  /// stays in memory.
  Spool(std::filesystem::path folder, std::int64_t memory_bytes)
      : folder_(std::move(folder)), memory_bytes_(memory_bytes) {}

  /// Throws: ErrorKind::create if there can be no file, ErrorKind::io if it cannot be written.
  void append(std::span<const PackedToken> tokens);

  /// Tokens so far.
  std::int64_t size() const { return num_spilled_ + std::ssize(memory_); }
  bool has_spilled() const { return file_.has_value(); }

  /// Calls `f(first, tokens)` for all tokens in order, piece by piece; `first` counts them.
  /// Throws: ErrorKind::io.
  void read(const std::function<void(std::int64_t, std::span<const PackedToken>)>& f) const;

 private:
  void spill();

  std::filesystem::path folder_;
  std::int64_t memory_bytes_;
  std::vector<PackedToken> memory_;
  std::optional<core::File> file_;
  std::int64_t num_spilled_ = 0;
};

}  // namespace finetune::data
