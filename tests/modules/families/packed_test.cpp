// SPDX-License-Identifier: Apache-2.0
// Samples that share a row give the loss and the gradients that they give one by one, in every
// family: with windows, chunks, experts and temperature.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "registry.hpp"
#include "support/families.hpp"
#include "support/golden.hpp"
#include "support/margins.hpp"
#include "support/ranks.hpp"
#include "support/weights.hpp"
#include "train/infer/loaded_model.hpp"

namespace finetune::packed_test {
namespace {

/// `length` tokens in which every third target is not trained.
data::MicroBatch sample(std::int64_t number, std::int64_t length) {
  data::MicroBatch one{.batch = 1, .length = length, .ids = {}, .labels = {}};
  for (std::int64_t i = 0; i < length; ++i) {
    one.ids.push_back((31 * i + 57 * number + i * i) % 512);
    one.labels.push_back((i + number) % 3 == 0 ? -100 : (17 * i + 7 * number) % 512);
  }
  one.stretches = {{length, false}};
  return one;
}

/// The samples one after the other in rows of `length`, with padding at the end of each row.
data::MicroBatch pack(const std::vector<std::vector<data::MicroBatch>>& rows, std::int64_t length) {
  data::MicroBatch all{.batch = std::ssize(rows), .length = length, .ids = {}, .labels = {}};
  for (const auto& row : rows) {
    std::int64_t used = 0;
    for (const data::MicroBatch& one : row) {
      all.ids.insert(all.ids.end(), one.ids.begin(), one.ids.end());
      all.labels.insert(all.labels.end(), one.labels.begin(), one.labels.end());
      all.stretches.push_back({one.length, false});
      used += one.length;
    }
    if (used == length) continue;
    all.ids.resize(all.ids.size() + static_cast<std::size_t>(length - used), 0);
    all.labels.resize(all.ids.size(), -100);
    all.stretches.push_back({length - used, true});
  }
  return all;
}

enum class Weights { of_files, moved };

/// Each weight becomes the next number up or down, by chance.
void move(shard::ModelShards& shards) {
  for (const int unit : shards.trained_units()) {
    const at::Tensor master = shards.master(unit);
    const at::Tensor signs = tests::normal(master.sizes(), static_cast<std::uint64_t>(unit)).sign();
    master.copy_(master.nextafter(signs * std::numeric_limits<float>::infinity()));
  }
}

struct Result {
  double loss = 0, balance = 0;
  std::vector<at::Tensor> gradients;  ///< a trained unit each
};

class Packed : public testing::TestWithParam<const char*> {
 protected:
  bool has_experts() const {
    const auto folder = tests::golden(std::string("models/") + GetParam());
    const auto identified =
        model::identify(model::read_config(folder), folder.string(), modules::registry().families);
    return identified.architecture.num_layers_with_experts() > 0;
  }

  Result pass(const std::vector<data::MicroBatch>& batches, const train::Scale& scale,
              Weights weights = Weights::of_files) const {
    train::LoadedModel loaded(tests::golden(std::string("models/") + GetParam()),
                              modules::registry(), {}, core::DType::f32);
    const auto engine = loaded.engine();
    if (weights == Weights::moved) move(engine.shards);
    engine.shards.reset_gradients();
    Result result;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const auto sums = train::forward_backward(
          engine, batches[i], scale,
          i + 1 == batches.size() ? train::Pass::last : train::Pass::more_follow);
      result.loss += sums.loss;
      result.balance += sums.balance;
    }
    engine.shards.finish_gradients();
    for (const int unit : engine.shards.trained_units())
      result.gradients.push_back(engine.shards.gradient(unit).clone());
    return result;
  }
};

TEST_P(Packed, IsTheSumOfItsSamples) {
  // 40 tokens exceed the golden models' windows and chunks.
  const std::vector<data::MicroBatch> samples = {sample(1, 11), sample(2, 40), sample(3, 1),
                                                 sample(4, 20)};
  const bool has_experts = this->has_experts();
  const train::Scale scale(0.1, has_experts ? 0.05 : 0);
  const Result alone = pass(samples, scale);
  const Result packed =
      pass({pack({{samples[1], samples[2]}, {samples[0], samples[3]}}, 43)}, scale);
  // What roundings of the weights change; sums in another order change some times as much.
  const Result moved = pass(samples, scale, Weights::moved);
  EXPECT_NEAR(packed.loss, alone.loss, 1e-5 * alone.loss);
  EXPECT_NEAR(packed.balance, alone.balance, 1e-5 * std::max(1.0, alone.balance));
  EXPECT_EQ(alone.balance > 0, has_experts);
  for (std::size_t unit = 0; unit < alone.gradients.size(); ++unit) {
    const at::Tensor& expected = alone.gradients[unit];
    const auto off = [&](const Result& other) {
      return (other.gradients[unit] - expected).abs().max().item<double>();
    };
    const double largest = expected.abs().max().item<double>();
    EXPECT_GT(largest, 0);
    EXPECT_GT(off(moved), 0);
    const double bound = std::max(1e-5 * largest, 4 * off(moved));
    EXPECT_LE(off(packed), tests::noted(off(packed), bound)) << "unit " << unit;
  }
}

TEST_P(Packed, ComputesTheSameAgain) {
  const std::vector<data::MicroBatch> packed = {pack({{sample(1, 11), sample(2, 30)}}, 43)};
  const Result kept = pass(packed, 0.1);
  train::LoadedModel loaded(tests::golden(std::string("models/") + GetParam()), modules::registry(),
                            {}, core::DType::f32);
  train::Engine engine = loaded.engine();
  engine.blocks = train::Blocks::recomputed;
  engine.shards.reset_gradients();
  train::forward_backward(engine, packed[0], 0.1);
  engine.shards.finish_gradients();
  ASSERT_EQ(engine.shards.trained_units().size(), kept.gradients.size());
  for (std::size_t i = 0; i < kept.gradients.size(); ++i)
    EXPECT_TRUE(
        at::equal(engine.shards.gradient(engine.shards.trained_units()[i]), kept.gradients[i]));
}

INSTANTIATE_TEST_SUITE_P(Models, Packed, testing::ValuesIn(tests::golden_models),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace finetune::packed_test
