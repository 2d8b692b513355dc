#pragma once
// SPDX-License-Identifier: Apache-2.0
// Files of events that TensorBoard reads while they grow: one per start of a run, in its folder.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/file.hpp"
#include "metrics/tensorboard/event.hpp"

namespace finetune::metrics {

/// `data` as a record of a file: length, checksum of the length, data, checksum of the data.
std::string record_of(std::string_view data);

/// The file of one start. Only the root rank has one.
class EventFile {
 public:
  /// A new file in `folder`, behind those that are there in the order of their names, whatever this
  /// machine's clock says. `first_step`: the first that this start trains.
  /// Throws: ErrorKind::create.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);

  /// In one piece: a reader sees it whole, or not yet. Throws: ErrorKind::io.
  void add(Event event);
  /// What was added is on disk when it returns. Throws: ErrorKind::io.
  void sync() const { file_.sync(); }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void append(std::string_view bytes);

  core::File file_;
  std::int64_t size_bytes_ = 0;
};

/// Cuts the event files of `folder` to what was written up to `last_step`, and to their whole
/// records; removes those in which nothing remains. What cannot be read or cut is a warning.
void cut_event_files(const std::filesystem::path& folder, std::int64_t last_step);

/// Renames the event files of `folder` so that TensorBoard does not take them for those of the run
/// that begins there: events.old-<n>.<rest>. What cannot be renamed is a warning.
void set_aside_event_files(const std::filesystem::path& folder);

}  // namespace finetune::metrics
