// SPDX-License-Identifier: Apache-2.0
// The program itself beside the runs of tests/golden/train: twenty AdamW steps of torch,
// transformers and PEFT on the same model and samples. What metrics.jsonl says, and what is
// exported at the end.
#include <gtest/gtest.h>

#include "restart/job.hpp"
#include "support/golden.hpp"

namespace finetune::tests::reference_test {
namespace {

namespace fs = std::filesystem;

struct Reference {
  const char* name;
  const char* log;
  const char* final_tensors;
  const char* exported;
  std::vector<std::string> settings;
};

const Reference references[] = {
    {"Full", "full.json", "full_final.safetensors", "model.safetensors", {}},
    {"Lora",
     "lora.json",
     "lora_final/adapter_model.safetensors",
     "adapter_model.safetensors",
     {"adapter.name=lora"}},
    {"Qlora",
     "qlora_by_definition.json",
     "qlora_by_definition_final/adapter_model.safetensors",
     "adapter_model.safetensors",
     {"adapter.name=qlora"}}};

/// The reference's samples in their order, as `data.format = "tokens"` reads them.
std::string samples() {
  const auto files = weights::ModelFiles::open(golden("train/data.safetensors"));
  const auto ids = read_golden<std::int64_t>(files, "input_ids");
  const auto labels = read_golden<std::int64_t>(files, "labels");
  constexpr std::int64_t length = 32;
  std::string lines;
  for (std::int64_t first = 0; first < std::ssize(ids); first += length) {
    const auto row = [&](const std::vector<std::int64_t>& values) {
      return std::vector(values.begin() + first, values.begin() + first + length);
    };
    lines += core::Json{{"input_ids", row(ids)}, {"labels", row(labels)}}.dump() + '\n';
  }
  return lines;
}

std::vector<std::string> settings_of(const Reference& reference) {
  std::vector<std::string> settings = {
      "data.path=samples.jsonl",  "data.format=tokens",         "data.max_seq_length=32",
      "data.shuffle=false",       "precision.mode=32-true",     "optimizer.lr=1e-3",
      "optimizer.warmup_steps=4", "optimizer.min_lr_ratio=0.1", "optimizer.weight_decay=0.1",
      "train.max_steps=20",       "train.global_batch=4",       "train.micro_batch=2"};
  settings.insert(settings.end(), reference.settings.begin(), reference.settings.end());
  if (!reference.settings.empty())
    settings.push_back("adapter.path=" + golden("train/lora_init").string());
  return settings;
}

class ReferenceRun : public testing::TestWithParam<std::tuple<Reference, int>> {};

TEST_P(ReferenceRun, HasItsLossesNormsAndFinalWeights) {
  const auto& [reference, ranks] = GetParam();
  const Job job("reference." + std::string(reference.name) + std::to_string(ranks),
                settings_of(reference));
  write_file(job.folder() / "samples.jsonl", samples());
  const Outcome outcome = job.run(ranks);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();

  const core::Json log = core::read_json(golden("train") / reference.log, 1 << 20).at("log");
  const auto steps = job.steps();
  ASSERT_EQ(steps.size(), log.size());
  for (std::size_t i = 0; i < log.size(); ++i) {
    const auto expected = [&](const char* name) { return log[i].at(name).get<double>(); };
    const auto got = [&](const char* name) { return steps[i].at(name).get<double>(); };
    EXPECT_NEAR(got("loss"), expected("loss"), 1e-5) << "step " << i;
    EXPECT_NEAR(got("grad_norm"), expected("grad_norm"), 1e-5 * expected("grad_norm"))
        << "step " << i;
    EXPECT_NEAR(got("lr"), expected("lr"), 1e-12) << "step " << i;
  }

  EXPECT_FALSE(job.exported().empty());
  const auto exported = weights::ModelFiles::open(job.folder() / "exported" / reference.exported);
  const auto last = weights::ModelFiles::open(golden("train") / reference.final_tensors);
  EXPECT_EQ(exported.names(), last.names());
  for (const std::string& name : last.names()) {
    EXPECT_LT(
        largest_difference(read_golden<float>(exported, name), read_golden<float>(last, name)),
        2e-5)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, ReferenceRun,
                         testing::Combine(testing::ValuesIn(references), testing::Values(1, 3)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + std::string("OnRanks") +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace finetune::tests::reference_test
