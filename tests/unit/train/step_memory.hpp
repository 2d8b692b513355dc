#pragma once
// SPDX-License-Identifier: Apache-2.0
// What libtorch's allocator hands out in a step, for comparison with the plan.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "core/memory_use.hpp"
#include "metrics/memory.hpp"
#include "optim/loss_scale.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "plan/layout/stages.hpp"
#include "plan/plan.hpp"
#include "shard/activation_offload.hpp"
#include "support/architecture.hpp"
#include "support/model.hpp"
#include "support/optimizers.hpp"
#include "train/step/step.hpp"

namespace finetune::tests {

/// Micro-batches whose tokens are all trained; rows are one sample each, or packed of `samples`.
inline data::StepData step_data(const plan::PlanInput& request, const plan::Plan& plan,
                                const std::vector<data::RowPart>& samples) {
  const std::int64_t tokens = request.micro_batch * request.max_seq_length;
  data::MicroBatch batch{
      .batch = request.micro_batch, .length = request.max_seq_length, .ids = {}, .labels = {}};
  for (std::int64_t row = 0; row < batch.batch; ++row)
    batch.stretches.insert(batch.stretches.end(), samples.begin(), samples.end());
  // Not of a pattern: routers then choose experts almost evenly.
  std::uint64_t random = 1;
  const auto next = [&] {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const auto vocabulary = static_cast<std::uint64_t>(request.architecture.vocab_size);
    return static_cast<std::int64_t>((random >> 33) % vocabulary);
  };
  for (std::int64_t i = 0; i < tokens; ++i) {
    batch.ids.push_back(next());
    batch.labels.push_back(next());
  }
  const std::int64_t accumulation = plan.batch.accumulation;
  data::StepData data;
  data.num_samples = request.global_batch;
  data.num_tokens = data.num_trained_tokens =
      tokens * plan.mesh.size(plan::groups::batch) * accumulation;
  for (std::int64_t i = 0; i < accumulation; ++i)
    data.micro_steps.emplace_back(batch);
  return data;
}

/// A run to be measured: all of its plan but what the number of ranks decides.
struct MemoryRun {
  std::string name;
  plan::PlanInput request = adamw_request();
  std::int64_t accumulation = 1;

  bool has_ranks() const {
    return request.parallel.dp_shard == 0 || world().size() % request.parallel.dp_shard == 0;
  }
  plan::PlanInput on_all_ranks() const {
    plan::PlanInput wanted = request;
    const std::int64_t ranks = world().size();
    wanted.ranks = {.world_size = ranks, .ranks_per_node = ranks};
    wanted.numbers.scales_loss = request.numbers.compute == core::DType::f16;
    wanted.global_batch = request.micro_batch * accumulation * ranks /
                          (request.parallel.num_tp() * request.parallel.num_cp());
    return wanted;
  }
  friend void PrintTo(const MemoryRun& run, std::ostream* out) { *out << run.name; }
};

/// All of `all` with FINETUNE_ALL_MEMORY_CASES set; else of each few the one that a number chooses.
template <typename Run>
std::vector<Run> some_of(const std::vector<Run>& all) {
  if (std::getenv("FINETUNE_ALL_MEMORY_CASES") != nullptr) return all;
  std::vector<Run> some;
  for (std::size_t i = 0; i < all.size(); i += 7)
    some.push_back(all[i]);
  return some;
}

/// Bytes of the rank that has most, in all and of each use.
struct Measured {
  std::int64_t all = 0;
  core::BytesByUse by_use = {};
};

/// Runs two steps, by which every buffer is there; `before_step` is called before each. `table` is
/// the family's, in the plan's units.
template <typename F>
void run_two_steps(const model::ModelFamily& family, const plan::PlanInput& request,
                   const plan::Plan& plan, const model::ParameterTable& table,
                   const base::WeightSource& weights, const std::vector<data::RowPart>& samples,
                   at::Device device, const F& before_step) {
  const world::World world = world::make(tests::mpi(), plan);
  shard::Options options;
  options.numbers = request.numbers;
  options.sharding = plan.mesh.sharding;
  options.overlap = request.parallel.overlap;
  options.prefetch = request.parallel.num_prefetched();
  options.context = request.parallel.cp_method;
  options.device = options.state_device = device;
  SplitModel model(request.architecture, family, table,
                   shard::make_groups(world, request.parallel.overlap, request.parallel.alone),
                   options, model::path_for(request.numbers.compute),
                   request.activation_checkpointing == plan::ActivationCheckpointing::selective
                       ? model::Recompute::cheap
                       : model::Recompute::nothing);
  shard::ModelShards& shards = model.shards;
  optimizers::adamw::AdamW optimizer({}, model.table, shards,
                                     shard::to_aten(request.numbers.moments));
  if (request.optimizer.keeps_ema()) optimizer.keep_ema(shards, 0.9);
  base::load_weights(weights, shards);
  base::set_magnitudes(shards);
  train::Engine engine = model.engine();
  engine.blocks = plan::blocks_of(request);
  std::optional<shard::ActivationOffload> offload;
  if (request.offloaded_blocks > 0) engine.offload = &offload.emplace(device);
  engine.dropout = request.adapter_dropout;
  optim::LossScale loss_scale;
  const data::StepData data = step_data(request, plan, samples);
  for (std::int64_t step = 0; step < 2; ++step) {
    before_step();
    train::run_step(engine, world.loss, data, optimizer,
                    {.step = step,
                     .lr = 1e-4,
                     .loss_scale = request.numbers.scales_loss ? &loss_scale : nullptr,
                     .wants_noise = request.numbers.keeps_passes_apart,
                     .updates_in_backward = request.updates_in_backward});
  }
}

/// Weights as wide as random ones, at a tenth of their cost: a multiplication scatters the numbers
/// of elements over (-1, 1). What memory a step takes depends on them where tokens choose experts
/// only.
inline base::WeightSource scattered_source(const model::Architecture& architecture,
                                           model::ParameterTable table) {
  const float std = static_cast<float>(architecture.init_std);
  return {[table = std::move(table), std](int i, std::int64_t first, std::span<float> target) {
    const model::Parameter& row = table.row(i);
    const bool is_constant = row.init != model::Init::normal && row.init != model::Init::fan_in;
    std::uint64_t element = static_cast<std::uint64_t>(first) + 977 * static_cast<std::uint64_t>(i);
    for (float& value : target) {
      const auto scattered = static_cast<std::int64_t>(++element * 0x9E3779B97F4A7C15u);
      value = is_constant ? (row.init == model::Init::ones ? 1.0f : 0.0f)
                          : 1.7f * std * 0x1p-63f * static_cast<float>(scattered);
    }
  }};
}

/// The most bytes that tensors take in the second of two steps on the CPU, and what they were for
/// at that moment.
inline Measured measure(const model::ModelFamily& family, const plan::PlanInput& request,
                        const plan::Plan& plan, const model::ParameterTable& table,
                        const base::WeightSource& weights,
                        const std::vector<data::RowPart>& samples = {}) {
  metrics::reset_peak();
  const std::int64_t before = metrics::tensor_bytes().live;
  const core::BytesByUse by_use_before = metrics::peak_by_use();
  run_two_steps(family, request, plan, table, weights, samples, at::kCPU, metrics::reset_peak);
  Measured measured{.all = metrics::tensor_bytes().peak - before, .by_use = metrics::peak_by_use()};
  const comm::Communicator& world = tests::world();
  measured.all = world.all_reduce(measured.all, comm::Reduce::max);
  for (std::size_t i = 0; i < core::num_memory_uses; ++i)
    measured.by_use[i] = world.all_reduce(measured.by_use[i] - by_use_before[i], comm::Reduce::max);
  return measured;
}

/// The planned bytes that `used` ones are compared with. A rank whose experts are chosen more often
/// than on average holds more than what is planned; routers of random weights give one up to 30 %
/// more.
inline std::int64_t of_router(const plan::Plan& plan, std::int64_t planned, std::int64_t used) {
  const auto uneven = 0.3 * static_cast<double>(plan.uneven_router_bytes);
  return std::clamp(used, planned, planned + static_cast<std::int64_t>(uneven));
}

/// `too_high`: what a plan may count beyond what is taken, as a part of it.
inline void expect_as_planned(const plan::Plan& plan, const Measured& measured,
                              double too_high = 0.05) {
  const std::int64_t planned = of_router(plan, plan.tensor_bytes(), measured.all);
  const double ratio = static_cast<double>(measured.all) / static_cast<double>(planned);
  testing::Test::RecordProperty("measured_of_planned", std::to_string(ratio));
  const std::string both =
      fmt::format("{} bytes measured\n{}", measured.all, plan::to_string(plan));
  EXPECT_LT(ratio, 1.05) << both;
  EXPECT_GT(ratio, 1 - too_high) << both;
}

/// Of a plan's categories those that are tensors.
inline std::int64_t planned_tensors(const plan::Plan& plan, plan::Category category) {
  std::int64_t bytes = 0;
  for (const plan::MemoryItem& item : plan.memory)
    if (item.category == category && item.is_tensor && item.place == plan::Place::device)
      bytes += item.bytes;
  return bytes;
}

/// Each category of the plan within 5 %, or within what the allocator rounds up. What ranks of tp
/// hold in common, and sums that are sent to copies of the model, come as activations go, and a
/// plan has what they are more: the two together. A packed matrix is unpacked (gathered) at some
/// moments, and which of two that are almost as large is the peak, a plan need not know: there all
/// three together. `scratch`: bytes of activations that no plan has.
inline void expect_categories_as_planned(const plan::Plan& plan, const Measured& measured,
                                         std::int64_t scratch) {
  constexpr double rounding = 8192;
  using core::MemoryUse;
  using plan::Category;
  const auto used = [&](MemoryUse use) { return measured.by_use[static_cast<std::size_t>(use)]; };
  const auto expect = [&](const char* name, std::int64_t used, std::int64_t planned, double slack) {
    testing::Test::RecordProperty(name, std::to_string(used) + "/" + std::to_string(planned));
    EXPECT_NEAR(static_cast<double>(used), static_cast<double>(planned),
                std::max(slack, 0.05 * static_cast<double>(planned)))
        << name << "\n"
        << plan::to_string(plan);
  };
  expect("weights", used(MemoryUse::weights), planned_tensors(plan, Category::weights), rounding);
  expect("gradients", used(MemoryUse::gradients), planned_tensors(plan, Category::gradients),
         rounding);
  expect("states", used(MemoryUse::states), planned_tensors(plan, Category::states), rounding);
  const std::int64_t gathered = used(MemoryUse::gathered);
  const std::int64_t planned_gathered = planned_tensors(plan, Category::gathered);
  const std::int64_t passing = used(MemoryUse::activations) + used(MemoryUse::communication);
  const std::int64_t planned_passing =
      planned_tensors(plan, Category::activations) + planned_tensors(plan, Category::communication);
  const double slack = std::max(rounding, static_cast<double>(scratch));
  const auto expect_routed = [&](const char* name, std::int64_t used, std::int64_t planned) {
    expect(name, used, of_router(plan, planned, used), slack);
  };
  const bool unpacks = std::ranges::any_of(plan.memory, [](const plan::MemoryItem& item) {
    return item.name.find("NF4") != std::string::npos ||
           item.name.find("MXFP4") != std::string::npos;
  });
  if (unpacks) {
    expect_routed("gathered and activations", gathered + passing,
                  planned_gathered + planned_passing);
    return;
  }
  expect("gathered", gathered, planned_gathered, rounding);
  expect_routed("activations", passing, planned_passing);
}

}  // namespace finetune::tests
