// SPDX-License-Identifier: Apache-2.0
// Every family through a whole run: trained, stopped, continued on other ranks, exported, and its
// export loaded by transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

#include "model/rope.hpp"
#include "registry.hpp"
#include "restart/job.hpp"
#include "support/families.hpp"
#include "support/folders.hpp"
#include "train/infer/loaded_model.hpp"

namespace finetune::tests::families_test {
namespace {

namespace fs = std::filesystem;
constexpr int exit_resubmit = 75;

std::string name_of(const std::string& family, const std::string& part) {
  return "families." + family + "." + part;
}

std::vector<std::string> settings_of(const std::string& family) {
  std::vector<std::string> settings = short_run("32-true", 4);
  settings.push_back("train.determinism=topology");
  settings.push_back("data.packing=true");
  if (family == "qwen3_moe") settings.push_back("model.router_aux_loss_coef=0.1");
  return settings;
}

/// The same bits need as many threads a rank, whatever cores one rank alone may use.
class Families : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ::setenv("OMP_NUM_THREADS", "1", 1); }
  void TearDown() override { ::unsetenv("OMP_NUM_THREADS"); }
};

TEST_P(Families, GoOnWithTheSameBitsOnOtherRanks) {
  const std::string family = GetParam();
  const Job straight = family_job(family, name_of(family, "straight"), settings_of(family));
  const Outcome whole = straight.run(1);
  ASSERT_EQ(whole.exit_code, 0) << whole.text();
  const Job job = family_job(family, name_of(family, "stopped"), settings_of(family));
  const Outcome first = job.run(2, {"train.stop_after_steps=2"});
  ASSERT_EQ(first.exit_code, exit_resubmit) << first.text();
  const Outcome second = job.run(3);
  ASSERT_EQ(second.exit_code, 0) << second.text();
  expect_same_metrics(job, straight);
  EXPECT_EQ(job.steps().back().contains("balance_loss"), family == "qwen3_moe");
  EXPECT_TRUE(job.exported() == straight.exported());
}

/// Logits of an export by this program, as raw fp32 beside the ids' number.
void write_logits(const fs::path& folder, const fs::path& file) {
  train::LoadedModel loaded(folder, modules::registry(), {}, core::DType::f32);
  constexpr std::int64_t length = 40;
  const at::Tensor ids = at::arange(length, at::kLong).mul(37).remainder(500);
  const at::Tensor logits =
      train::logits(loaded.engine(), ids, model::make_sequence(loaded.architecture(), 1, length),
                    train::Positions::all)
          .contiguous();
  std::ofstream out(file, std::ios::binary);
  out.write(static_cast<const char*>(logits.const_data_ptr()),
            static_cast<std::streamsize>(logits.nbytes()));
}

TEST_P(Families, AreExportedAsTransformersLoadsThem) {
  const std::string family = GetParam();
  if (family == "internlm3" || family == "minicpm")
    GTEST_SKIP() << "transformers reads it by code that comes with the models";
  const Job job = family_job(family, name_of(family, "export"), settings_of(family));
  if (run_program({"env", "python3", "-c", "import torch, transformers"}, job.folder()).exit_code !=
      0)
    GTEST_SKIP() << "no Python with torch and transformers here";
  const Outcome outcome = job.run(2, {"train.max_steps=2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  ASSERT_FALSE(job.exported().empty());
  write_logits(job.folder() / "exported", job.folder() / "logits.f32");
  const Outcome compared =
      run_program({"env", "python3", source_folder() / "tests/restart/load_with_transformers.py",
                   "exported", "logits.f32"},
                  job.folder());
  EXPECT_EQ(compared.exit_code, 0) << compared.text();
}

/// Each has a part of its own: an activation with weights, a layout of layers or tensors, another
/// norm.
constexpr std::array apart = {
    "apertus",    "deepseek_v2", "deepseek_v3", "ernie4_5_moe", "glm4_moe",    "minimax_m2",
    "cohere2",    "gemma3",      "gemma4_a4b",  "gemma4_e2b",   "gemma4_text", "gpt_oss",
    "glm4",       "gpt2",        "gpt_neox",    "llama4",       "llama_tied",  "minicpm",
    "ministral3", "nemotron",    "nemotron_h",  "olmo2",        "olmoe",       "phi3",
    "qwen2_moe",  "qwen3_5",     "qwen3_5_moe", "qwen3_moe",    "qwen3_next",  "starcoder2"};

std::vector<const char*> alike() {
  std::vector<const char*> others;
  for (const std::string_view family : tests::golden_models)
    if (std::ranges::find(apart, family) == apart.end()) others.push_back(family.data());
  return others;
}

std::string name_of_info(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}

INSTANTIATE_TEST_SUITE_P(Apart, Families, testing::ValuesIn(apart), name_of_info);
INSTANTIATE_TEST_SUITE_P(Alike, Families, testing::ValuesIn(alike()), name_of_info);

}  // namespace
}  // namespace finetune::tests::families_test
