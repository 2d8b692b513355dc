// SPDX-License-Identifier: Apache-2.0
#include "train/planning.hpp"

#include "comm/agree.hpp"
#include "core/log.hpp"
#include "plan/fits.hpp"
#include "world/world.hpp"

namespace finetune::train {

plan::Plan make_plan(const comm::Environment& environment, const Input& input,
                     const comm::Device& device) {
  plan::Request request = input.plan_request(world::count_ranks(environment.topology()));
  request.on_gpu = device.index >= 0;
  plan::Plan plan = comm::agree(environment.world(), [&] {
    plan::Plan made = plan::make(request, input.parameters);
    const std::int64_t there =
        request.on_gpu ? comm::free_gpu_bytes() : plan::share_of_node(environment.node().size());
    plan::require_fits(made, request, input.parameters, plan::available_bytes(request, there));
    return made;
  });
  for (const std::string& warning : plan.warnings)
    log::warn(warning);
  if (input.optimizer.offload && !request.on_gpu)
    log::warn("optimizer.offload does nothing here: ranks compute on the CPU");
  return plan;
}

}  // namespace finetune::train
