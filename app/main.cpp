// SPDX-License-Identifier: Apache-2.0
// The story of a run.

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <exception>

#include "allocator.hpp"
#include "cli.hpp"
#include "comm/agree.hpp"
#include "comm/environment.hpp"
#include "commands.hpp"
#include "core/build_info.hpp"
#include "core/log.hpp"
#include "plan/plan.hpp"
#include "registry.hpp"
#include "train/run.hpp"

namespace finetune {
namespace {

int run_train(int argc, char** argv) {
  comm::Environment env(argc, argv);
  try {
    const auto& registry = modules::registry();
    const auto arguments = comm::agree(env.world(), [&] { return app::parse(argc, argv); });
    comm::require_equal(env.world(), "command line",
                        fmt::format("{} {}", arguments.path, fmt::join(arguments.overrides, " ")));
    comm::require_equal(env.world(), "program", core::build_stamp() + registry.names());
    at::set_num_threads(env.cores());

    const auto input = train::read(env.world(), arguments.path, arguments.overrides, registry);
    const auto plan = plan::make(
        input.plan_request(env.world().size(), env.topology().ranks_per_node), input.parameters);
    const auto world = world::make(env, plan);
    log::info(
        fmt::format("finetune {} on {}", arguments.path, world::to_string(world, env.topology())));
    log::info(fmt::format("plan for {} ({}, {} thread{} a rank)\n{}", input.model_folder.string(),
                          input.family->name, at::get_num_threads(),
                          at::get_num_threads() == 1 ? "" : "s", plan::to_string(plan)));

    train::Run run(input, plan, world, registry);
    return run.loop();
  } catch (const std::exception& error) {
    return env.report(error);
  }
}

int run_command(const app::Arguments& arguments) {
  const auto& registry = modules::registry();
  switch (arguments.command) {
    case app::Command::plan:
      return app::run_plan(arguments, registry);
    case app::Command::generate:
      return app::run_generate(arguments, registry);
    case app::Command::export_weights:
      return app::run_export(arguments);
    case app::Command::verify:
      return app::run_verify(arguments);
    case app::Command::reference:
      std::fputs(train::reference_deck(registry).c_str(), stdout);
      break;
    default:
      for (const auto& [name, value] : core::build_info())
        log::info(fmt::format("{:<10} {}", name, value));
  }
  return core::exit_done;
}

}  // namespace
}  // namespace finetune

int main(int argc, char** argv) {
  finetune::app::keep_freed_memory();
  if (finetune::app::is_training(argc, argv)) return finetune::run_train(argc, argv);
  try {
    return finetune::run_command(finetune::app::parse(argc, argv));
  } catch (const std::exception& error) {
    finetune::log::error(error.what());
    return finetune::comm::exit_code(error);
  }
}
