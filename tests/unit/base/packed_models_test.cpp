// SPDX-License-Identifier: Apache-2.0
// Frozen matrices in few bits as models are published with them: the numbers of their definitions,
// the same on any ranks.

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "base/base_hash.hpp"
#include "base/detail/base_weights.hpp"
#include "model/part.hpp"
#include "support/model.hpp"
#include "unit/base/packed_models.hpp"

namespace finetune::base::packed_models_test {
namespace {

using tests::LoadedModel;
using tests::own_part;
using tests::PackedModel;
using tests::Parts;
using tests::world;

constexpr int num_matrices = 7;

std::vector<float> numbers_of(const std::string& name, const model::Parameter& row) {
  return tests::read_golden<float>(tests::packed_numbers(name), row.name);
}

class PackedModels : public testing::TestWithParam<std::string> {};

TEST_P(PackedModels, AreTheNumbersOfTheFormatsDefinition) {
  const PackedModel model(GetParam());
  require_same_model(model.files, model.architecture, model.table);
  int num_compared = 0;
  for (const model::Parameter& row : model.table.rows) {
    if (row.packing.is_dense()) continue;
    ++num_compared;
    EXPECT_EQ(base_weight(model.files, row), numbers_of(GetParam(), row)) << row.name;
  }
  EXPECT_EQ(num_compared, num_matrices);
}

/// Of any elements, which begin and end within rows, words and groups.
TEST_P(PackedModels, AreUnpackedAsTheyAreRead) {
  PackedModel model(GetParam());
  for (model::Parameter& row : model.table.rows) {
    row.trainable = true;
    row.of_files = row.packing;
    row.packing = {};
  }
  require_same_model(model.files, model.architecture, model.table);
  const WeightSource source = files_source(model.files, model.table);
  for (int i = 0; i < static_cast<int>(model.table.rows.size()); ++i) {
    const model::Parameter& row = model.table.row(i);
    if (row.of_files.is_dense()) continue;
    const std::vector<float> expected = numbers_of(GetParam(), row);
    for (const std::int64_t first :
         {std::int64_t{0}, std::int64_t{1}, 9 * row.shape[1] + 5, row.count() - 3}) {
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{300}, row.count()}) {
        std::vector<float> got(static_cast<std::size_t>(std::min(count, row.count() - first)));
        source.values(i, first, got);
        EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + first))
            << row.name << ", " << count << " from " << first;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedModels, testing::ValuesIn(tests::packed_names()),
                         [](const auto& of) { return of.param; });

struct Case {
  std::string name;
  Parts parts = {};

  friend void PrintTo(const Case& of, std::ostream* out) {
    *out << of.name << ", tp " << of.parts.tp;
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& name : tests::packed_names())
    for (const int tp : {1, 2})
      all.push_back({name, {.tp = tp}});
  return all;
}

class PackedModelsOn : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Parts& parts = GetParam().parts;
    if (!tests::can_have(world().size(), 0, parts)) GTEST_SKIP() << "too few ranks";
    const std::string why = model::why_not(PackedModel(GetParam().name).table, parts.tp);
    if (why.empty()) return;
    // 96 inputs of two ranks are not whole groups.
    EXPECT_EQ(GetParam().name, "words_4");
    EXPECT_NE(why.find("is packed in blocks of 32 numbers, some of which would be cut"),
              std::string::npos)
        << why;
    GTEST_SKIP() << why;
  }

  LoadedModel loaded(const PackedModel& model) const {
    return {model.architecture, plan::regroup(model.table, plan::Bucket::block, 1),
            GetParam().parts, world(), model.files};
  }
};

TEST_P(PackedModelsOn, AreUnpackedToTheSameBits) {
  const PackedModel of_files(GetParam().name);
  LoadedModel model = loaded(of_files);
  int num_packed = 0;
  for (int row = 0; row < static_cast<int>(model.whole.rows.size()); ++row) {
    const model::Parameter& own = model.table.row(row);
    if (own.packing.is_dense()) continue;
    ++num_packed;
    const int unit = model.shards.unit_of(row);
    model.shards.open(unit);
    const at::Tensor expected = own_part(own, numbers_of(GetParam().name, own)).to(at::kBFloat16);
    EXPECT_TRUE(at::equal(model.shards.weight({row, 1}), expected)) << own.name;
    model.shards.close(unit);
  }
  EXPECT_EQ(num_packed, num_matrices);
}

TEST_P(PackedModelsOn, HaveTheHashOfTheirFiles) {
  const PackedModel of_files(GetParam().name);
  const LoadedModel model = loaded(of_files);
  EXPECT_EQ(frozen_hash(model.shards), frozen_hash(of_files.files, model.whole, core::DType::bf16));
}

/// Queries, keys and values are read as one matrix, of which some may be packed.
TEST_P(PackedModelsOn, AreReadNextToWhatIsNotPacked) {
  if (GetParam().parts.tp > 1) GTEST_SKIP() << "as above";
  PackedModel mixed(GetParam().name);
  model::Parameter* keys = nullptr;
  for (model::Parameter& row : mixed.table.rows)
    if (row.name.ends_with("k_proj.weight")) keys = &row;
  keys->of_files = keys->packing;
  keys->packing = {};
  LoadedModel model = loaded(mixed);
  const int first = static_cast<int>(keys - mixed.table.rows.data()) - 1;
  model.shards.open(model.shards.unit_of(first));
  std::vector<at::Tensor> expected;
  for (int row = first; row < first + 3; ++row)
    expected.push_back(
        own_part(model.table.row(row), numbers_of(GetParam().name, model.table.row(row)))
            .to(at::kBFloat16));
  EXPECT_TRUE(at::equal(model.shards.weight({first, 3}), at::cat(expected)));
  model.shards.close(model.shards.unit_of(first));
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedModelsOn, testing::ValuesIn(cases()));

}  // namespace
}  // namespace finetune::base::packed_models_test
