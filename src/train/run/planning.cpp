// SPDX-License-Identifier: Apache-2.0
#include "train/run/planning.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <utility>

#include "comm/agree.hpp"
#include "core/log.hpp"
#include "kernels/gpu_kernels.hpp"
#include "plan/fits.hpp"
#include "plan/memory/memory.hpp"
#include "preflight/judge.hpp"
#include "train/run/advice.hpp"
#include "train/run/tiling.hpp"
#include "world/world.hpp"

namespace finetune::train {

namespace {

/// Sums inside a product follow the threads that share it.
void require_equal_threads(const comm::Communicator& world) {
  const std::int64_t threads = at::get_num_threads();
  const std::int64_t least = world.all_reduce(threads, comm::Reduce::min);
  const std::int64_t most = world.all_reduce(threads, comm::Reduce::max);
  if (least == most) return;
  throw comm::AgreedError(
      core::ErrorKind::environment,
      core::to_string({"train.determinism = \"topology\"",
                       fmt::format("ranks have {} to {} threads", least, most),
                       "a micro-batch gives identical results only with as many threads",
                       "Set OMP_NUM_THREADS to one number for all ranks."}));
}

/// What a plan may take of this rank's GPU: what is free, and what of it was taken already, in the
/// plan's own words, as a plan counts that too.
std::int64_t usable_gpu_bytes(const plan::PlanInput& request, std::int64_t taken_bytes) {
  return plan::available_bytes(request, comm::free_gpu_bytes() + taken_bytes);
}

/// A wrong number of ranks may be one that forms no mesh: that it is wrong says more.
plan::Plan plan_or_explain_launch(const comm::Environment& environment, const Input& input,
                                  const plan::PlanInput& request) {
  try {
    plan::Plan made = plan::make(request, input.parameters);
    plan::require_one_pass(made, request);
    if (environment.world().is_root())
      require_tiling(made, input.parameters, request.optimizer, request.deck);
    return made;
  } catch (const core::Error&) {
    const auto launch = preflight::judge_launch(environment.topology(), expected_launch(input));
    for (const preflight::CheckProblem& problem : launch.problems)
      if (problem.grade == preflight::Grade::bad) core::fail(problem.kind, problem.message);
    throw;
  }
}

}  // namespace

preflight::Expected expected_launch(const Input& input) {
  return {input.parallel.expect_nodes, input.parallel.expect_ranks_per_node};
}

PlannedRun plan_run(const comm::Environment& environment, const Input& input,
                    const comm::Device& device) {
  plan::PlanInput request = input.plan_input(world::count_ranks(environment.topology()));
  request.on_gpu = device.index >= 0;
  request.has_gpu_kernels = kernels::has_kernels_for_gpus();
  return comm::agree(environment.world(), [&]() -> PlannedRun {
    plan::Plan plan = plan_or_explain_launch(environment, input, request);
    const std::int64_t node_bytes = plan::share_of_node(environment.node().size());
    const std::int64_t available_bytes = request.on_gpu
                                             ? usable_gpu_bytes(request, plan::gpu_context_bytes)
                                             : plan::available_bytes(request, node_bytes);
    return {request, std::move(plan), node_bytes, available_bytes};
  });
}

void accept(const comm::Environment& environment, const Input& input, const PlannedRun& planned) {
  const plan::PlanInput& request = planned.request;
  comm::agree_all(environment.world(), [&] {
    require_measurable_noise(input);
    const std::int64_t taken =
        plan::gpu_context_bytes + plan::communicator_bytes(planned.plan.mesh);
    plan::require_fits(planned.plan, request, input.parameters,
                       request.on_gpu ? usable_gpu_bytes(request, taken) : planned.available_bytes);
    plan::require_host_fits(planned.plan, request, planned.node_bytes);
  });
  if (request.numbers.is_fixed_point()) require_equal_threads(environment.world());
  for (const std::string& warning : planned.plan.warnings)
    log::warn(warning);
  for (const std::string& warning : advice_on_lr(input))
    log::warn(warning);
  if (input.optimizer.offload && !request.on_gpu)
    log::warn("optimizer.offload does nothing here: ranks compute on the CPU");
}

}  // namespace finetune::train
