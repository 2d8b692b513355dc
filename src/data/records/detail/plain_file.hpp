#pragma once
// SPDX-License-Identifier: Apache-2.0
// A file to read at any place, which may be the decompressed copy of another.

#include <memory>
#include <utility>

#include "core/file.hpp"

namespace finetune::data {

/// A file, and whatever has to live as long as it is read.
class PlainFile {
 public:
  explicit PlainFile(core::File file, std::shared_ptr<void> keeper = nullptr)
      : file_(std::make_unique<core::File>(std::move(file))), keeper_(std::move(keeper)) {}

  /// Messages call it by the name of the compressed file. Stays where it is when this is moved.
  const core::File& file() const { return *file_; }

 private:
  std::unique_ptr<core::File> file_;
  std::shared_ptr<void> keeper_;
};

}  // namespace finetune::data
