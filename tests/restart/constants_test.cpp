// SPDX-License-Identifier: Apache-2.0
// Constants of a router in fp32 among weights in bf16: the same bits after training, a restart on
// other ranks and an export.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "restart/job.hpp"
#include "weights/model_files.hpp"
#include "weights/safetensors_writer.hpp"

namespace finetune::tests::constants_test {
namespace {

namespace fs = std::filesystem;
constexpr int exit_resubmit = 75;

bool is_constant(const std::string& name) {
  return name.ends_with("e_score_correction_bias");
}

std::vector<std::byte> bytes_of(const weights::ModelFiles& files, const std::string& name,
                                core::DType dtype) {
  const auto& shape = files.entry(name).shape;
  const std::int64_t count = core::num_elements(shape);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * core::size_bytes(dtype)));
  files.read({.name = name, .shape = shape, .dtype = dtype, .offset = 0, .count = count}, bytes);
  return bytes;
}

/// Rewrites a model's weights in bf16, all but the constants.
void narrow(const fs::path& folder) {
  const fs::path narrowed = folder / "narrow.safetensors";
  {
    const auto files = weights::ModelFiles::open(folder / "model.safetensors");
    std::vector<weights::TensorSpec> tensors;
    for (const bool constants : {true, false})
      for (const std::string& name : files.names())
        if (is_constant(name) == constants)
          tensors.push_back(
              {name, constants ? core::DType::f32 : core::DType::bf16, files.entry(name).shape});
    weights::SafetensorsWriter writer(narrowed, tensors);
    for (const weights::TensorSpec& tensor : tensors) {
      const auto values = bytes_of(files, tensor.name, core::DType::f32);
      std::vector<std::byte> written(static_cast<std::size_t>(tensor.size_bytes()));
      core::convert(core::DType::f32, values, tensor.dtype, written);
      writer.write(tensor.name, written);
    }
    writer.finish();
  }
  fs::rename(narrowed, folder / "model.safetensors");
}

Job narrow_job(const std::string& family, const std::string& name, const Words& more) {
  const Words settings = with(short_run("bf16-mixed", 4), {"train.determinism=topology"});
  Job job = family_job(family, "constants." + family + "." + name, with(settings, more));
  narrow(job.model());
  return job;
}

class Constants : public testing::TestWithParam<const char*> {};

TEST_P(Constants, AreExportedAsTheyWereRead) {
  const Job straight = narrow_job(GetParam(), "straight", {});
  const Outcome whole = straight.run(1);
  ASSERT_EQ(whole.exit_code, 0) << whole.text();
  const Job job = narrow_job(GetParam(), "stopped", {});
  ASSERT_EQ(job.run(2, {"train.stop_after_steps=2"}).exit_code, exit_resubmit);
  const Outcome second = job.run(3);
  ASSERT_EQ(second.exit_code, 0) << second.text();
  EXPECT_TRUE(job.exported() == straight.exported());

  const auto before = weights::ModelFiles::open(job.model() / "model.safetensors");
  const auto after = weights::ModelFiles::open(job.folder() / "exported");
  int num_constants = 0;
  for (const std::string& name : before.names()) {
    ASSERT_TRUE(after.contains(name)) << name;
    EXPECT_EQ(after.entry(name).dtype, before.entry(name).dtype) << name;
    if (!is_constant(name)) continue;
    ++num_constants;
    EXPECT_EQ(bytes_of(after, name, core::DType::f32), bytes_of(before, name, core::DType::f32));
  }
  EXPECT_GT(num_constants, 0);
}

/// An adapter on all matrices trains, restarts and is merged.
TEST_P(Constants, StayUnderAnAdapterOnAllMatrices) {
  const Job job =
      narrow_job(GetParam(), "lora", {"adapter.name=lora", "adapter.target_modules=all-linear"});
  ASSERT_EQ(job.run(2, {"train.stop_after_steps=2"}).exit_code, exit_resubmit);
  const Outcome second = job.run(1);
  ASSERT_EQ(second.exit_code, 0) << second.text();
  const Outcome merged = run_finetune(1, {"export", "output", "merged", "--merge"}, job.folder());
  ASSERT_EQ(merged.exit_code, 0) << merged.text();
  const auto before = weights::ModelFiles::open(job.model() / "model.safetensors");
  const auto after = weights::ModelFiles::open(job.folder() / "merged");
  for (const std::string& name : before.names())
    if (is_constant(name)) {
      EXPECT_EQ(after.entry(name).dtype, core::DType::f32);
      EXPECT_EQ(bytes_of(after, name, core::DType::f32), bytes_of(before, name, core::DType::f32));
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Constants,
                         testing::Values("deepseek_v3", "ernie4_5_moe", "nemotron_h"));

}  // namespace
}  // namespace finetune::tests::constants_test
