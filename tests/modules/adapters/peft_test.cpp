// SPDX-License-Identifier: Apache-2.0
// PEFT's folders of tests/golden/train through the loader of models, and merged. Tolerances and
// origin: tests/golden/README.md.
#include <gtest/gtest.h>

#include "base/merge.hpp"
#include "model/rope.hpp"
#include "registry.hpp"
#include "support/folders.hpp"
#include "support/golden.hpp"
#include "support/ranks.hpp"
#include "train/infer/loaded_model.hpp"
#include "train/input/described_model.hpp"
#include "weights/peft.hpp"

namespace finetune::tests::peft_test {
namespace {

/// Logits of the golden text, [2, 32, V].
std::vector<float> logits_of(train::LoadedModel& loaded) {
  const auto files = weights::ModelFiles::open(golden("train/lora_logits.safetensors"));
  auto ids = read_golden<std::int64_t>(files, "input_ids");
  const at::Tensor logits =
      train::logits(loaded.engine(), at::from_blob(ids.data(), {64}, at::kLong),
                    model::make_sequence(loaded.architecture(), 2, 32), train::Positions::all)
          .contiguous();
  return {logits.const_data_ptr<float>(), logits.const_data_ptr<float>() + logits.numel()};
}

std::vector<float> logits_of(const std::filesystem::path& adapter) {
  train::LoadedModel loaded(golden("models/llama"), modules::registry(), world(), core::DType::f32,
                            adapter);
  return logits_of(loaded);
}

/// Reads, of each rank, a model of which the weights' file is gone then.
std::unique_ptr<train::LoadedModel> loaded_and_removed(const std::string& name,
                                                       const std::filesystem::path& adapter) {
  namespace fs = std::filesystem;
  const fs::path folder = build_folder() / "adapters" / (name + std::to_string(world().size()));
  if (world().is_root()) {
    fs::remove_all(folder);
    fs::create_directories(folder.parent_path());
    fs::copy(golden("models/llama"), folder);
  }
  world().barrier();
  auto loaded = std::make_unique<train::LoadedModel>(
      folder, modules::registry(), shard::one_copy(world()),
      train::inference_options(core::DType::f32, world(), comm::UseOfGpus::never),
      train::WeightUse::read, adapter);
  world().barrier();
  if (world().is_root()) fs::remove(folder / "model.safetensors");
  return loaded;
}

TEST(Adapters, AreSwitchedWithoutReadingTheModelAgain) {
  const auto loaded = loaded_and_removed("switched", {});
  EXPECT_EQ(logits_of(*loaded), logits_of(""));
  for (const char* adapter : {"train/lora_final", "adapters/dora", "train/lora_init"}) {
    loaded->use_adapter(golden(adapter));
    EXPECT_EQ(logits_of(*loaded), logits_of(golden(adapter))) << adapter;
  }
  loaded->use_adapter({});
  EXPECT_EQ(logits_of(*loaded), logits_of(""));
}

TEST(Adapters, StayWhereAnotherCannotBeUsed) {
  const auto loaded = loaded_and_removed("stayed", golden("train/lora_final"));
  const auto before = logits_of(*loaded);
  EXPECT_THROW(loaded->use_adapter("none"), core::Error);
  // Modules that it trained in full take the place of the model's, which would be needed again.
  EXPECT_THROW(loaded->use_adapter(golden("adapters/mixed")), core::Error);
  ASSERT_TRUE(loaded->is_usable());
  EXPECT_EQ(logits_of(*loaded), before);
}

TEST(PeftGolden, TrainedAdapterGivesPeftsLogits) {
  const auto expected = read_golden<float>(
      weights::ModelFiles::open(golden("train/lora_logits.safetensors")), "logits");
  EXPECT_LT(largest_difference(logits_of(golden("train/lora_final")), expected), 3e-5);
  // What it began with adds nothing yet.
  EXPECT_GT(largest_difference(logits_of(golden("train/lora_init")), expected), 0.1);
}

TEST(PeftGolden, MergedWeightsArePefts) {
  auto described = train::describe_model({}, golden("models/llama"), modules::registry());
  const auto adapter =
      weights::PeftAdapter::open(golden("train/lora_final"), modules::registry().adapters);
  model::AdapterSettings settings = adapter.settings();
  settings.name = "lora";
  train::rewrite_for(settings, "test", modules::registry(), described.parameters);
  const model::ParameterTable& table = described.parameters;
  const auto files = weights::ModelFiles::open(golden("models/llama"));
  base::Merge merge(
      files, table,
      [&](const model::Parameter& row, std::int64_t first, std::span<float> target) {
        adapter.read(row, first, target);
      },
      std::vector<core::DType>(table.rows.size(), core::DType::bf16), base::MergeInto::trained);
  const auto merged = weights::ModelFiles::open(golden("train/lora_merged.safetensors"));
  double largest = 0, rounding = 0;
  for (int i = 0; i < static_cast<int>(table.rows.size()); ++i) {
    const model::Parameter& row = table.row(i);
    if (row.adapts >= 0) continue;
    std::vector<float> values(static_cast<std::size_t>(row.count()));
    // In two pieces, as an export reads it.
    const std::size_t half = values.size() / 2;
    merge.read(i, 0, std::span(values).first(half));
    merge.read(i, static_cast<std::int64_t>(half), std::span(values).subspan(half));
    const auto expected = read_golden<float>(merged.contains(row.name) ? merged : files, row.name);
    largest = std::max(largest, largest_difference(values, expected));
    if (!row.adapted.exists()) continue;
    for (const float value : values)
      rounding = std::max(
          rounding, std::abs(double{value} - core::bf16_to_float(core::float_to_bf16(value))));
  }
  EXPECT_LT(largest, 2e-6);
  EXPECT_EQ(merge.report().num_merged, std::ssize(merged.names()));
  EXPECT_EQ(merge.report().largest_error, rounding);
  EXPECT_FALSE(merge.report().is_quantised);
  EXPECT_GT(merge.report().added_squares, 0);
}

}  // namespace
}  // namespace finetune::tests::peft_test
