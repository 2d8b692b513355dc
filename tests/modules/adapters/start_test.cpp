// SPDX-License-Identifier: Apache-2.0
// Low-rank matrices that begin with factors of the weights: those of PEFT, on any ranks, and a
// model that begins as it was.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "adapters/lora/starts.hpp"
#include "modules/adapters/adapted_model.hpp"
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

/// This rank's elements of trained rows, with the golden ones: the rows that are there, whole ones.
using Compare = std::function<void(const model::Parameter&, std::span<const float> got,
                                   std::span<const float> wanted, float largest)>;

void compare(tests::AdaptedModel& model, const world::World& mesh,
             const weights::ModelFiles& expected, const std::string& prefix, bool gradients,
             const Compare& f) {
  for (const int unit : model.shards.trained_units()) {
    const at::Tensor values = gradients ? model.shards.gradient(unit) : model.shards.master(unit);
    for (const auto& slice : model.map.slices(unit, mesh.fsdp.rank())) {
      const model::Parameter& row = model.table.row(slice.row);
      if (!expected.contains(prefix + row.name)) continue;
      const auto whole = tests::read_golden<float>(expected, prefix + row.name);
      const auto n = static_cast<std::size_t>(slice.count);
      f(row, {values.const_data_ptr<float>() + slice.shard_offset, n},
        std::span(whole).subspan(static_cast<std::size_t>(slice.tensor_offset), n),
        tests::largest_magnitude(whole));
    }
  }
}

/// Of a pair of singular vectors both may have the other sign.
float difference(float got, float wanted, bool has_signs) {
  return has_signs ? std::abs(got - wanted) : std::abs(std::abs(got) - std::abs(wanted));
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
  std::int64_t compared = 0;
  const auto expect_near = [&](double tolerance) {
    return [&, tolerance](const model::Parameter& row, std::span<const float> got,
                          std::span<const float> wanted, float largest) {
      float worst = 0;
      for (std::size_t i = 0; i < got.size(); ++i)
        worst = std::max(worst, difference(got[i], wanted[i], is_olora));
      EXPECT_LE(worst, tests::noted(worst, tolerance * largest)) << row.name;
      compared += std::ssize(got);
    };
  };
  compare(model, mesh, expected, "", false, expect_near(2e-4));
  const auto files = weights::ModelFiles::open(tests::golden("cases/llama.safetensors"));
  data::MicroBatch batch{.batch = 2, .length = 31, .ids = {}, .labels = {}};
  for (std::int64_t i = 0; i < batch.batch; ++i) {
    const auto ids = tests::read_golden<std::int64_t>(files, "input_ids", i * 32, 31);
    const auto labels = tests::read_golden<std::int64_t>(files, "labels", i * 32 + 1, 31);
    batch.ids.insert(batch.ids.end(), ids.begin(), ids.end());
    batch.labels.insert(batch.labels.end(), labels.begin(), labels.end());
  }
  const auto num = std::count_if(batch.labels.begin(), batch.labels.end(),
                                 [](std::int64_t label) { return label >= 0; });
  const double per_token = 1.0 / static_cast<double>(num);
  const auto sum = train::forward_backward(
      model.engine(), world.is_root() ? std::optional(batch) : std::nullopt, per_token);
  // It begins as it was.
  if (world.is_root()) {
    EXPECT_NEAR(sum.loss * per_token, tests::read_golden<float>(files, "loss")[0], 1e-5);
  }
  model.shards.finish_gradients();
  compare(model, mesh, expected, "grad.", true, expect_near(5e-4));
  const std::int64_t all = mesh.fsdp.all_reduce(compared, comm::Reduce::sum);
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
