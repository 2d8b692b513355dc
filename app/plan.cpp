// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "plan/fits.hpp"
#include "train/input.hpp"

namespace finetune::app {

int run_plan(const Arguments& arguments, const train::Registry& registry) {
  if (arguments.is_about_data) return run_data_report(arguments, registry);
  const train::Input input = train::read({}, arguments.path, arguments.overrides, registry);
  const std::int64_t ranks = arguments.ranks.value_or(1);
  const std::int64_t ranks_per_node = arguments.ranks_per_node.value_or(ranks);
  plan::Request request =
      input.plan_request({.world_size = ranks,
                          .ranks_per_node = std::min(ranks, ranks_per_node),
                          .num_nodes = (ranks + ranks_per_node - 1) / ranks_per_node,
                          .is_even = ranks < ranks_per_node || ranks % ranks_per_node == 0});
  request.on_gpu = arguments.on_gpu;
  const plan::Plan plan = plan::make(request, input.parameters);
  log::info(fmt::format("plan for {} ({})", input.model_folder.string(), input.family->name));
  log::info(plan::to_string(plan));
  for (const std::string& warning : plan.warnings)
    log::warn(warning);
  if (!arguments.memory && input.parallel.memory_gib == 0) return core::exit_done;
  // What the command line says is about a machine that the deck does not know.
  const std::int64_t there =
      arguments.memory ? parse_bytes(*arguments.memory) : plan::available_bytes(request, 0);
  plan::require_fits(plan, request, input.parameters, there);
  log::info(fmt::format("fits: {} of {}", core::human_bytes(plan.memory_bytes()),
                        core::human_bytes(there)));
  return core::exit_done;
}

}  // namespace finetune::app
