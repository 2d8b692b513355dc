// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/format.h>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "train/input.hpp"

namespace finetune::app {

int run_plan(const Arguments& arguments, const train::Registry& registry) {
  const train::Input input = train::read({}, arguments.path, arguments.overrides, registry);
  const std::int64_t ranks = arguments.ranks.value_or(1);
  const std::int64_t ranks_per_node = arguments.ranks_per_node.value_or(ranks);
  const plan::Plan plan =
      plan::make(input.plan_request({.world_size = ranks,
                                     .ranks_per_node = ranks_per_node,
                                     .num_nodes = (ranks + ranks_per_node - 1) / ranks_per_node,
                                     .is_even = ranks % ranks_per_node == 0}),
                 input.parameters);
  log::info(fmt::format("plan for {} ({})", input.model_folder.string(), input.family->name));
  log::info(plan::to_string(plan));
  if (!arguments.memory) return core::exit_done;
  const std::int64_t there = parse_bytes(*arguments.memory);
  if (plan.memory_bytes() > there) {
    core::fail(
        core::ErrorKind::environment,
        {arguments.path, fmt::format("needs {} a rank", core::human_bytes(plan.memory_bytes())),
         fmt::format("{} are there", core::human_bytes(there)),
         "Use more ranks, a smaller train.micro_batch or a shorter data.max_seq_length."});
  }
  log::info(fmt::format("fits: {} of {}", core::human_bytes(plan.memory_bytes()),
                        core::human_bytes(there)));
  return core::exit_done;
}

}  // namespace finetune::app
