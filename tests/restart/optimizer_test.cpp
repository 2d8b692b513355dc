// SPDX-License-Identifier: Apache-2.0
// Runs with other optimizers than the default: stopped and moved to other ranks, refused where
// their states would be others, and with moments of eight bits as good as in fp32.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "core/dtype.hpp"
#include "restart/job.hpp"

namespace finetune::tests::optimizer_test {
namespace {

constexpr int exit_resubmit = 75;
/// Three epochs, a save before and one after the stop, a validation between them.
constexpr int num_steps = 12;

using Settings = std::vector<std::string>;

Settings with(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

const Settings lora = {"adapter.name=lora", "adapter.lora_r=4", "adapter.lora_dropout=0.1"};
const Settings in_8bit = {"optimizer.name=adamw8bit"};
const Settings by_lion = {"optimizer.name=lion"};
const Settings by_adafactor = {"optimizer.name=adafactor"};
const Settings by_muon = {"optimizer.name=muon"};
const Settings lion_in_8bit = {"optimizer.name=lion8bit"};
const Settings schedule_free = {"optimizer.name=schedule_free", "optimizer.schedule=constant"};

/// Ranks of a start, and what it has of its own.
struct Start {
  int ranks;
  Settings settings = {};
};

struct Case {
  std::string name;
  Settings settings;
  Start first, second;
};

/// The same bits need as many threads a rank, whatever cores one rank alone may use.
class OfOneThread : public testing::Test {
 protected:
  void SetUp() override { ::setenv("OMP_NUM_THREADS", "1", 1); }
  void TearDown() override { ::unsetenv("OMP_NUM_THREADS"); }
};
class OtherOptimizer : public OfOneThread, public testing::WithParamInterface<Case> {};

void run(const Job& job, const Start& start, int exit_code) {
  const Outcome outcome = job.run(start.ranks, start.settings);
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.text();
}

TEST_P(OtherOptimizer, OfAMovedRunEndWithTheBitsOfOneThatStayed) {
  const Case& param = GetParam();
  const Settings settings =
      with(param.settings, {"train.max_steps=" + std::to_string(num_steps),
                            "train.determinism=topology", "train.check_replicas=true"});
  const Job straight("optimizer.straight." + param.name, settings);
  run(straight, {2}, 0);
  const Job moved("optimizer.moved." + param.name, settings);
  run(moved, {param.first.ranks, with(param.first.settings, {"train.stop_after_steps=7"})},
      exit_resubmit);
  run(moved, param.second, 0);
  EXPECT_EQ(moved.steps().size(), std::size_t{num_steps});
  expect_same_metrics(moved, straight);
  EXPECT_TRUE(moved.exported() == straight.exported());
  const Outcome verified = run_finetune(1, {"verify", "output"}, moved.folder());
  EXPECT_EQ(verified.exit_code, 0) << verified.text();
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, OtherOptimizer,
    testing::Values(Case{"Fp32",
                         with(short_run("32-true"), in_8bit),
                         {4, {"parallel.sharding=HYBRID_SHARD", "parallel.dp_shard=2"}},
                         {3}},
                    Case{"Bf16Masters",
                         with(short_run("bf16-true"), in_8bit),
                         {1},
                         {2, {"parallel.sharding=NO_SHARD"}}},
                    Case{"LoraInBf16",
                         with(short_run("bf16-mixed"), with(lora, in_8bit)),
                         {1},
                         {4, {"parallel.sharding=SHARD_GRAD_OP", "parallel.bucket=LAYER"}}},
                    Case{"LoraInFp16", with(short_run("16-mixed"), with(lora, in_8bit)), {3}, {1}},
                    Case{"LionInFp32",
                         with(short_run("32-true"), by_lion),
                         {4, {"parallel.sharding=HYBRID_SHARD", "parallel.dp_shard=2"}},
                         {3}},
                    Case{"LionInBf16",
                         with(short_run("bf16-true"), by_lion),
                         {1},
                         {2, {"parallel.sharding=NO_SHARD"}}},
                    Case{"Lion8bitInFp32",
                         with(short_run("32-true"), lion_in_8bit),
                         {4, {"parallel.sharding=HYBRID_SHARD", "parallel.dp_shard=2"}},
                         {3}},
                    Case{"Lion8bitOfLora",
                         with(short_run("bf16-true"), with(lora, lion_in_8bit)),
                         {1},
                         {3, {"parallel.sharding=SHARD_GRAD_OP", "parallel.bucket=LAYER"}}},
                    Case{"MuonInFp32",
                         with(short_run("32-true"), by_muon),
                         {4, {"parallel.sharding=HYBRID_SHARD", "parallel.dp_shard=2"}},
                         {3}},
                    Case{"MuonInBf16",
                         with(short_run("bf16-true"), by_muon),
                         {1},
                         {2, {"parallel.sharding=NO_SHARD"}}},
                    Case{"MuonOfLora",
                         with(short_run("bf16-mixed"), with(lora, by_muon)),
                         {3},
                         {4, {"parallel.sharding=SHARD_GRAD_OP", "parallel.bucket=LAYER"}}},
                    Case{"AdafactorInFp32",
                         with(short_run("32-true"), by_adafactor),
                         {4, {"parallel.sharding=HYBRID_SHARD", "parallel.dp_shard=2"}},
                         {3}},
                    Case{"AdafactorInBf16",
                         with(short_run("bf16-true"), by_adafactor),
                         {1},
                         {2, {"parallel.sharding=NO_SHARD"}}},
                    Case{"AdafactorOfLora",
                         with(short_run("bf16-mixed"), with(lora, by_adafactor)),
                         {3},
                         {4, {"parallel.sharding=SHARD_GRAD_OP", "parallel.bucket=LAYER"}}},
                    Case{"AdafactorOfPissa",
                         with(short_run("bf16-mixed"),
                              with(lora, with(by_adafactor, {"adapter.init=pissa"}))),
                         {3},
                         {1}},
                    Case{"ScheduleFreeInFp32",
                         with(short_run("32-true"), schedule_free),
                         {4, {"parallel.sharding=HYBRID_SHARD", "parallel.dp_shard=2"}},
                         {3}},
                    Case{"ScheduleFreeInBf16",
                         with(short_run("bf16-true"), schedule_free),
                         {1},
                         {2, {"parallel.sharding=NO_SHARD"}}},
                    Case{"ScheduleFreeOfLora",
                         with(short_run("bf16-mixed"), with(lora, schedule_free)),
                         {3},
                         {1}}),
    [](const auto& info) { return info.param.name; });

void expect_refused(const Outcome& outcome, const std::string& message) {
  EXPECT_EQ(outcome.exit_code, 78) << outcome.text();
  EXPECT_EQ(count(outcome.err, message), 1) << message << "\n" << outcome.err;
}

TEST(Optimizer, MayNotChangeWithinARunNorItsBlocks) {
  const Job job("optimizer.refused", with(short_run("32-true"), {"train.stop_after_steps=2"}));
  run(job, {1, in_8bit}, exit_resubmit);
  expect_refused(job.run(2),
                 "error: job.toml: optimizer.name = \"adamw\", the run in output/step-0000000002 "
                 "has \"adamw8bit\" (its moments are stored differently). Restore it, or set "
                 "another train.output to begin a new run.\n");
  expect_refused(job.run(2, with(in_8bit, {"parallel.bucket=LAYER"})),
                 "error: job.toml: parallel.bucket = \"LAYER\", the run in "
                 "output/step-0000000002 has \"BLOCK\" (the blocks of adamw8bit's moments are cut "
                 "by it). Restore it, or set another train.output to begin a new run.\n");
  run(job, {2, in_8bit}, exit_resubmit);
}

/// On two ranks, and of three the last has nothing to compute.
TEST_F(OfOneThread, UpdatesInBackwardWithTheBitsOfUpdatesAfterIt) {
  for (const std::string name : {"adamw", "adafactor", "muon"}) {
    Settings settings =
        with(short_run("bf16-mixed"),
             {"optimizer.name=" + name, "optimizer.max_grad_norm=0", "train.global_batch=8",
              "train.micro_batch=4", "train.determinism=topology", "train.check_replicas=true"});
    for (const char* other :
         {"optimizer.max_grad_norm=0.5", "train.global_batch=5", "train.micro_batch=2"})
      std::erase(settings, other);
    const Job straight("optimizer.behind." + name, settings);
    run(straight, {2}, 0);
    settings.emplace_back("optimizer.in_backward=true");
    const Job moved("optimizer.in_backward." + name, settings);
    run(moved, {2, {"train.stop_after_steps=7"}}, exit_resubmit);
    run(moved, {3}, 0);
    expect_same_metrics(moved, straight);
    EXPECT_TRUE(moved.exported() == straight.exported()) << name;
  }
}

TEST(Optimizer, IsPlannedAsItIs) {
  const Job job("optimizer.planned", short_run("32-true"));
  const auto plan = [&](const Settings& more) {
    const Outcome outcome = run_finetune(1, with({"plan", "job.toml"}, more), job.folder());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    return outcome.out;
  };
  EXPECT_EQ(count(plan({}), "AdamW moments, fp32"), 1);
  EXPECT_EQ(count(plan(in_8bit), "AdamW moments, 8-bit"), 1);
  EXPECT_EQ(count(plan(by_adafactor), "Adafactor moments, rows and columns, fp32"), 1);
  EXPECT_EQ(count(plan(by_lion), "Lion moment, fp32"), 1);
  EXPECT_EQ(count(plan(lion_in_8bit), "Lion moment, 8-bit"), 1);
  const std::string free = plan(with(schedule_free, {"precision.mode=32-true"}));
  EXPECT_EQ(count(free, "z and second moment, fp32"), 1) << free;
  EXPECT_EQ(count(free, "copy to evaluate with, fp32"), 1);
  EXPECT_EQ(count(plan({"train.ema_decay=0.5"}), "mean of weights, fp32"), 1);
}

/// Bytes of the moments in the manifest of a checkpoint.
std::int64_t moment_bytes(const Job& job) {
  const core::Json manifest =
      core::parse_json(read_file(job.output() / "step-0000000020/MANIFEST.json"), "manifest");
  std::int64_t bytes = 0;
  for (const core::Json& tensor : manifest.at("tensors")) {
    if (!tensor.at(0).get<std::string>().starts_with("exp_avg")) continue;
    std::int64_t size = core::size_bytes(*core::parse_dtype(tensor.at(2).get<std::string>()));
    for (const core::Json& dim : tensor.at(3))
      size *= dim.get<std::int64_t>();
    bytes += size;
  }
  return bytes;
}

TEST(Optimizer, With8BitsLearnsAlmostTheSameInAQuarterOfTheBytes) {
  const Job wide("optimizer.wide", short_run("32-true"));
  run(wide, {2}, 0);
  const Job narrow("optimizer.narrow", with(short_run("32-true"), in_8bit));
  run(narrow, {2}, 0);

  const auto expected = wide.steps();
  const auto steps = narrow.steps();
  ASSERT_EQ(steps.size(), expected.size());
  const auto loss = [](const core::Json& row) { return row.at("loss").get<double>(); };
  EXPECT_LT(loss(expected.back()), loss(expected.front()) - 1) << "there is something to learn";
  for (std::size_t i = 0; i < steps.size(); ++i)
    EXPECT_NEAR(loss(steps[i]), loss(expected[i]), 0.005) << steps[i];

  const double part =
      static_cast<double>(moment_bytes(narrow)) / static_cast<double>(moment_bytes(wide));
  EXPECT_NEAR(part, (2 + 8.0 / 256) / 8, 1e-4);
}

}  // namespace
}  // namespace finetune::tests::optimizer_test
