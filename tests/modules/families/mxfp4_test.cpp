// SPDX-License-Identifier: Apache-2.0
// gpt-oss as it was published, with its experts in MXFP4, against what transformers makes of it.
#include <gtest/gtest.h>

#include "base/initial_weights.hpp"
#include "model/rope.hpp"
#include "modules/families/logits.hpp"
#include "registry.hpp"
#include "support/golden.hpp"
#include "support/ranks.hpp"
#include "train/infer/generate.hpp"
#include "train/infer/loaded_model.hpp"
#include "train/input/described_model.hpp"

namespace finetune::mxfp4_test {
namespace {

std::filesystem::path model_folder() {
  return tests::golden("models/gpt_oss_mxfp4");
}

weights::ModelFiles case_files() {
  return weights::ModelFiles::open(tests::golden("cases/gpt_oss_mxfp4.safetensors"));
}

TEST(ExpertsInMxfp4, HaveTheLogitsOfTransformers) {
  constexpr std::int64_t batch = 2, length = 32;
  const auto files = case_files();
  train::LoadedModel loaded(model_folder(), modules::registry(), tests::world(), core::DType::f32);
  const auto ids = tests::read_golden<std::int64_t>(files, "input_ids");
  const at::Tensor logits =
      train::logits(loaded.engine(), at::tensor(at::ArrayRef<std::int64_t>(ids), at::kLong),
                    model::make_sequence(loaded.architecture(), batch, length),
                    train::Positions::all)
          .contiguous();
  tests::expect_logits({logits.const_data_ptr<float>(), static_cast<std::size_t>(logits.numel())},
                       files);
}

/// Of any elements, which begin and end within experts and within rows of them.
TEST(ExpertsInMxfp4, AreTheNumbersThatTransformersUnpacks) {
  const auto expected_files = case_files();
  const auto files = weights::ModelFiles::open(model_folder());
  train::DescribedModel described = train::describe_model({}, model_folder(), modules::registry());
  train::unpack_trained(described.quantization, "deck", model_folder(), described.parameters);
  const base::WeightSource source = base::files_source(files, described.parameters);
  int num_compared = 0;
  for (int i = 0; i < static_cast<int>(described.parameters.rows.size()); ++i) {
    const model::Parameter& row = described.parameters.row(i);
    EXPECT_TRUE(row.trainable);
    if (!expected_files.contains("expert." + row.name)) continue;
    ++num_compared;
    const auto expected = tests::read_golden<float>(expected_files, "expert." + row.name);
    ASSERT_EQ(std::ssize(expected), row.count());
    for (const std::int64_t first : {0L, 1L, 4099L, row.count() - 3}) {
      for (const std::int64_t count : {1L, 33L, 5000L, row.count()}) {
        std::vector<float> got(static_cast<std::size_t>(std::min(count, row.count() - first)));
        source.values(i, first, got);
        EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + first))
            << row.name << ", " << count << " from " << first;
      }
    }
  }
  EXPECT_EQ(num_compared, 2);
}

TEST(ExpertsInMxfp4, AreFrozenAndPackedUnderAnAdapter) {
  const train::DescribedModel described =
      train::describe_model({}, model_folder(), modules::registry());
  std::int64_t num_packed = 0;
  for (const model::Parameter& row : described.parameters.rows) {
    const bool is_packed = row.packing.kind == model::Packing::Kind::mxfp4;
    EXPECT_EQ(is_packed, row.role == model::Role::expert) << row.name;
    EXPECT_EQ(row.trainable, !is_packed) << row.name;
    num_packed += is_packed ? 1 : 0;
  }
  EXPECT_EQ(num_packed, 4);
}

}  // namespace
}  // namespace finetune::mxfp4_test
