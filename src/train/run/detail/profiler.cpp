// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/profiler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <system_error>

#include "comm/agree.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "metrics/memory.hpp"
#include "plan/plan.hpp"
#include "shard/device_memory.hpp"
#include "trace/chrome_trace.hpp"
#include "trace/memory_timeline.hpp"

namespace finetune::train {
namespace {

/// MiB by use, as a plan names them.
core::Json memory_now() {
  using plan::Category;
  static const std::string names[core::num_memory_uses] = {
      plan::to_string(Category::activations), plan::to_string(Category::weights),
      plan::to_string(Category::gathered),    plan::to_string(Category::gradients),
      plan::to_string(Category::states),      plan::to_string(Category::communication)};
  const core::BytesByUse live = metrics::take_highest_by_use();
  core::Json values;
  for (std::size_t i = 0; i < live.size(); ++i)
    values[names[i]] = static_cast<double>(live[i]) / (1 << 20);
  return values;
}

/// libtorch's allocator on GPUs does not know what tensors are for.
core::Json device_memory_now(at::Device device) {
  return {{"tensors", static_cast<double>(shard::live_device_bytes(device)) / (1 << 20)}};
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    core::fail(core::ErrorKind::create, {folder.string(), "cannot be made", error.message(),
                                         "profile.dir names a folder that can be written to."});
}

}  // namespace

Profiled profiled(const ProfileSettings& settings, std::int64_t steps_before) {
  if (settings.active == 0) return Profiled::no;
  if (settings.repeat > 0 && steps_before / settings.cycle() >= settings.repeat)
    return Profiled::no;
  const std::int64_t place = steps_before % settings.cycle();
  if (place < settings.wait) return Profiled::no;
  return place < settings.wait + settings.warmup ? Profiled::warmup : Profiled::active;
}

Profiler::Profiler(const ProfileSettings& settings, const std::filesystem::path& output,
                   const comm::Communicator& world, const std::string& host, at::Device device)
    : settings_(settings),
      folder_(output / settings.dir),
      is_root_(world.is_root()),
      device_(device),
      is_recorded_(settings.active > 0 &&
                   (settings.ranks.empty() ||
                    std::ranges::find(settings.ranks, world.rank()) != settings.ranks.end())),
      is_first_recorded_(settings.ranks.empty() ? world.is_root()
                                                : std::ranges::min(settings.ranks) == world.rank()),
      about_{.rank = world.rank(),
             .num_ranks = world.size(),
             .on_gpu = !device.is_cpu(),
             .host = host} {
  for (const double rank : settings.ranks) {
    if (rank < world.size()) continue;
    throw comm::AgreedError(
        core::ErrorKind::deck,
        core::to_string({"profile.ranks", fmt::format("there is no rank {:.0f}", rank),
                         fmt::format("ranks are 0 to {}", world.size() - 1),
                         "Name ranks of this run, or leave it out for all."}));
  }
  if (settings.active == 0) return;
  comm::agree(world, [&] {
    if (is_root_) make_folder(folder_);
  });
  about_.start =
      std::stoll(world.broadcast_text(std::to_string(std::llround(1e6 * core::unix_time_s())), 0));
  if (is_recorded_ && settings.memory && device.is_cpu()) metrics::tell_uses_apart();
}

Profiler::~Profiler() {
  if (is_active_ && about_.last_step >= about_.first_step) write();
  if (trace::is_on()) trace::stop();
}

void Profiler::announce(std::int64_t num_steps) const {
  const std::int64_t before = settings_.wait + settings_.warmup;
  if (settings_.active > 0 && num_steps <= before)
    log::warn(
        fmt::format("nothing is profiled: this start has {} steps, and profile.wait and "
                    "profile.warmup are {} together",
                    num_steps, before));
}

void Profiler::begin(std::int64_t step) {
  const std::int64_t before = num_begun_++;
  const Profiled now = profiled(settings_, before);
  const bool is_new =
      before == 0 || now != profiled(settings_, before - 1) || before % settings_.cycle() == 0;
  if (now == Profiled::no || !is_new) return;
  about_.first_step = step;
  about_.last_step = step - 1;
  is_active_ = now == Profiled::active;
  if (is_recorded_) start_window();
}

/// Warming up is the same work, forgotten: libtorch's profiler is slow the first time.
void Profiler::start_window() {
  operators_.reset();
  if (settings_.operators == "on" || (settings_.operators == "auto" && !device_.is_cpu()))
    start_operators();
  trace::Options options{.stacks = settings_.stacks};
  if (settings_.memory && device_.is_cpu()) options.memory = memory_now;
  if (settings_.memory && !device_.is_cpu())
    options.memory = [device = device_] { return device_memory_now(device); };
  trace::start(std::move(options));
}

/// No profile is worth a run.
void Profiler::start_operators() {
  try {
    operators_ = std::make_unique<OperatorProfile>(!device_.is_cpu());
  } catch (const std::exception& error) {
    log::warn_of_rank(
        fmt::format("rank {}: profiles have no operators: libtorch's profiler does "
                    "not start ({}). Set profile.operators = \"off\".",
                    about_.rank, error.what()));
  }
}

void Profiler::end(std::int64_t step) {
  if (!is_active_) return;
  about_.last_step = step;
  if (num_begun_ % settings_.cycle() == 0) write();
}

void Profiler::write() {
  is_active_ = false;
  try {
    if (is_recorded_) write_files();
  } catch (const std::exception& error) {
    log::warn_of_rank(fmt::format("the profile of rank {} is not written: {}. See profile.dir.",
                                  about_.rank, error.what()));
  }
  operators_.reset();
  log::info(
      fmt::format("profile of steps {} to {}: {}; open its files in ui.perfetto.dev, or join "
                  "the ranks with: finetune trace merge {}",
                  about_.first_step, about_.last_step, folder_.string(), folder_.string()));
}

void Profiler::write_files() {
  trace::Recording recording = trace::stop();
  if (recording.num_dropped > 0)
    log::warn_of_rank(
        fmt::format("rank {}: {} spans beyond {} are not in the profile; lower "
                    "profile.active",
                    about_.rank, recording.num_dropped, trace::most_events));
  trace::RankTrace trace = trace::trace_of(about_, std::move(recording));
  if (operators_) {
    try {
      const auto scratch = folder_ / fmt::format(".operators-{:05}.tmp", about_.rank);
      trace.more = trace::of_rank(operators_->finish(trace.base_ns, scratch), about_.rank);
    } catch (const std::exception& error) {
      log::warn_of_rank(
          fmt::format("rank {}: the profile has no operators: {}", about_.rank, error.what()));
    }
  }
  core::write_text_atomically(folder_ / trace::file_name(trace), trace::to_chrome_trace({trace}));
  const std::string timeline = is_first_recorded_ ? trace::memory_timeline(trace) : std::string();
  if (!timeline.empty())
    core::write_text_atomically(folder_ / trace::timeline_name(trace), timeline);
}

Profiler::Step::Step(Profiler& profiler, std::int64_t step) : profiler_(profiler), step_(step) {
  profiler_.begin(step);
  span_.emplace(trace::main_row, trace::is_on() ? fmt::format("step {}", step) : std::string());
}

void Profiler::Step::done() {
  span_.reset();
  is_done_ = true;
}

Profiler::Step::~Step() {
  span_.reset();
  if (is_done_ && std::uncaught_exceptions() == 0) profiler_.end(step_);
}

}  // namespace finetune::train
