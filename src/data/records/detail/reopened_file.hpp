#pragma once
// SPDX-License-Identifier: Apache-2.0
// A data file that is open while it is read: data sets have more files than a process may have
// open, and more text, once decompressed, than a node's disk holds.

#include <filesystem>
#include <memory>
#include <mutex>
#include <utility>

#include "core/file.hpp"
#include "data/records/decompress.hpp"

namespace finetune::data {

/// Thread-safe.
class ReopenedFile {
 public:
  /// Throws: ErrorKind::input if it cannot be opened.
  explicit ReopenedFile(std::filesystem::path path) : path_(std::move(path)) {
    const core::File can_be_opened(path_, core::File::Mode::read);
  }
  /// One that stays open.
  explicit ReopenedFile(PlainFile file)
      : path_(file.file().path()),
        stays_(true),
        open_(std::make_shared<const PlainFile>(std::move(file))) {}

  const std::filesystem::path& path() const { return path_; }

  /// Throws: as open_plain, if it is not open.
  std::shared_ptr<const PlainFile> open() const {
    const std::lock_guard lock(*mutex_);
    if (!open_) open_ = std::make_shared<const PlainFile>(open_plain(path_));
    return open_;
  }

  /// Closed once nobody reads it any more; the next to read opens it again.
  void release() const {
    const std::lock_guard lock(*mutex_);
    if (!stays_) open_.reset();
  }

 private:
  std::filesystem::path path_;
  bool stays_ = false;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  mutable std::shared_ptr<const PlainFile> open_;
};

}  // namespace finetune::data
