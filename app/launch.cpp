// SPDX-License-Identifier: Apache-2.0
// The story of a run.
#include "launch.hpp"

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <exception>
#include <optional>

#include "cli.hpp"
#include "comm/agree.hpp"
#include "comm/environment.hpp"
#include "comm/interrupted.hpp"
#include "comm/nccl/nccl_settings.hpp"
#include "comm/watch/watchdog.hpp"
#include "commands.hpp"
#include "core/build_info.hpp"
#include "core/host.hpp"
#include "core/log.hpp"
#include "core/log_file.hpp"
#include "kernels/gpu_kernels.hpp"
#include "plan/plan.hpp"
#include "registry.hpp"
#include "report/starts.hpp"
#include "shard/options.hpp"
#include "train/input/arithmetic.hpp"
#include "train/input/choices.hpp"
#include "train/input/device.hpp"
#include "train/input/grown_model.hpp"
#include "train/input/settings.hpp"
#include "train/run/lr_range.hpp"
#include "train/run/memory_advice.hpp"
#include "train/run/planning.hpp"
#include "train/run/preflight.hpp"
#include "train/run/run.hpp"
#include "train/run/stop.hpp"
#include "train/run/usable.hpp"

namespace finetune::app {

int launch(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    log::error(comm::message_of(error));
    return comm::exit_code(error);
  }
}

void prepare_ranks(int argc, char** argv) {
  train::watch_signals();
  core::raise_file_limit();
  log::remember();
  log::note(report::opening_line(argc, argv));
}

int launch(const comm::Environment& env, int argc, char** argv) {
  try {
    const auto& registry = modules::registry();
    const auto arguments = comm::agree(env.world(), [&] { return parse(argc, argv); });
    comm::require_equal(env.world(), "command line",
                        fmt::format("{}", fmt::join(argv + 1, argv + argc, " ")));
    at::set_num_threads(env.cores());
    const bool finds_lr = arguments.command == Command::lr_range;
    if (arguments.command != Command::train && !finds_lr) return run(env, arguments);
    comm::require_equal(env.world(), "program", core::build_stamp() + registry.names());

    // What the deck says of patience is not known before it is read, and devices may start slowly.
    std::optional<comm::Watchdog> watchdog(std::in_place, env,
                                           train::TrainSettings().hang_timeout_s);
    auto input = train::read(env.world(), arguments.path, arguments.overrides, registry,
                             train::checks_of_start(registry, !finds_lr));
    if (finds_lr)
      comm::agree_all(env.world(), [&] { train::redirect_output(arguments.second, input); });
    train::grow_model(env.world(), input);
    const auto beginning = train::begin_check(env, input);
    comm::prepare_nccl(env, train::nccl_settings(input));
    const auto device = train::prepare_device(env, input.numbers(), input.train.device, input.nccl);
    const kernels::GpuKernels gpu_kernels(device.index);
    watchdog.emplace(env, input.train.hang_timeout_s);
    input.arithmetic = train::agree_on_arithmetic(env.world(), input.precision.cpu_products,
                                                  input.numbers(), device.index >= 0);
    train::settle_choices(env, device, input);
    const auto planned = train::plan_run(env, input, device);
    if (const int code = train::check_before_run(env, beginning, input, device, planned))
      return code;
    const plan::Plan& plan = planned.plan;
    const auto world = world::make(env, plan, device);
    const auto groups = shard::make_groups(world, input.parallel.overlap, input.parallel.alone);
    train::accept(env, input, planned);
    train::advise_on_memory(planned, input, device);
    log::info(fmt::format("finetune {} on {}", arguments.path,
                          world::to_string(plan.mesh, env.topology())));
    log::info(fmt::format("plan for {} ({}, {} thread{} per rank)\n{}", input.model_folder.string(),
                          input.family->name, at::get_num_threads(),
                          at::get_num_threads() == 1 ? "" : "s", plan::to_string(plan)));

    if (finds_lr) return train::find_lr(input, plan, world, groups, registry, arguments.lr_range);
    train::Run run(input, plan, world, groups, registry);
    return run.loop(env);
  } catch (const comm::Interrupted& left) {
    log::info(fmt::format("stopped before the first step: {}", left.what()));
    return core::exit_resubmit_older;
  } catch (const std::exception& error) {
    return env.report(error);
  }
}

}  // namespace finetune::app
