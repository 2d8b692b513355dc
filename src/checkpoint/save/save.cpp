// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/save.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/format/detail/aside.hpp"
#include "checkpoint/format/detail/candidate.hpp"
#include "checkpoint/format/detail/folder.hpp"
#include "checkpoint/save/detail/background.hpp"
#include "checkpoint/save/detail/job.hpp"
#include "comm/agree.hpp"
#include "core/build_info.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

std::int64_t total_bytes(std::span<const StoredSlice> slices) {
  std::int64_t total = 0;
  for (const StoredSlice& stored : slices)
    total += stored.slice.size_bytes();
  return total;
}

/// How long training waits for the manifest and the renames, instead of a whole step.
constexpr double patience_s = 0.05;

/// A file system may take its time, but not in silence.
constexpr double seconds_between_warnings = 60;

/// What a publisher sees of the files that ranks wrote. A "shared" folder that each node has for
/// itself ends here.
void require_files(const fs::path& folder, const std::vector<FileEntry>& files) {
  for (const FileEntry& file : files) {
    std::error_code error;
    const auto size = fs::file_size(folder / file.name, error);
    if (!error && size == static_cast<std::uintmax_t>(file.size_bytes)) continue;
    core::fail(core::ErrorKind::io,
               {(folder / file.name).string(), "the first rank does not see this file as written",
                error ? error.message() : "its size differs",
                "Use a folder on a file system that all nodes share."});
  }
}

/// Completes the manifest from the records; its text, checked.
std::string describe_all(Manifest& manifest, const std::vector<std::string>& records,
                         const std::string& state) {
  add_records(manifest, records);
  manifest.created_by = core::build_stamp();
  manifest.state_bytes = std::ssize(state);
  manifest.state_fingerprint = core::fingerprint(state);
  validate(manifest, "the slices to be saved", core::ErrorKind::bug);
  std::string text = to_text(manifest);
  core::check(
      std::ssize(text) <= largest_manifest_bytes && std::ssize(state) <= largest_state_bytes,
      "manifest and state stay below the sizes that are read");
  return text;
}

}  // namespace

/// What exists until the checkpoint counts. The thread comes last, so that it has ended before what
/// it works on goes.
struct Saving::Parts {
  enum class Phase { writing, describing, publishing };

  Phase phase = Phase::writing;
  fs::path folder;  ///< the temporary one
  std::string state;
  Line line;
  RankJob job;
  std::vector<comm::Communicator::Delivery> of_partners;
  PayloadResult result;
  std::vector<std::string> records;
  Manifest header;
  std::vector<FileEntry> files;  ///< on the root, once they are described
  std::string manifest;
  double thread_s = 0;  ///< what the thread took in the last two phases
  Background thread;
};

template <typename F>
auto Saving::guarded(F&& f) {
  const core::Stopwatch watch;
  try {
    auto result = f();
    report_.blocked_s += watch.seconds();
    return result;
  } catch (const comm::AgreedError&) {
    give_up();
    throw;
  }
}

Saving::Saving(Writers writers, const fs::path& root, std::int64_t step, const core::Json& state,
               std::span<const StoredSlice> slices, const SaveOptions& options)
    : writers_(std::move(writers)),
      root_(root),
      options_(options),
      parts_(std::make_unique<Parts>()) {
  report_.folder = root / folder_name(step);
  report_.step = step;
  guarded([&] {
    begin(state, slices);
    return true;
  });
}

Saving::~Saving() = default;

bool Saving::is_publisher() const {
  return options_.level == Level::shared ? writers_.world.is_root() : writers_.node.is_root();
}

bool Saving::needs_data() const {
  return parts_ && parts_->phase == Parts::Phase::writing;
}

void Saving::begin(const core::Json& state, std::span<const StoredSlice> slices) {
  const comm::Communicator& world = writers_.world;
  const comm::Communicator& viewers = options_.level == Level::shared ? world : writers_.node;
  comm::agree(world, [&] { check_arguments(report_.step, slices, options_); });
  const std::int64_t own_bytes = total_bytes(slices);
  report_.payload_bytes = world.all_reduce(own_bytes, comm::Reduce::sum);
  const std::int64_t bytes_here =
      viewers.all_reduce(own_bytes, comm::Reduce::sum) * (writers_.partner ? 2 : 1);

  const std::string name = viewers.broadcast_text(comm::agree(world, [&]() -> std::string {
    if (!is_publisher()) return "";
    core::fault::hit("ckpt.mkdir", root_.native());
    require_space(root_, bytes_here);
    return make_temporary_folder(root_, report_.step, options_.access).filename().string();
  }));
  Parts& parts = *parts_;
  parts.folder = root_ / name;
  parts.state = state.dump(1);
  parts.line = RunState::from_json(state).line();
  parts.header.step = report_.step;
  parts.header.world_size = world.size();
  parts.header.block_bytes = options_.block_bytes;
  parts.job = make_job(writers_, parts.folder, slices, options_);
  if (writers_.partner)
    parts.of_partners = world.deliver(pack(parts.job.payload), *writers_.partner);
  parts.thread = Background([&parts](const std::stop_token& stop) {
    parts.result = write_payload(parts.job.payload, stop);
    for (const auto& delivery : parts.of_partners)
      write_payload(unpack(delivery.bytes, parts.folder, parts.job.payload), stop);
  });
}

bool Saving::advance() {
  if (!parts_) return true;
  return guarded([&] { return go_on(); });
}

const SaveReport& Saving::finish() {
  const core::Stopwatch waiting;
  const double blocked_before_s = report_.blocked_s;
  core::Stopwatch since_told;
  while (!advance()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (since_told.seconds() < seconds_between_warnings) continue;
    since_told.restart();
    log::warn(fmt::format("{} is still being written, {:.0f} s so far: rank {} has not finished",
                          report_.folder.string(), watch_.seconds(), late_rank_));
  }
  report_.blocked_s = blocked_before_s + waiting.seconds();
  return report_;
}

bool Saving::go_on() {
  while (true) {
    if (!all_have_finished()) return false;
    switch (parts_->phase) {
      case Parts::Phase::writing:
        describe();
        break;
      case Parts::Phase::describing:
        report_.publish_s += parts_->thread_s;
        publish();
        break;
      case Parts::Phase::publishing:
        report_.publish_s += parts_->thread_s;
        report_.total_s = watch_.seconds();
        parts_.reset();
        return true;
    }
    const core::Stopwatch waiting;
    while (!parts_->thread.is_finished() && waiting.seconds() < patience_s)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

bool Saving::all_have_finished() {
  Parts& parts = *parts_;
  const std::int64_t unfinished = parts.thread.is_finished() ? -1 : writers_.world.rank();
  late_rank_ = writers_.world.all_reduce(unfinished, comm::Reduce::max);
  if (late_rank_ >= 0) return false;
  comm::agree(writers_.world, [&] { parts.thread.finish(); });
  return true;
}

/// The records go to the root, which makes the manifest of them.
void Saving::describe() {
  Parts& parts = *parts_;
  double times[] = {parts.result.write_s, parts.result.read_back_s};
  writers_.world.all_reduce(std::span<double>(times), comm::Reduce::max);
  report_.write_s = times[0];
  report_.read_back_s = times[1];
  std::vector<SliceRecord> slices = std::move(parts.job.slices);
  for (std::size_t i = 0; i < slices.size(); ++i)
    slices[i].crc32c = std::move(parts.result.checksums[i]);
  slices.insert(slices.end(), parts.job.empty.begin(), parts.job.empty.end());
  const std::string file_name = parts.job.payload.file.filename();
  std::optional<FileEntry> file;
  if (parts.job.lays_out_file)
    file = {file_name, parts.job.payload.file_bytes, parts.result.skeleton_crc32c};
  comm::agree(writers_.world, [&] { core::fault::hit("ckpt.gather", root_.native()); });
  parts.records = writers_.world.gather_text(to_record(file, file_name, slices));
  parts.of_partners.clear();
  parts.phase = Parts::Phase::describing;
  if (!writers_.world.is_root()) return;
  parts.thread = Background([&parts](const std::stop_token&) {
    const core::Stopwatch watch;
    Manifest manifest = std::move(parts.header);
    parts.manifest = describe_all(manifest, parts.records, parts.state);
    parts.files = std::move(manifest.files);
    parts.thread_s = watch.seconds();
  });
}

/// Whoever made a temporary folder makes it a checkpoint.
void Saving::publish() {
  Parts& parts = *parts_;
  parts.phase = Parts::Phase::publishing;
  if (options_.level == Level::local) {
    // Only those who publish need it: it may be large, and the ranks of a node many.
    const auto publishers =
        writers_.world.split(is_publisher() ? 0 : 1, writers_.world.rank(), "publishers");
    if (is_publisher()) {
      parts.manifest = publishers.broadcast_text(std::move(parts.manifest));
      parts.state = publishers.broadcast_text(std::move(parts.state));
    }
  }
  if (!is_publisher()) return;
  parts.thread = Background([this, &parts](const std::stop_token&) {
    const core::Stopwatch watch;
    if (options_.level == Level::shared) require_files(parts.folder, parts.files);
    write_new_file(parts.folder / state_name, parts.state, file_mode(options_.access));
    write_manifest_file(parts.folder, parts.manifest, file_mode(options_.access));
    if (options_.level == Level::shared)
      move_aside_other(root_, report_.step, parts.line, options_.access);
    checkpoint::publish(parts.folder, root_, report_.step);
    if (options_.retention) retire(root_, *options_.retention, report_.step, options_.level);
    parts.thread_s = watch.seconds();
  });
}

void Saving::give_up() {
  if (!parts_) return;
  const fs::path folder = parts_->folder;
  parts_.reset();  // ends the thread
  // Ranks share the folder: nobody may still be writing when it goes.
  writers_.world.barrier();
  if (!folder.empty() && is_publisher()) remove_quietly(folder);
}

SaveReport save(const comm::Communicator& world, const comm::Communicator& node, int node_index,
                const fs::path& root, std::int64_t step, const core::Json& state,
                std::span<const StoredSlice> slices, const SaveOptions& options) {
  Saving saving({.world = world, .node = node, .node_index = node_index}, root, step, state, slices,
                options);
  return saving.finish();
}

}  // namespace finetune::checkpoint
