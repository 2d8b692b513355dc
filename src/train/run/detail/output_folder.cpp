// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/output_folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/branch.hpp"
#include "checkpoint/load/local.hpp"
#include "comm/activity.hpp"
#include "comm/agree.hpp"
#include "comm/watch/flight_recorder.hpp"
#include "comm/watch/hang.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "core/log_file.hpp"

namespace finetune::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* log_name = "finetune.log";

/// A link, or a slip of the pen, may lead to a folder that is not meant for a run.
std::string foreign_text(const fs::path& output, const std::vector<std::string>& names) {
  constexpr std::size_t most_named = 5;
  std::error_code error;
  const auto target = fs::canonical(output, error);
  const bool is_link = !error && fs::is_symlink(output, error);
  const std::vector<std::string> first(
      names.begin(),
      names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), most_named)));
  return core::to_string(
      {fmt::format("train.output = {}", output.string()),
       fmt::format("{} holds other things than a run: {}{}",
                   is_link ? fmt::format("it leads to {}, which", target.string()) : "it",
                   fmt::join(first, ", "),
                   names.size() > most_named
                       ? fmt::format(" and {} more", names.size() - most_named)
                       : std::string()),
       "checkpoints and metrics are written next to them", "Name a folder of its own."});
}

fs::path local_root_of(const fs::path& root, const checkpoint::CheckpointSettings& settings,
                       const world::World& world) {
  if (!settings.has_local_level()) return {};
  return checkpoint::local_root(settings.local_dir, root, world.host);
}

}  // namespace

OutputFolder::OutputFolder(fs::path root, const checkpoint::CheckpointSettings& settings,
                           core::Json choice, const world::World& world)
    : world_(world), root_(std::move(root)), local_root_(local_root_of(root_, settings, world)) {
  claim(settings, std::move(choice));
  if (local_root_.empty()) return;
  comm::agree_all(world_.world, [&] {
    if (world_.node.is_root()) checkpoint::make_local_root(local_root_);
  });
}

void OutputFolder::claim(const checkpoint::CheckpointSettings& settings, core::Json choice) {
  const checkpoint::Access access = settings.access;
  const comm::Activity::Work work(world_.world.activity(), comm::writing_files,
                                  "the output folder");
  ::umask(0777 & ~checkpoint::folder_mode(access));  // also for metrics.jsonl and the like
  comm::agree_all(world_.world, [&] {
    if (!world_.world.is_root()) return;
    const auto others = checkpoint::foreign_entries(root_);
    folder_ = std::make_unique<checkpoint::RunFolder>(root_, access);
    if (!choice.is_null()) folder_->set_choice(std::move(choice));
    log::copy_to(root_ / log_name, checkpoint::file_mode(access));
    if (!others.empty()) log::warn(foreign_text(root_, others));
  });
  if (!world_.world.is_root()) log::copy_errors_to(root_ / log_name);
}

std::string OutputFolder::run_id() const {
  return world_.world.broadcast_text(folder_ ? folder_->run_id() : "");
}

metrics::RecordFile OutputFolder::continue_metrics(std::int64_t keep_bytes, bool keeps_all) const {
  std::error_code error;
  const auto bytes = fs::file_size(metrics_path(), error);
  if (keeps_all && !error) keep_bytes = std::max(keep_bytes, static_cast<std::int64_t>(bytes));
  return {metrics_path(), keep_bytes};
}

metrics::RecordFile OutputFolder::begin_metrics() const {
  const fs::path path = metrics_path();
  std::error_code error;
  if (fs::file_size(path, error) != 0 && !error) {
    fs::path kept;
    for (int i = 1; kept.empty() || fs::exists(kept); ++i)
      kept = path.string() + fmt::format(".old-{}", i);
    fs::rename(path, kept);
    log::warn(fmt::format("{} of an older run is now {}", path.string(), kept.string()));
  }
  return {path, 0};
}

void OutputFolder::write_deck(const std::string& resolved) const {
  comm::agree_all(world_.world, [&] {
    if (!world_.world.is_root()) return;
    core::write_text_atomically(root_ / "input.resolved.toml", resolved);
  });
}

void OutputFolder::note_start(std::int64_t step, const std::string& fingerprint,
                              std::int64_t max_starts) {
  comm::agree_all(world_.world, [&] {
    if (folder_) folder_->begin(step, fingerprint, max_starts);
  });
}

fs::path OutputFolder::flight_folder() const {
  const fs::path folder = root_ / comm::flight_folder_name;
  std::error_code error;
  if (world_.world.is_root() && fs::exists(folder, error)) {
    const fs::path before = root_ / comm::earlier_flight_folder_name;
    fs::remove_all(before, error);
    fs::rename(folder, before, error);
  }
  return folder;
}

void OutputFolder::tell_other_branches() const {
  if (!folder_) return;
  try {
    checkpoint::tell_others(root_, checkpoint::read_branch(root_));
  } catch (const core::Error& error) {
    log::warn(error.what());
  }
}

void OutputFolder::remove_local_of_others(const std::string& run_id) const {
  if (!local_root_.empty() && world_.node.is_root())
    checkpoint::remove_other_runs(local_root_, run_id);
}

}  // namespace finetune::train
