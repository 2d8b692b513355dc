// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "core/build_info.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "registry.hpp"
#include "train/input/input.hpp"

namespace finetune::app {

int run(const Arguments& arguments) {
  const auto& registry = modules::registry();
  switch (arguments.command) {
    case Command::plan:
      return run_plan(arguments, registry);
    case Command::import_configuration:
      return run_import(arguments, registry);
    case Command::tokenize:
      return run_tokenize(arguments, registry);
    case Command::generate:
      return run_generate(nullptr, arguments, registry);
    case Command::evaluate:
      return run_evaluate(nullptr, arguments, registry);
    case Command::export_weights:
      return run_export(arguments, registry);
    case Command::quantize:
      return run_quantize(arguments, registry);
    case Command::verify:
      return run_verify(arguments, registry);
    case Command::report:
      return run_report(arguments);
    case Command::watch:
      return run_watch(arguments);
    case Command::trace:
      return run_trace(arguments);
    case Command::reference:
      std::fputs(train::reference_deck(registry).c_str(), stdout);
      break;
    default:
      for (const auto& [name, value] : core::build_info())
        log::info(fmt::format("{:<10} {}", name, value));
  }
  return core::exit_done;
}

int run(const comm::Environment& environment, const Arguments& arguments) {
  const auto& registry = modules::registry();
  switch (arguments.command) {
    case Command::check:
      return run_check(environment, arguments, registry);
    case Command::generate:
      return run_generate(&environment, arguments, registry);
    case Command::evaluate:
      return run_evaluate(&environment, arguments, registry);
    default:
      core::check(false, "the command runs on ranks");
      return core::exit_done;
  }
}

}  // namespace finetune::app
