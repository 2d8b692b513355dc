// SPDX-License-Identifier: Apache-2.0
// Low-rank matrices that begin with factors of the weights: those of PEFT, on any ranks, and a
// model that begins as it was.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "adapters/lora/starts.hpp"
#include "modules/adapters/adapted_model.hpp"
#include "modules/golden_steps.hpp"
#include "support/threads.hpp"

namespace finetune::start_test {
namespace {

using adapters::lora::StartKind;

model::AdapterSettings settings_of(const std::string& init) {
  model::AdapterSettings settings;
  settings.name = "lora";
  settings.target_modules = {"q_proj", "k_proj", "down_proj"};
  auto& own = settings.of<adapters::lora::Settings>();
  own.r = 4;
  own.alpha = 6;
  own.init = init;
  return settings;
}

class Starts : public testing::TestWithParam<const char*> {};

TEST_P(Starts, AreThoseOfPeftWithItsGradients) {
  const std::string init = GetParam();
  const bool is_olora = init == "olora";
  const auto expected = weights::ModelFiles::open(tests::golden(
      is_olora ? "adapters/start_olora.safetensors" : "adapters/start_pissa.safetensors"));
  const auto& world = tests::world();
  const world::World mesh = tests::mesh_of(world, world.size());
  tests::AdaptedModel model({.adapter = settings_of(init), .start = {}}, mesh,
                            {.numbers = {.compute = core::DType::f32}});
  tests::RowComparison values(expected), gradients(expected);
  // Of a pair of singular vectors both may have the other sign.
  const auto compare = [&](tests::RowComparison& with, const std::string& prefix) {
    return [&, prefix](int row, std::int64_t i, float value) {
      const std::string name = prefix + model.table.row(row).name;
      if (expected.contains(name)) with.compare(name, i, value, !is_olora);
    };
  };
  model.for_each(compare(values, ""));
  values.expect_within(2e-4);
  const auto files = weights::ModelFiles::open(tests::golden("cases/llama.safetensors"));
  const data::MicroBatch batch = tests::micro_batch(files, 0, 0, 2);
  const double per_token = 1.0 / static_cast<double>(tests::num_targets(batch));
  const auto sum = train::forward_backward(
      model.engine(), world.is_root() ? std::optional(batch) : std::nullopt, per_token);
  // It begins as it was.
  if (world.is_root()) {
    EXPECT_NEAR(sum.loss * per_token, tests::read_golden<float>(files, "loss")[0], 1e-5);
  }
  model.for_each_gradient(compare(gradients, "grad."));
  gradients.expect_within(5e-4);
  const std::int64_t all =
      mesh.fsdp.all_reduce(values.num_compared() + gradients.num_compared(), comm::Reduce::sum);
  EXPECT_EQ(all, model.table.num_trainable()) << "half of it stays, of the others the gradients";
}

INSTANTIATE_TEST_SUITE_P(Kinds, Starts, testing::Values("pissa", "pissa_niter_900", "olora"));

/// A number for what all ranks have together, in which the place of each counts.
std::vector<float> all_starts(const comm::Communicator& world, const std::string& init) {
  const world::World mesh = tests::mesh_of(world, world.size());
  tests::AdaptedModel model({.adapter = settings_of(init), .start = {}}, mesh,
                            {.numbers = {.compute = core::DType::f32}});
  std::vector<float> sums;
  for (const int unit : model.shards.trained_units()) {
    model.shards.open(unit);
    for (int row = 0; row < std::ssize(model.table.rows); ++row) {
      if (model.shards.unit_of(row) != unit) continue;
      const at::Tensor values = model.shards.weight({row, 1}).contiguous();
      sums.insert(sums.end(), values.const_data_ptr<float>(),
                  values.const_data_ptr<float>() + values.numel());
    }
    model.shards.close(unit);
  }
  return sums;
}

TEST(Starts, AreTheSameBitsOnAnyRanks) {
  for (const char* init : {"pissa", "pissa_niter_3", "olora"})
    EXPECT_EQ(all_starts(tests::world(), init), all_starts({}, init)) << init;
}

TEST(Starts, AreTheSameBitsOnAnyThreads) {
  for (const char* init : {"pissa", "pissa_niter_1", "pissa_niter_16", "olora"})
    for (const auto& [rows, columns] :
         {std::pair<std::int64_t, std::int64_t>{96, 64}, {64, 96}, {9, 64}}) {
      SCOPED_TRACE(testing::Message() << init << ", " << rows << " x " << columns);
      const at::Tensor weight =
          at::cos(at::arange(rows * columns, at::kFloat).square()).view({rows, columns});
      tests::expect_same_on_any_threads([&] {
        const auto [a, b] = adapters::lora::factors_of(weight, 8, 0.5, *StartKind::parse(init), 7);
        return std::vector<at::Tensor>{a, b};
      });
    }
}

TEST(Starts, AreTheLargestFactors) {
  const at::Tensor left = at::eye(5).narrow(1, 0, 3), right = at::eye(4).narrow(0, 0, 3);
  const at::Tensor weight =
      at::mm(left * at::arange(1, 4, at::kFloat), right).t().contiguous();  // [4, 5]
  for (const StartKind& kind :
       {StartKind{StartKind::Method::pissa}, StartKind{StartKind::Method::pissa, 20}}) {
    const auto [a, b] = adapters::lora::factors_of(weight, 2, 0.5, kind, 7);
    EXPECT_EQ(a.sizes(), at::IntArrayRef({2, 5}));
    EXPECT_EQ(b.sizes(), at::IntArrayRef({4, 2}));
    const at::Tensor rest = weight - 0.5 * at::mm(b, a);
    EXPECT_NEAR(at::linalg_vector_norm(rest).item<float>(), 1, 1e-5) << "the smallest of 1, 2, 3";
  }
}

TEST(Starts, HaveNames) {
  EXPECT_EQ(StartKind::parse("lora")->code(), 0);
  EXPECT_EQ(StartKind::parse("pissa_niter_16")->num_iterations, 16);
  EXPECT_EQ(StartKind::of_code(StartKind::parse("pissa_niter_16")->code()).num_iterations, 16);
  EXPECT_EQ(StartKind::of_code(StartKind::parse("pissa")->code()).num_iterations, 0);
  EXPECT_EQ(StartKind::of_code(StartKind::parse("olora")->code()).method, StartKind::Method::olora);
  for (const char* name : {"", "pissa_niter_", "pissa_niter_0", "pissa_niter_x", "PISSA", "eva"})
    EXPECT_FALSE(StartKind::parse(name).has_value()) << name;
}

}  // namespace
}  // namespace finetune::start_test
