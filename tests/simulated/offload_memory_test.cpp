// SPDX-License-Identifier: Apache-2.0
// What offloaded blocks save of the device's memory, and what they move to the host and back, next
// to the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#include "model/device.hpp"
#include "models/llama/llama.hpp"
#include "models/qwen/qwen.hpp"
#include "plan/memory/detail/activations.hpp"
#include "simulated/device/arena.hpp"
#include "simulated/device/counters.hpp"
#include "simulated/simulated_job.hpp"
#include "support/folders.hpp"
#include "unit/train/step_memory.hpp"

namespace finetune::tests::simulated_offload_memory {
namespace {

using enum plan::ActivationCheckpointing;

constexpr std::int64_t num_blocks = 6;
constexpr int steps = 2;

struct Case {
  std::string name;
  plan::ActivationCheckpointing mode = none;
  std::int64_t recomputed = 0;
  std::int64_t offloaded = 0;
  core::DType compute = core::DType::bf16;
  std::int64_t accumulation = 1;
  bool has_head_norms = false;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

plan::PlanInput request_of(const Case& c) {
  plan::PlanInput request = adamw_request();
  const Size size{num_blocks, 64, 4, 2, 16, 176, 200, 128};
  request.architecture =
      c.has_head_norms ? architecture_of(size, normed_layer) : architecture_of(size);
  request.numbers.compute = c.compute;
  request.activation_checkpointing = c.mode;
  request.recomputed_blocks = c.recomputed;
  request.offloaded_blocks = c.offloaded;
  request.on_gpu = true;
  request.micro_batch = 8;
  request.global_batch = request.micro_batch * c.accumulation;
  request.max_seq_length = 128;
  return request;
}

struct Measured {
  std::int64_t peak = 0;
  std::int64_t to_host = 0;
  std::int64_t to_device = 0;
};

Asked counted() {
  const std::filesystem::path file = empty_folder("simulated/offload_memory") / "report";
  simulated::Counters::here().write(file.string());
  return read_report(file);
}

Measured measure(const Case& c) {
  const plan::PlanInput request = request_of(c);
  const model::ModelFamily family =
      c.has_head_norms ? models::qwen::qwen3() : models::llama::family();
  const model::ParameterTable table = family.describe(request.architecture);
  const plan::Plan plan = plan::make(request, table);
  Asked before = counted();
  run_two_steps(family, request, plan, table, base::random_source(request.architecture, table, 1),
                {}, model::compute_device(0), [] { simulated::Arena::here().reset_peak(); });
  Asked after = counted();
  // Both sides of a copy are counted.
  const auto copied = [&](const char* name) {
    return (after.bytes[name] - before.bytes[name]) / 2;
  };
  return {simulated::Arena::here().peak_bytes(), copied("copy to the host"),
          copied("copy to the device")};
}

class OffloadedBlocks : public testing::TestWithParam<Case> {};

TEST_P(OffloadedBlocks, SaveAndMoveWhatThePlanSays) {
  const Case& c = GetParam();
  Case staying = c;
  staying.offloaded = 0;
  const plan::PlanInput request = request_of(c);
  const model::ParameterTable table = models::llama::family().describe(request.architecture);
  const plan::Plan with = plan::make(request, table);
  const plan::Plan without = plan::make(request_of(staying), table);
  const Measured moved = measure(c), stayed = measure(staying);

  const std::int64_t saved = without.tensor_bytes() - with.tensor_bytes();
  EXPECT_GT(saved, 0);
  EXPECT_NEAR(stayed.peak - moved.peak, saved, 0.02 * static_cast<double>(saved))
      << to_string(with);
  EXPECT_NEAR(stayed.peak, without.tensor_bytes(),
              0.05 * static_cast<double>(without.tensor_bytes()));

  std::int64_t kept = 0;
  const std::vector<std::int64_t> of_blocks = plan::kept_by_blocks(request, table);
  const schedule::Blocks blocks = plan::blocks_of(request);
  for (int i = 0; i < num_blocks; ++i)
    if (blocks.is_offloaded(i, num_blocks)) kept += of_blocks[static_cast<std::size_t>(i)];
  EXPECT_EQ(moved.to_host - stayed.to_host, steps * c.accumulation * kept);
  EXPECT_EQ(moved.to_device - stayed.to_device, steps * c.accumulation * kept);
  EXPECT_GE(with.host_bytes() - without.host_bytes(), kept);
}

std::vector<Case> cases() {
  using core::DType;
  return {{"half", none, 0, 3},
          {"all_but_one", none, 0, 5},
          {"all", none, 0, 6},
          {"fp32", none, 0, 4, DType::f32},
          {"selective", selective, 0, 4},
          {"inputs", full, 0, 6},
          {"some_inputs", full, 0, 3},
          {"besides_recomputed", none, 2, 3},
          {"two_passes", none, 0, 5, DType::bf16, 2},
          {"head_norms", none, 0, 5, DType::bf16, 1, true}};
}

INSTANTIATE_TEST_SUITE_P(Ways, OffloadedBlocks, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace finetune::tests::simulated_offload_memory
