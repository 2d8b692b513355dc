#pragma once
// SPDX-License-Identifier: Apache-2.0
// report.html in the folder of a run that goes on: written by a thread of its own.

#include <filesystem>
#include <future>
#include <string>

namespace finetune::train {

/// Every rank has one; only one that `writes` does anything. What cannot be written is a warning,
/// once. Nothing here is a collective, and nothing throws.
class PageWriter {
 public:
  PageWriter(std::filesystem::path root, bool writes);
  ~PageWriter();
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;

  /// Begins to write with what is there now, unless the page before is still being written.
  void write_soon();
  /// Waits for that, and writes once more.
  void write_last();

 private:
  void take_result();

  std::filesystem::path root_;
  bool writes_;
  bool has_warned_ = false;
  std::future<std::string> result_;  ///< why it could not be written, or nothing
};

}  // namespace finetune::train
