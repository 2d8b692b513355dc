// SPDX-License-Identifier: Apache-2.0
// Steps of a small model whose shards are on the device, by every optimizer, as on the CPU; and the
// gradients of fixed point, which are the same to the bit wherever they are added.
#include <cmath>
#include <stdexcept>
#include <tuple>

#include "base/initial_weights.hpp"
#include "gpu/as_on_cpu.hpp"
#include "optim/loss_scale.hpp"
#include "registry.hpp"
#include "support/shards.hpp"
#include "train/step/step.hpp"

namespace finetune::tests::gpu::shards_test {
namespace {

using core::DType;

struct Case {
  std::string name;
  std::string optimizer = "adamw";
  plan::Numbers numbers = {};
  bool offloads = false;
  train::Blocks blocks = train::Blocks::kept;
  double part = 1e-4;  ///< by which losses and weights may differ

  friend void PrintTo(const Case& of, std::ostream* to) { *to << of.name; }
};

model::Architecture architecture() {
  model::Architecture a;
  a.family = "llama";
  a.num_layers = 2;
  a.vocab_size = 301;
  a.d_model = 64;
  a.num_heads = 4;
  a.num_kv_heads = 2;
  a.head_size = 16;
  a.d_ff = 96;
  a.max_positions = 64;
  a.init_std = 0.1;
  return a;
}

const model::ModelFamily& family() {
  for (const model::ModelFamily& family : modules::registry().families)
    if (family.name == "llama") return family;
  throw std::logic_error("there is no llama");
}

/// Two micro-batches of 2 samples of 32 tokens.
data::StepData step_data() {
  data::StepData data;
  for (std::int64_t micro = 0; micro < 2; ++micro) {
    data::MicroBatch batch{.batch = 2, .length = 32, .ids = {}, .labels = {}};
    for (std::int64_t i = 0; i < 64; ++i) {
      batch.ids.push_back((i * i + micro) % 301);
      batch.labels.push_back(i % 5 == 0 ? -100 : (i * 7 + micro) % 301);
    }
    data.micro_steps.emplace_back(std::move(batch));
  }
  data.num_samples = 4;
  data.num_tokens = 128;
  data.num_trained_tokens = 2 * 51;
  return data;
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;  ///< by unit, on the host
};

Trained train_on(at::Device where, const Case& of, std::int64_t steps) {
  const model::Architecture a = architecture();
  const model::ParameterTable table = family().describe(a);
  const optim::Kind& kind = *optim::find_kind(modules::registry().optimizers, of.optimizer);
  const plan::ShardMap map(table, 1,
                           {.compute = of.numbers.compute, .block = kind.footprint.block()});
  shard::Options options;
  options.numbers = of.numbers;
  options.device = where;
  options.state_device = of.offloads ? at::Device(at::kCPU) : where;
  shard::ModelShards shards(table, map, shard::one_copy(comm::Communicator()), options);
  const auto model = family().build(a);
  model::Ops ops(shards);
  optim::OptimizerSettings settings;
  settings.name = of.optimizer;
  settings.weight_decay = 0.1;
  settings.max_grad_norm = 0.5;
  settings.rounding = optim::Rounding::nearest;
  const auto optimizer =
      kind.make(settings, table, shards, {.moments = of.numbers.moments, .seed = 1});
  base::randomize(a, table, 1, shards);
  const train::Engine engine{a, *model, ops, shards, of.blocks};
  optim::LossScale scale;
  Trained trained;
  for (std::int64_t step = 0; step < steps; ++step) {
    const train::StepResult result =
        train::run_step(engine, comm::Communicator(), step_data(), *optimizer,
                        {.step = step,
                         .lr = 1e-2 * kind.usual_lr,
                         .max_grad_norm = settings.max_grad_norm,
                         .loss_scale = of.numbers.scales_loss ? &scale : nullptr});
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.grad_norm);
  }
  for (const int unit : shards.trained_units())
    trained.weights.push_back(shards.master(unit).cpu().clone());
  return trained;
}

class Steps : public testing::TestWithParam<Case> {};

TEST_P(Steps, TrainAsOnTheCpu) {
  const Case& of = GetParam();
  const Trained here = train_on(at::kCPU, of, 4), there = train_on(device(), of, 4);
  for (std::size_t step = 0; step < here.losses.size(); ++step) {
    EXPECT_NEAR(there.losses[step], here.losses[step], of.part * here.losses[step]) << step;
    EXPECT_NEAR(there.norms[step], here.norms[step], 5 * of.part * here.norms[step]) << step;
  }
  EXPECT_LT(here.losses.back(), here.losses.front());
  for (std::size_t unit = 0; unit < here.weights.size(); ++unit) {
    const at::Tensor e = here.weights[unit].to(at::kDouble);
    const double apart = (there.weights[unit].to(at::kDouble) - e).norm().item<double>();
    EXPECT_LT(apart, 10 * of.part * e.norm().item<double>()) << "unit " << unit;
  }
}

TEST_P(Steps, GiveTheSameBitsTwice) {
  const Trained first = train_on(device(), GetParam(), 3),
                second = train_on(device(), GetParam(), 3);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.norms, second.norms);
  for (std::size_t unit = 0; unit < first.weights.size(); ++unit)
    EXPECT_TRUE(at::equal(first.weights[unit], second.weights[unit])) << "unit " << unit;
}

std::vector<Case> cases() {
  plan::Numbers fp32;
  fp32.compute = DType::f32;
  fp32.determinism = plan::Determinism::run;
  plan::Numbers mixed = fp32;
  mixed.compute = DType::bf16;
  plan::Numbers narrow = mixed;
  narrow.master = narrow.moments = DType::bf16;
  plan::Numbers fp16 = fp32;
  fp16.compute = DType::f16;
  fp16.scales_loss = true;
  plan::Numbers fixed = fp32, fixed_bf16 = mixed;
  fixed.determinism = fixed_bf16.determinism = plan::Determinism::topology;
  std::vector<Case> all = {
      {.name = "bf16_mixed", .numbers = mixed, .part = 1e-2},
      {.name = "bf16_true", .numbers = narrow, .part = 2e-2},
      {.name = "fp16_mixed", .numbers = fp16, .part = 1e-2},
      {.name = "topology", .numbers = fixed},
      {.name = "topology_bf16", .numbers = fixed_bf16, .part = 1e-2},
      {.name = "offload", .numbers = fp32, .offloads = true},
      {.name = "offload_bf16", .numbers = mixed, .offloads = true, .part = 1e-2},
      {.name = "recomputed", .numbers = fp32, .blocks = train::Blocks::recomputed},
  };
  for (const optim::Kind& kind : modules::registry().optimizers)
    // The sign of a momentum near zero, and codes next to each other, go by rounding.
    all.push_back({.name = kind.name(),
                   .optimizer = kind.name(),
                   .numbers = fp32,
                   .part = kind.name() == "adamw" ? 1e-4 : 2e-3});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Steps, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

/// Recomputing and offloading move work and memory, and change nothing.
TEST(Steps, AreBitwiseIdenticalWhateverIsRecomputed) {
  plan::Numbers mixed;
  mixed.determinism = plan::Determinism::run;
  const Trained kept = train_on(device(), {.name = "kept", .numbers = mixed}, 3);
  const Trained again = train_on(
      device(), {.name = "again", .numbers = mixed, .blocks = train::Blocks::recomputed}, 3);
  EXPECT_EQ(kept.losses, again.losses);
  for (std::size_t unit = 0; unit < kept.weights.size(); ++unit)
    EXPECT_TRUE(at::equal(kept.weights[unit], again.weights[unit]));
}

/// Sums of a unit after three micro-batches whose gradients are given, on the host.
at::Tensor sums_on(at::Device where, const plan::Numbers& numbers, float bad, std::string* what) {
  const model::ParameterTable table = odd_table();
  const plan::ShardMap map(table, 1, {.compute = numbers.compute});
  shard::Options options;
  options.numbers = numbers;
  options.device = options.state_device = where;
  shard::ModelShards shards(table, map, shard::one_copy(comm::Communicator()), options);
  shards.reset_gradients(3);
  for (std::uint64_t pass = 0; pass < 3; ++pass) {
    shards.open_gradient(0);
    for (const model::RowRange rows : {model::RowRange{0, 3}, model::RowRange{3, 1}}) {
      const model::GradientSlot slot = shards.gradient(rows);
      // So small that fixed point has to round them.
      constexpr double sizes[] = {1e-8, 1e-12, 1e-13};
      const std::uint64_t seed = pass * 10 + static_cast<std::uint64_t>(rows.first);
      at::Tensor terms = normal(slot.tensor.sizes(), seed) * sizes[pass];
      if (pass == 1 && rows.first == 3 && bad != 0) terms[2] = bad;
      const at::Tensor there = terms.to(slot.tensor.scalar_type()).to(where);
      if (slot.accumulate) {
        at::Tensor(slot.tensor).add_(there);
      } else {
        at::Tensor(slot.tensor).copy_(there);
      }
    }
    shards.reduce_gradient(0, pass == 2 ? train::Pass::last : train::Pass::more_follow);
  }
  shards.finish_gradients();
  if (what != nullptr) *what = shards.out_of_range().value_or("");
  return shards.gradient(0).cpu().clone();
}

class GradientSums : public testing::TestWithParam<std::tuple<DType, plan::Determinism>> {};

TEST_P(GradientSums, HaveTheBitsOfTheCpu) {
  plan::Numbers numbers;
  std::tie(numbers.compute, numbers.determinism) = GetParam();
  const at::Tensor here = sums_on(at::kCPU, numbers, 0, nullptr);
  EXPECT_GT(here.abs().max().item<float>(), 0);
  EXPECT_TRUE(at::equal(sums_on(device(), numbers, 0, nullptr), here));
}

TEST_P(GradientSums, NameWhatFixedPointCannotHold) {
  plan::Numbers numbers;
  std::tie(numbers.compute, numbers.determinism) = GetParam();
  if (!numbers.is_fixed_point()) return;
  std::string here, there;
  sums_on(at::kCPU, numbers, 1e20f, &here);
  sums_on(device(), numbers, 1e20f, &there);
  EXPECT_NE(here, "");
  EXPECT_EQ(there, here);
}

INSTANTIATE_TEST_SUITE_P(
    All, GradientSums,
    testing::Combine(testing::Values(DType::f32, DType::bf16),
                     testing::Values(plan::Determinism::run, plan::Determinism::topology)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param) == DType::f32 ? "fp32" : "bf16") +
             (std::get<1>(info.param) == plan::Determinism::run ? "_run" : "_topology");
    });

}  // namespace
}  // namespace finetune::tests::gpu::shards_test
