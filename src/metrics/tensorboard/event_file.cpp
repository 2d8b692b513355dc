// SPDX-License-Identifier: Apache-2.0
// A file is a TFRecord file: https://www.tensorflow.org/tutorials/load_data/tfrecord has the
// layout of a record and how its checksums are masked.
#include "metrics/tensorboard/event_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/hash.hpp"
#include "core/host.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "metrics/tensorboard/detail/wire.hpp"

namespace finetune::metrics {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "events.out.tfevents.";
constexpr std::int64_t head_bytes = 12;  ///< length and its checksum
constexpr std::int64_t tail_bytes = 4;

std::string masked_crc(std::string_view data) {
  const std::uint32_t crc = core::crc32c(std::as_bytes(std::span(data)));
  return little_endian<std::uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8U);
}

/// In the order in which they were begun.
std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error))
    if (i->path().filename().string().starts_with(prefix)) files.push_back(i->path());
  std::ranges::sort(files);
  return files;
}

/// The second in which it was begun, by its name; 0 if that has none.
std::int64_t second_of(const fs::path& file) {
  const std::string name = file.filename().string();
  std::int64_t second = 0;
  std::from_chars(name.data() + prefix.size(), name.data() + name.size(), second);
  return second;
}

core::File new_file(const fs::path& folder) {
  auto second = static_cast<std::int64_t>(core::unix_time_s());
  // Readers take files in the order of their names, and clocks of nodes differ.
  for (const fs::path& file : event_files(folder))
    second = std::max(second, second_of(file) + 1);
  return {folder / fmt::format("{}{:010}.{}", prefix, second, core::host_name()),
          core::File::Mode::create_new, core::ErrorKind::create};
}

/// Reads a file of records from its beginning.
class Records {
 public:
  explicit Records(const core::File& file) : file_(file), size_bytes_(file.size_bytes()) {}

  /// Nothing at the end, and where no whole record follows.
  std::optional<std::string> next() {
    const std::string head = read(position_, head_bytes);
    if (head.empty() || masked_crc(head.substr(0, 8)) != head.substr(8)) return std::nullopt;
    const std::int64_t left = size_bytes_ - position_ - head_bytes - tail_bytes;
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < 8; ++i)
      length |= static_cast<std::uint64_t>(static_cast<unsigned char>(head[i])) << (8 * i);
    if (left < 0 || length > static_cast<std::uint64_t>(left)) return std::nullopt;
    const auto count = static_cast<std::int64_t>(length);
    std::string data = read(position_ + head_bytes, count + tail_bytes);
    const std::string crc = data.substr(length);
    data.resize(length);
    if (masked_crc(data) != crc) return std::nullopt;
    position_ += head_bytes + count + tail_bytes;
    return data;
  }

  /// Behind what was read.
  std::int64_t position() const { return position_; }
  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  std::string read(std::int64_t from, std::int64_t count) const {
    if (size_bytes_ - from < count) return {};
    std::string bytes(static_cast<std::size_t>(count), '\0');
    file_.read_at(from, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  const core::File& file_;
  std::int64_t size_bytes_;
  std::int64_t position_ = 0;
};

/// Whether anything remains.
bool cut_file(const fs::path& path, std::int64_t last_step) {
  const core::File file(path, core::File::Mode::write_existing, core::ErrorKind::io);
  Records records(file);
  std::int64_t kept_bytes = 0;
  std::int64_t num_kept = 0;
  for (auto event = records.next(); event; event = records.next()) {
    if (step_of_event(*event) > last_step) break;
    kept_bytes = records.position();
    ++num_kept;
  }
  if (num_kept <= 1) return false;  // the first is its version
  if (kept_bytes < records.size_bytes()) file.cut(kept_bytes);
  return true;
}

/// The least n for which no file is called events.old-n.
int free_number(const fs::path& folder) {
  int number = 1;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    constexpr std::string_view old = "events.old-";
    int of_file = 0;
    if (name.starts_with(old))
      std::from_chars(name.data() + old.size(), name.data() + name.size(), of_file);
    number = std::max(number, of_file + 1);
  }
  return number;
}

}  // namespace

std::string record_of(std::string_view data) {
  const std::string length = little_endian<std::uint64_t>(data.size());
  return length + masked_crc(length) + std::string(data) + masked_crc(data);
}

EventFile::EventFile(const fs::path& folder, std::int64_t first_step) : file_(new_file(folder)) {
  const double now = core::unix_time_s();
  append(record_of(version_event(now)) + record_of(start_event(now, first_step)));
}

void EventFile::add(Event event) {
  if (event.wall_time_s == 0) event.wall_time_s = core::unix_time_s();
  append(record_of(to_bytes(event)));
}

void EventFile::append(std::string_view bytes) {
  core::fault::hit("events.append", file_.path().native());
  file_.write_at(size_bytes_, std::as_bytes(std::span(bytes)));
  size_bytes_ += std::ssize(bytes);
}

void cut_event_files(const fs::path& folder, std::int64_t last_step) {
  for (const fs::path& path : event_files(folder)) {
    try {
      std::error_code error;
      if (!cut_file(path, last_step)) fs::remove(path, error);
    } catch (const core::Error& error) {
      log::warn(fmt::format("{} TensorBoard may show steps twice.", error.what()));
    }
  }
}

void set_aside_event_files(const fs::path& folder) {
  const auto files = event_files(folder);
  if (files.empty()) return;
  const std::string old = fmt::format("events.old-{}.", free_number(folder));
  for (const fs::path& path : files) {
    const std::string rest = path.filename().string().substr(prefix.size());
    std::error_code error;
    fs::rename(path, folder / (old + rest), error);
    if (error)
      log::warn(
          fmt::format("{} of an older run cannot be renamed ({}): TensorBoard shows both "
                      "runs as one",
                      path.string(), error.message()));
  }
  log::warn(
      fmt::format("event files of an older run in {} are now called {}*", folder.string(), old));
}

}  // namespace finetune::metrics
