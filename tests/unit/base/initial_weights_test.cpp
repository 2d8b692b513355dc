// SPDX-License-Identifier: Apache-2.0
#include "base/initial_weights.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "core/random.hpp"
#include "support/tiny_model.hpp"
#include "unit/kernels/tensors.hpp"
#include "unit/weights/support.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::base::initial_weights_test {
namespace {

using tests::Elements;
using tests::TinyKind;
using tests::TinyModel;

TEST(Randomize, DoesNotDependOnTheRanks) {
  const Elements whole = TinyModel(comm::Communicator()).elements();
  const Elements mine = TinyModel(tests::world()).elements();
  tests::expect_elements_of(whole, mine);
  const std::int64_t all =
      tests::world().all_reduce(static_cast<std::int64_t>(mine.size()), comm::Reduce::sum);
  EXPECT_EQ(all, std::ssize(whole));
}

TEST(Randomize, GivesOtherWeightsForOtherSeedsRowsAndElements) {
  TinyModel tiny{comm::Communicator()};
  const Elements first = tiny.elements();
  const Elements other = TinyModel(comm::Communicator(), TinyKind::own_head, 2).elements();
  std::map<float, int> times;
  for (const auto& [place, value] : first) {
    if (tiny.table.row(place.first).init == model::Init::ones) {
      EXPECT_EQ(value, 1);
    } else {
      EXPECT_NE(value, other.at(place));
      EXPECT_EQ(++times[value], 1) << value << " comes twice";
    }
  }
}

TEST(Randomize, SpreadsAsTheArchitectureSays) {
  double squares = 0, sum = 0, count = 0;
  TinyModel tiny{comm::Communicator()};
  tiny.for_each([&](int row, std::int64_t, float value) {
    if (tiny.table.row(row).init == model::Init::ones) return;
    squares += value * value;
    sum += value;
    count += 1;
  });
  // About 850 numbers: five standard errors of their spread and mean.
  EXPECT_NEAR(std::sqrt(squares / count), tiny.architecture.init_std, 0.09);
  EXPECT_NEAR(sum / count, 0, 0.13);
}

/// A table of one matrix, larger than what one thread gets, and its source.
struct RandomMatrix {
  model::Architecture architecture;
  model::ParameterTable table;
  std::int64_t count = 3 * 8192 + 77;

  explicit RandomMatrix(model::Init init) {
    architecture.init_std = 0.02;
    model::Parameter row{.name = "w", .shape = {1, count}};
    row.init = init;
    table.rows = {row, row};
  }

  at::Tensor values(std::int64_t first, std::int64_t size) const {
    const at::Tensor out = at::empty({size}, at::kFloat);
    random_source(architecture, table, 9).values(1, first, kernels::test::elements<float>(out));
    return out;
  }
};

class RandomSource : public testing::TestWithParam<model::Init> {};

TEST_P(RandomSource, GivesTheNumbersOfTheKeyByThreadsOfAnyNumber) {
  const RandomMatrix matrix(GetParam());
  const core::RandomKey key(9, core::RandomUse::weights, 1);
  const double bound = 1.0 / std::sqrt(static_cast<double>(matrix.count));
  const at::Tensor expected = at::empty({matrix.count}, at::kFloat);
  for (std::int64_t i = 0; i < matrix.count; ++i) {
    const auto element = static_cast<std::uint64_t>(i);
    expected.data_ptr<float>()[i] = static_cast<float>(
        GetParam() == model::Init::normal ? key.normal(element) * 0.02
                                          : bound * (2 * key.uniform(element) - 1));
  }
  const auto results =
      kernels::test::with_thread_counts([&] { return matrix.values(0, matrix.count); });
  for (const at::Tensor& result : results)
    EXPECT_TRUE(kernels::test::same_bits(result, expected));
}

TEST_P(RandomSource, GivesTheSameNumbersInPieces) {
  const RandomMatrix matrix(GetParam());
  const at::Tensor whole = matrix.values(0, matrix.count);
  std::vector<at::Tensor> pieces;
  const std::int64_t cuts[] = {0, 1, 8191, 8193, 20'000, matrix.count};
  for (std::size_t i = 1; i < std::size(cuts); ++i)
    pieces.push_back(matrix.values(cuts[i - 1], cuts[i] - cuts[i - 1]));
  EXPECT_TRUE(kernels::test::same_bits(at::cat(pieces), whole));
}

INSTANTIATE_TEST_SUITE_P(Inits, RandomSource,
                         testing::Values(model::Init::normal, model::Init::fan_in));

/// The embedding, and a head in the dtype `of_head`.
weights::ModelFiles put_tied(const weights::TestFolder& folder, core::DType of_head,
                             const std::vector<float>& head) {
  const std::vector<float> embedding = {1, 2, 3, 4, 5, 6};
  weights::SafetensorsWriter writer(
      folder / "model.safetensors",
      {{"embed.weight", core::DType::f32, {3, 2}}, {"lm_head.weight", of_head, {3, 2}}});
  writer.write("embed.weight", std::as_bytes(std::span(embedding)));
  std::vector<std::byte> bytes(head.size() * static_cast<std::size_t>(core::size_bytes(of_head)));
  core::convert(core::DType::f32, std::as_bytes(std::span(head)), of_head, bytes);
  writer.write("lm_head.weight", bytes);
  writer.finish();
  return weights::ModelFiles::open(folder.path());
}

TEST(RequireSameModel, AcceptsATiedHeadThatIsTheEmbeddingAndRefusesAnother) {
  model::Architecture architecture;
  architecture.tied_embeddings = true;
  model::ParameterTable table;
  table.rows.push_back({.name = "embed.weight", .shape = {3, 2}});
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
    const weights::TestFolder same, other;
    EXPECT_NO_THROW(
        require_same_model(put_tied(same, dtype, {1, 2, 3, 4, 5, 6}), architecture, table));
    const auto files = put_tied(other, dtype, {1, 2, 3, 4, 5, 7});
    const auto thrown = weights::thrown_by([&] { require_same_model(files, architecture, table); });
    EXPECT_EQ(thrown.kind, core::ErrorKind::input);
    EXPECT_TRUE(thrown.says("lm_head.weight differs from embed.weight, first in row 2"))
        << thrown.message;
    EXPECT_TRUE(thrown.says("tie_word_embeddings")) << thrown.message;
  }
}

TEST(TensorSlice, NamesTheElementsOfAShard) {
  const model::Parameter row{.name = "w", .shape = {4, 5}};
  const core::TensorSlice slice =
      tensor_slice(row, {.row = 3, .tensor_offset = 7, .shard_offset = 2, .count = 6});
  EXPECT_EQ(slice.name, "w");
  EXPECT_EQ(slice.shape, (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(slice.dtype, core::DType::f32);
  EXPECT_EQ(slice.offset, 7);
  EXPECT_EQ(slice.count, 6);
}

}  // namespace
}  // namespace finetune::base::initial_weights_test
