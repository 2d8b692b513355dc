// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/checkpoints.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"

namespace finetune::train {
namespace {

using checkpoint::Level;

/// So many saves that fail in a row are no accident.
constexpr int max_failures = 3;

const char* name(Level level) {
  return level == Level::shared ? "the checkpoint" : "the node-local checkpoint";
}

}  // namespace

Checkpoints::Checkpoints(const checkpoint::CheckpointSettings& settings, std::filesystem::path root,
                         std::filesystem::path local_root, const world::World& world, State& state,
                         checkpoint::RunFolder* run_folder, Describe describe, Report report)
    : settings_(settings),
      root_(std::move(root)),
      local_root_(std::move(local_root)),
      world_(world),
      state_(state),
      run_folder_(run_folder),
      describe_(std::move(describe)),
      report_(std::move(report)) {}

void Checkpoints::start_from(Level level, std::int64_t step) {
  if (level == Level::shared) newest_ = step;
  has_local_ = level == Level::local;
}

const std::filesystem::path& Checkpoints::root(Level level) const {
  return level == Level::shared ? root_ : local_root_;
}

checkpoint::SaveOptions Checkpoints::options(Level level) const {
  checkpoint::SaveOptions options;
  options.level = level;
  options.files = settings_.files;
  options.access = settings_.access;
  options.retention = settings_.retention();
  options.durability.read_back = settings_.read_back;
  if (level == Level::local) {
    // It need not outlive the machine: a node that is lost is what its partner is for. Two are kept
    // because a node may die after some nodes have the newest and others have not.
    options.durability = {.sync = false, .read_back = false};
    options.retention = checkpoint::Retention{.newest = 2};
  }
  return options;
}

bool Checkpoints::minutes_are_due(Level level) const {
  const double minutes = level == Level::shared ? settings_.save_minutes : settings_.local_minutes;
  const auto& since = level == Level::shared ? since_shared_ : since_local_;
  return minutes > 0 && since.seconds() >= 60 * minutes;
}

bool Checkpoints::is_due(Level level, std::int64_t step, bool time_is_due) const {
  if (level == Level::local && !settings_.has_local_level()) return false;
  const std::int64_t steps = level == Level::shared ? settings_.save_steps : settings_.local_steps;
  return time_is_due || (steps > 0 && step % steps == 0);
}

template <typename F>
void Checkpoints::attempt(std::int64_t step, F&& f) {
  try {
    f();
  } catch (const comm::AgreedError& error) {
    failed(error, step);
  }
}

void Checkpoints::advance() {
  if (!saving_) return;
  attempt(saving_->step(), [&] {
    const bool is_done = saving_->advance();
    if (!saving_->needs_data()) state_.release();
    if (is_done) done();
  });
}

void Checkpoints::wait_quietly() {
  if (!saving_) return;
  saving_->finish();
  done();
}

void Checkpoints::wait() {
  if (saving_) attempt(saving_->step(), [&] { wait_quietly(); });
}

void Checkpoints::begin(Level level, std::int64_t step) {
  if (level == Level::shared && newest_ == step) return;
  if (saving_) {
    // Those on the node come often and are not worth a stop.
    const bool is_skipped =
        settings_.when_busy == checkpoint::WhenBusy::skip || level == Level::local;
    const std::string text =
        fmt::format("{} of step {} is due while that of step {} is still being written",
                    name(level), step, saving_->step());
    if (is_skipped) {
      // By minutes the next try is after the next step: once is enough to hear of it.
      const bool is_told = std::exchange(skipped_for_, saving_->step()) == saving_->step();
      if (!is_told)
        log::warn(text + ": it is skipped" +
                  (level == Level::shared ? " (checkpoint.when_busy)" : ""));
      return;
    }
    log::warn(text + ": training waits (checkpoint.when_busy)");
    wait();
  }
  if (!settings_.is_async && level == Level::shared) {
    attempt(step, [&] { save_now(step); });
    return;
  }
  (level == Level::shared ? since_shared_ : since_local_).restart();
  level_ = level;
  attempt(step, [&] {
    const core::Stopwatch watch;
    const auto slices = comm::agree(world_.world, [&] { return state_.snapshot(); });
    copy_s_ = watch.seconds();
    const checkpoint::Writers writers{
        .world = world_.world,
        .node = world_.node,
        .node_index = world_.node_index,
        .partner = level == Level::local ? world_.partner : std::nullopt};
    const core::Json state = comm::agree(world_.world, describe_).to_json();
    saving_ = std::make_unique<checkpoint::Saving>(writers, root(level), step, state, slices,
                                                   options(level));
  });
}

void Checkpoints::save_now(std::int64_t step) {
  try {
    wait_quietly();
  } catch (const comm::AgreedError& error) {
    // The newer one, if there is to be one, may still succeed.
    log::warn(fmt::format("{} of step {} could not be saved: {}", name(level_), saving_->step(),
                          error.what()));
    saving_.reset();
    state_.release();
  }
  if (newest_ == step) return;
  copy_s_ = 0;
  level_ = Level::shared;
  since_shared_.restart();
  try {
    const core::Stopwatch watch;
    const auto slices = comm::agree(world_.world, [&] { return state_.stored(); });
    copy_s_ = watch.seconds();
    const core::Json state = comm::agree(world_.world, describe_).to_json();
    saving_ = std::make_unique<checkpoint::Saving>(
        checkpoint::Writers{world_.world, world_.node, world_.node_index}, root_, step, state,
        slices, options(level_));
    saving_->finish();
  } catch (const comm::AgreedError&) {
    saving_.reset();
    state_.release();
    throw;
  }
  state_.release();
  done();
}

void Checkpoints::done() {
  checkpoint::SaveReport report = saving_->report();
  saving_.reset();
  state_.release();
  report.blocked_s += copy_s_;
  report.total_s += copy_s_;
  blocked_s_ += report.blocked_s;
  if (level_ == Level::local) has_local_ = true;
  if (level_ == Level::shared) {
    newest_ = report.step;
    failures_ = 0;
    if (run_folder_ != nullptr) run_folder_->note_progress();
  }
  report_(report, level_);
}

void Checkpoints::failed(const comm::AgreedError& error, std::int64_t step) {
  saving_.reset();
  state_.release();
  const bool is_of_files =
      error.kind() == core::ErrorKind::create || error.kind() == core::ErrorKind::io;
  if (!is_of_files) throw error;
  if (level_ == Level::local) {
    // Those on the node are an extra: losing some must not end a run.
    return log::warn(fmt::format("{} of step {} could not be saved: {} Training continues.",
                                 name(level_), step, error.what()));
  }
  if (settings_.on_error == checkpoint::OnError::stop) throw error;
  if (++failures_ >= max_failures) {
    throw comm::AgreedError(core::ErrorKind::io,
                            fmt::format("{} saves in a row have failed, the last because of: {}",
                                        failures_, error.what()));
  }
  log::warn(fmt::format(
      "{} of step {} could not be saved: {} Training continues {} (checkpoint.on_error).",
      name(level_), step, error.what(),
      newest_ ? fmt::format("with that of step {}", *newest_) : std::string("without one")));
}

double Checkpoints::take_blocked_s() {
  return std::exchange(blocked_s_, 0.0);
}

}  // namespace finetune::train
