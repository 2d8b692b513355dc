// SPDX-License-Identifier: Apache-2.0
#include "train/planning.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "comm/agree.hpp"
#include "core/log.hpp"
#include "kernels/adamw8bit.hpp"
#include "kernels/attention.hpp"
#include "kernels/product.hpp"
#include "plan/fits.hpp"
#include "plan/memory.hpp"
#include "train/advice.hpp"
#include "world/world.hpp"

namespace finetune::train {

namespace {

// plan may not include kernels.
static_assert(plan::block_of_8_bits == kernels::moment_block);
static_assert(plan::product_scratch_bytes == kernels::product_scratch_bytes);
static_assert(plan::attention_bytes_per_element == kernels::widened_bytes_per_element &&
              plan::attention_tile == kernels::widened_tile &&
              plan::attention_panel == kernels::widened_panel &&
              plan::most_attention_elements == kernels::most_widened_elements);

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

}  // namespace

plan::Plan make_plan(const comm::Environment& environment, const Input& input,
                     const comm::Device& device) {
  plan::Request request = input.plan_request(world::count_ranks(environment.topology()));
  request.on_gpu = device.index >= 0;
  plan::Plan plan = comm::agree(environment.world(), [&] {
    plan::Plan made = plan::make(request, input.parameters);
    const std::int64_t of_node = plan::share_of_node(environment.node().size());
    const std::int64_t there = request.on_gpu ? comm::free_gpu_bytes() : of_node;
    plan::require_fits(made, request, input.parameters, plan::available_bytes(request, there));
    plan::require_host_fits(made, request, of_node);
    return made;
  });
  if (request.numbers.is_fixed_point()) require_equal_threads(environment.world());
  for (const std::string& warning : plan.warnings)
    log::warn(warning);
  for (const std::string& warning : advice_on_lr(input))
    log::warn(warning);
  if (input.optimizer.offload && !request.on_gpu)
    log::warn("optimizer.offload does nothing here: ranks compute on the CPU");
  return plan;
}

}  // namespace finetune::train
