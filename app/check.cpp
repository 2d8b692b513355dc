// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "comm/agree.hpp"
#include "comm/device.hpp"
#include "comm/nccl/nccl_settings.hpp"
#include "comm/watch/watchdog.hpp"
#include "commands.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "preflight/machine.hpp"
#include "preflight/patience.hpp"
#include "train/input/arithmetic.hpp"
#include "train/input/choices.hpp"
#include "train/input/device.hpp"
#include "train/run/preflight.hpp"
#include "train/run/usable.hpp"

namespace finetune::app {
namespace {

/// Whether any rank of the job says so.
bool is_on_any(const comm::Environment& environment, bool here) {
  return environment.world().all_reduce(std::int64_t{here}, comm::Reduce::max) > 0;
}

/// Ranks that only partly have GPUs, or share one, cannot go on; NVML may have said why.
comm::Device device_of(const comm::Environment& environment, const train::Input& input,
                       const preflight::FirstLook& beginning) {
  try {
    return train::prepare_device(environment, input.numbers(), input.train.device, input.nccl);
  } catch (const core::Error&) {
    if (environment.world().is_root()) preflight::print({{beginning.gpus}}, "check of the GPUs");
    throw;
  }
}

/// Before anything is measured: minutes may go by until the file is written.
void require_writable(const comm::Environment& environment, const std::filesystem::path& path) {
  if (path.empty()) return;
  comm::agree_all(environment.world(), [&] {
    if (!environment.world().is_root()) return;
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
      core::fail(core::ErrorKind::create,
                 {path.string(), "is a folder", "the measured rates are one file", "Name a file."});
    // Beside it, as the file itself will be written: an old one stays until then.
    const std::filesystem::path trial = path.string() + fmt::format(".tmp.{}", ::getpid());
    std::filesystem::remove(trial, ignored);
    { const core::File file(trial, core::File::Mode::create_new, core::ErrorKind::create); }
    std::filesystem::remove(trial, ignored);
  });
}

void save(const comm::Environment& environment, const std::string& path,
          const plan::Machine& machine) {
  if (path.empty()) return;
  comm::agree_all(environment.world(), [&] {
    if (environment.world().is_root())
      core::write_text_atomically(path, preflight::to_toml(machine));
  });
  log::info(fmt::format("measured rates are in {}", path));
}

}  // namespace

int run_check(const comm::Environment& environment, const Arguments& arguments,
              const train::Registry& registry) {
  const core::Stopwatch watch;
  const auto level =
      arguments.is_quick ? preflight::CheckDepth::quick : preflight::CheckDepth::full;
  std::optional<comm::Watchdog> watchdog(std::in_place, environment,
                                         preflight::first_patience_s(false));
  // To look for devices is quick; to ask their drivers, which comes next, may not be.
  if (is_on_any(environment, comm::num_installed_gpus() > 0))
    watchdog.emplace(environment, preflight::first_patience_s(true));
  const auto beginning = preflight::begin(environment, level);
  const std::string title = fmt::format("check of {}", arguments.path);
  if (!beginning.is_same_program) {
    preflight::print({{beginning.program}}, title);
    return static_cast<int>(core::ErrorKind::environment);
  }
  require_writable(environment, arguments.save);
  auto input = train::read(environment.world(), arguments.path, arguments.overrides, registry,
                           train::check_weights);
  comm::prepare_nccl(environment, train::nccl_settings(input));
  const bool has_gpus = is_on_any(environment, comm::num_gpus() > 0);
  const auto patience = preflight::patience_of({.hang_timeout_s = input.train.hang_timeout_s,
                                                .has_gpus = has_gpus,
                                                .saves = !arguments.save.empty()});
  watchdog.emplace(environment, patience.connecting_s);
  const auto device = device_of(environment, input, beginning);
  input.arithmetic = train::agree_on_arithmetic(environment.world(), input.precision.cpu_products,
                                                input.numbers(), device.index >= 0);
  train::settle_choices(environment, device, input);
  const auto planned = train::plan_run(environment, input, device);
  auto made = train::describe_check(environment, input, device, planned, level);
  if (has_gpus) watchdog.emplace(environment, patience.measuring_s);
  made.request.saves_rates = !arguments.save.empty();
  if (made.request.saves_rates) train::measure_levels(environment, input, device, made);
  const auto outcome = preflight::check(environment, beginning, made.request);
  preflight::print(outcome.report, title);
  log::info(fmt::format("checked in {:.1f} s", watch.seconds()));
  save(environment, arguments.save, outcome.machine);
  return outcome.exit_code;
}

}  // namespace finetune::app
