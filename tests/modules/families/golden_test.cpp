// SPDX-License-Identifier: Apache-2.0
// One forward and backward pass and a greedy continuation against transformers' numbers, on any
// number of ranks. Tolerances: about ten times what two correct implementations differ by, and more
// where transformers' own numbers are known to be further from exact ones.

#include <gtest/gtest.h>

#include "model/rope.hpp"
#include "modules/families/rounding.hpp"
#include "registry.hpp"
#include "support/families.hpp"
#include "support/golden.hpp"
#include "support/margins.hpp"
#include "support/ranks.hpp"
#include "train/infer/generate.hpp"
#include "train/infer/loaded_model.hpp"

namespace finetune::golden_test {
namespace {

constexpr std::int64_t batch = 2;
constexpr std::int64_t length = 32;

class Golden : public testing::TestWithParam<const char*> {
 protected:
  weights::ModelFiles case_files() const {
    return weights::ModelFiles::open(
        tests::golden(std::string("cases/") + GetParam() + ".safetensors"));
  }
  train::LoadedModel load() const {
    return {tests::golden(std::string("models/") + GetParam()), modules::registry(), tests::world(),
            core::DType::f32};
  }
};

at::Tensor to_tensor(const std::vector<std::int64_t>& values) {
  return at::tensor(at::ArrayRef<std::int64_t>(values), at::kLong);
}

/// Row `row` of the case as a micro-batch: labels shifted, so that the last position has none.
data::MicroBatch micro_batch(const weights::ModelFiles& files, std::int64_t row) {
  data::MicroBatch one{.batch = 1, .length = length - 1, .ids = {}, .labels = {}};
  one.ids = tests::read_golden<std::int64_t>(files, "input_ids", row * length, length - 1);
  one.labels = tests::read_golden<std::int64_t>(files, "labels", row * length + 1, length - 1);
  return one;
}

/// [in, out] as files have it, as `shape` [out, in].
std::vector<float> transposed(std::vector<float> values, const std::vector<std::int64_t>& shape) {
  const at::Tensor of_files = at::from_blob(values.data(), {shape[1], shape[0]}, at::kFloat);
  const at::Tensor by_outputs = of_files.t().contiguous();
  return {by_outputs.data_ptr<float>(), by_outputs.data_ptr<float>() + by_outputs.numel()};
}

TEST_P(Golden, LogitsAreThoseOfTransformers) {
  const auto files = case_files();
  auto loaded = load();
  const auto sequence = model::make_sequence(loaded.architecture(), batch, length);
  const auto ids = to_tensor(tests::read_golden<std::int64_t>(files, "input_ids"));
  const at::Tensor logits =
      train::logits(loaded.engine(), ids, sequence, train::Positions::all).contiguous();
  const auto expected = tests::read_golden<float>(files, "logits");
  ASSERT_EQ(logits.numel(), std::ssize(expected));
  const double difference =
      tests::largest_difference({logits.data_ptr<float>(), expected.size()}, expected);
  EXPECT_LT(difference, tests::noted(difference, Rounding(GetParam()).logits()));
}

TEST_P(Golden, LossAndEveryGradientAreThoseOfTransformers) {
  const auto files = case_files();
  auto loaded = load();
  const auto engine = loaded.engine();
  const auto& world = tests::world();
  const auto first = micro_batch(files, 0);
  const auto second = micro_batch(files, 1);
  const auto is_target = [](std::int64_t label) { return label >= 0; };
  const auto targets = std::count_if(first.labels.begin(), first.labels.end(), is_target) +
                       std::count_if(second.labels.begin(), second.labels.end(), is_target);
  const double scale = 1.0 / static_cast<double>(targets);

  // Row j belongs to rank j % ranks: one rank accumulates both, ranks 2 and 3 have nothing to
  // compute.
  double loss = 0;
  engine.shards.reset_gradients();
  for (std::int64_t pass = 0; pass < (world.size() == 1 ? 2 : 1); ++pass) {
    const std::int64_t row = pass * world.size() + world.rank();
    std::optional<data::MicroBatch> mine;
    if (row < batch) mine = row == 0 ? first : second;
    loss += train::forward_backward(engine, mine, scale).loss;
  }
  engine.shards.finish_gradients();
  loss = world.all_reduce(loss, comm::Reduce::sum) * scale;
  EXPECT_NEAR(loss, tests::read_golden<float>(files, "loss")[0], 1e-5);

  const Rounding rounding(GetParam());
  for (const int unit : engine.shards.trained_units()) {
    const at::Tensor gradient = engine.shards.gradient(unit);
    for (const auto& slice : engine.shards.map().slices(unit, world.rank())) {
      const model::Parameter& row = loaded.parameters().row(slice.row);
      const std::string& name = row.name;
      auto expected = tests::read_golden<float>(files, "grad." + name);
      if (row.is_by_inputs) expected = transposed(std::move(expected), row.shape);
      const std::span<const float> part(expected.data() + slice.tensor_offset,
                                        static_cast<std::size_t>(slice.count));
      const std::span<const float> got(gradient.data_ptr<float>() + slice.shard_offset,
                                       part.size());
      const double difference = tests::largest_difference(got, part);
      const double bound = rounding.gradient(name) * tests::largest_magnitude(expected);
      EXPECT_LE(difference, tests::noted(difference, bound)) << name;
    }
  }
}

TEST_P(Golden, GreedyTokensWithTheCacheAreThoseOfTransformers) {
  const auto files = case_files();
  auto loaded = load();
  constexpr std::int64_t prompt_length = 8;
  constexpr std::int64_t total = 24;
  for (std::int64_t row = 0; row < batch; ++row) {
    const auto all = tests::read_golden<std::int64_t>(files, "generated_ids", row * total, total);
    const std::vector<std::int32_t> prompt(all.begin(), all.begin() + prompt_length);
    const std::vector<std::int32_t> expected(all.begin() + prompt_length, all.end());
    EXPECT_EQ(
        train::generate(loaded.engine(), prompt, {.max_tokens = total - prompt_length, .stop = {}}),
        expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(tests::golden_models),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace finetune::golden_test
