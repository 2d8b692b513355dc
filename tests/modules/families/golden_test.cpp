// SPDX-License-Identifier: Apache-2.0
// One forward and backward pass and a greedy continuation against transformers' numbers, on any
// number of ranks. Tolerances: about ten times what two correct implementations differ by.

#include <gtest/gtest.h>

#include <map>

#include "model/rope.hpp"
#include "modules/families/logits.hpp"
#include "modules/families/planted.hpp"
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

/// Where element `i` of a row is in the tensor of the files, which may have it as [in, out].
std::int64_t place_in_files(const model::Parameter& row, std::int64_t i) {
  if (!row.is_by_inputs) return i;
  const std::int64_t num_out = row.shape[0], num_in = row.shape[1];
  return i % num_in * num_out + i / num_in;
}

/// Of a gradient in a case: its largest entry, how far that is from fp64, its projections.
struct Reference {
  Reference(const weights::ModelFiles& files, const std::string& name)
      : numbers(tests::read_golden<float>(files, "grad." + name)) {}

  double largest() const { return numbers[0]; }
  double bound() const { return tests::element_bound(numbers[0], numbers[1]); }
  std::span<const float> projections() const { return std::span(numbers).subspan(2); }

  std::vector<float> numbers;
};

/// Gradients of a pass over both rows of the case, of which row j belongs to rank j % ranks: one
/// rank accumulates both, ranks 2 and 3 have nothing to compute. The mean loss.
double pass(const weights::ModelFiles& files, const train::Engine& engine) {
  const auto& world = tests::world();
  const auto first = micro_batch(files, 0);
  const auto second = micro_batch(files, 1);
  const auto is_target = [](std::int64_t label) { return label >= 0; };
  const auto targets = std::count_if(first.labels.begin(), first.labels.end(), is_target) +
                       std::count_if(second.labels.begin(), second.labels.end(), is_target);
  const double scale = 1.0 / static_cast<double>(targets);
  double loss = 0;
  engine.shards.reset_gradients();
  for (std::int64_t pass = 0; pass < (world.size() == 1 ? 2 : 1); ++pass) {
    const std::int64_t row = pass * world.size() + world.rank();
    std::optional<data::MicroBatch> mine;
    if (row < batch) mine = row == 0 ? first : second;
    loss += train::forward_backward(engine, mine, scale).loss;
  }
  engine.shards.finish_gradients();
  return world.all_reduce(loss, comm::Reduce::sum) * scale;
}

/// Calls f(row, first element, values) for this rank's pieces of the gradients.
template <typename F>
void for_each_piece(train::LoadedModel& loaded, const train::Engine& engine, const F& f) {
  for (const int unit : engine.shards.trained_units()) {
    const at::Tensor gradient = engine.shards.gradient(unit);
    for (const auto& slice : engine.shards.map().slices(unit, tests::world().rank()))
      f(loaded.parameters().row(slice.row), slice.tensor_offset,
        std::span<const float>(gradient.const_data_ptr<float>() + slice.shard_offset,
                               static_cast<std::size_t>(slice.count)));
  }
}

TEST_P(Golden, LogitsAreThoseOfTransformers) {
  const auto files = case_files();
  auto loaded = load();
  const auto sequence = model::make_sequence(loaded.architecture(), batch, length);
  const auto ids = to_tensor(tests::read_golden<std::int64_t>(files, "input_ids"));
  const at::Tensor logits =
      train::logits(loaded.engine(), ids, sequence, train::Positions::all).contiguous();
  tests::expect_logits({logits.const_data_ptr<float>(), static_cast<std::size_t>(logits.numel())},
                       files);
}

TEST_P(Golden, LossAndEveryGradientAreThoseOfTransformers) {
  const auto files = case_files();
  auto loaded = load();
  const auto engine = loaded.engine();
  EXPECT_NEAR(pass(files, engine), tests::read_golden<float>(files, "loss")[0], 1e-5);

  std::map<std::string, tests::Projection> projections;
  for (const model::Parameter& row : loaded.parameters().rows)
    if (row.trainable) projections[row.name];
  for_each_piece(loaded, engine, [&](const auto& row, std::int64_t first, auto values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      projections.at(row.name).add(place_in_files(row, first + static_cast<std::int64_t>(i)),
                                   values[i]);
  });
  for (const model::Parameter& row : loaded.parameters().rows) {
    if (!row.trainable) continue;
    auto numbers = projections.at(row.name).numbers();
    tests::world().all_reduce(std::span<double>(numbers), comm::Reduce::sum);
    EXPECT_EQ(tests::num_elements(numbers), row.count()) << row.name;
    const Reference expected(files, row.name);
    const double used = tests::excess(numbers, expected.projections(), expected.bound());
    EXPECT_LE(used, tests::noted(used, 1)) << row.name;
  }
}

/// A gradient of `row` that went wrong in some way, as part of what the bound allows.
void expect_found(const model::Parameter& row, const std::vector<float>& wrong,
                  const Reference& expected, const std::string& what) {
  tests::Projection projection;
  for (std::size_t i = 0; i < wrong.size(); ++i)
    projection.add(place_in_files(row, static_cast<std::int64_t>(i)), wrong[i]);
  EXPECT_GT(tests::excess(projection.numbers(), expected.projections(), expected.bound()), 10)
      << what << " in " << row.name;
}

/// Rows or heads in another order, a sign, a transposed matrix: none of them hides in projections.
TEST_P(Golden, WrongGradientsAreFound) {
  REQUIRE_RANKS(1);
  const auto files = case_files();
  auto loaded = load();
  const auto engine = loaded.engine();
  pass(files, engine);
  std::map<std::string, int> num_planted;
  for_each_piece(loaded, engine, [&](const auto& row, std::int64_t, auto values) {
    const Reference expected(files, row.name);
    if (row.shape.size() != 2 || std::ssize(values) != row.count() || expected.largest() == 0)
      return;
    for (const auto& [what, wrong] : tests::plant({values.begin(), values.end()}, row.shape)) {
      expect_found(row, wrong, expected, what);
      ++num_planted[what];
    }
  });
  for (const char* what : {"two rows have changed places", "two halves have changed places",
                           "the sign of a row has changed"})
    EXPECT_GT(num_planted[what], 5) << what;
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
