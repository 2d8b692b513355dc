// SPDX-License-Identifier: Apache-2.0
// A run that was stopped or killed and started again ends with the bits of one that was not.
#include <gtest/gtest.h>

#include <tuple>

#include "restart/job.hpp"

namespace finetune::tests::bits_test {
namespace {

namespace fs = std::filesystem;

constexpr int exit_resubmit = 75;

using Parameters = std::tuple<int, std::string>;

class StoppedRun : public testing::TestWithParam<Parameters> {};

TEST_P(StoppedRun, EndsWithTheBitsOfTheUninterruptedRun) {
  const auto& [ranks, precision] = GetParam();
  const std::string name = precision + ".r" + std::to_string(ranks);
  const Job straight("straight." + name, short_run(precision));
  const Job stopped("stopped." + name, short_run(precision));

  const Outcome whole = straight.run(ranks);
  EXPECT_EQ(whole.exit_code, 0) << whole.text();
  const Outcome first = stopped.run(ranks, {"train.stop_after_steps=10"});
  EXPECT_EQ(first.exit_code, exit_resubmit) << first.text();
  EXPECT_EQ(stopped.steps().size(), 10u);
  const Outcome second = stopped.run(ranks, {"train.stop_after_steps=10"});
  EXPECT_EQ(second.exit_code, 0) << second.text();
  EXPECT_EQ(count(second.out, "continues from output/step-0000000010 (step 10 of 20)"), 1)
      << second.text();

  EXPECT_EQ(stopped.steps().size(), 20u);
  expect_same_metrics(stopped, straight);
  EXPECT_TRUE(stopped.exported() == straight.exported());
  EXPECT_TRUE(stopped.checkpoint_bytes(20) == straight.checkpoint_bytes(20));
}

std::string name_of(const testing::TestParamInfo<Parameters>& info) {
  const auto& [ranks, precision] = info.param;
  const std::string name = precision == "32-true"      ? "Fp32"
                           : precision == "bf16-mixed" ? "Bf16"
                           : precision == "fp8-mixed"  ? "Fp8"
                                                       : "Bf16True";
  return name + "On" + std::to_string(ranks);
}

INSTANTIATE_TEST_SUITE_P(Precisions, StoppedRun,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::Values("32-true", "bf16-mixed")),
                         name_of);
// Its roundings depend on the step, which a restart has to carry on.
INSTANTIATE_TEST_SUITE_P(StochasticRounding, StoppedRun,
                         testing::Combine(testing::Values(2), testing::Values("bf16-true")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(ProductsOfEightBits, StoppedRun,
                         testing::Combine(testing::Values(2), testing::Values("fp8-mixed")),
                         name_of);

TEST(Restart, OfAFinishedRunDoesNothing) {
  const Job job("finished", short_run("32-true"));
  EXPECT_EQ(job.run(2).exit_code, 0);
  const std::string metrics = read_file(job.output() / "metrics.jsonl");

  const Outcome again = job.run(2);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_EQ(count(again.out, "nothing left to do: all 20 steps are done"), 1) << again.text();
  EXPECT_EQ(read_file(job.output() / "metrics.jsonl"), metrics);
}

TEST(Restart, OnOtherNumbersOfRanksFollowsTheSameLosses) {
  const Job straight("ranks.straight", short_run("32-true"));
  EXPECT_EQ(straight.run(2).exit_code, 0);
  const Job moved("ranks.moved", short_run("32-true"));
  EXPECT_EQ(moved.run(2, {"train.stop_after_steps=7"}).exit_code, exit_resubmit);
  EXPECT_EQ(moved.run(3, {"train.stop_after_steps=7"}).exit_code, exit_resubmit);
  EXPECT_EQ(moved.run(1).exit_code, 0);

  const auto rows = moved.metrics();
  const auto expected = straight.metrics();
  ASSERT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const char* name = rows[i].contains("loss") ? "loss" : "validation_loss";
    EXPECT_EQ(rows[i].at("step"), expected[i].at("step"));
    EXPECT_NEAR(rows[i].at(name).get<double>(), expected[i].at(name).get<double>(), 1e-5)
        << rows[i];
  }
}

// With fixed-point sums the numbers do not depend on who computes what, nor on how the state was
// cut.
TEST(Restart, InTopologyModeAnyChainOfRanksAndStrategiesEndsWithTheSameBits) {
  ::setenv("OMP_NUM_THREADS", "1", 1);
  for (const std::string precision : {"32-true", "bf16-mixed", "bf16-true", "fp8-mixed"}) {
    std::vector<std::string> settings = short_run(precision);
    settings.emplace_back("train.determinism=topology");
    const Job straight("chain.straight." + precision, settings);
    EXPECT_EQ(straight.run(2).exit_code, 0);
    const Job chain("chain.moved." + precision, settings);
    const std::vector<std::pair<int, std::vector<std::string>>> starts = {
        {1, {}},
        {2, {"parallel.sharding=FULL_SHARD", "checkpoint.files=rank"}},
        {4, {"parallel.sharding=HYBRID_SHARD", "parallel.dp_shard=2"}},
        {3, {"parallel.sharding=NO_SHARD"}},
        {1, {}}};
    int step = 0;
    for (const auto& [ranks, more] : starts) {
      std::vector<std::string> arguments = more;
      arguments.emplace_back("train.stop_after_steps=4");
      const Outcome outcome = chain.run(ranks, arguments);
      EXPECT_EQ(outcome.exit_code, step == 16 ? 0 : exit_resubmit) << outcome.text();
      EXPECT_EQ(count(outcome.out, "continues from output/step-"), step == 0 ? 0 : 1);
      step += 4;
    }
    expect_same_metrics(chain, straight);
    EXPECT_TRUE(chain.exported() == straight.exported());
  }
  ::unsetenv("OMP_NUM_THREADS");
}

TEST(Restart, WithProductsOfEightBitsFollowsTheLossesOfBf16) {
  const Job narrow("fp8.losses", short_run("fp8-mixed"));
  const Job wide("fp8.reference", short_run("bf16-mixed"));
  EXPECT_EQ(narrow.run(2).exit_code, 0);
  EXPECT_EQ(wide.run(2).exit_code, 0);
  const auto rows = narrow.steps(), expected = wide.steps();
  ASSERT_EQ(rows.size(), 20u);
  int num_equal = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double loss = rows[i].at("loss").get<double>();
    const double wanted = expected[i].at("loss").get<double>();
    EXPECT_NEAR(loss, wanted, 0.02 * wanted) << "step " << i + 1;
    num_equal += loss == wanted ? 1 : 0;
  }
  EXPECT_LT(num_equal, 5) << "nothing was rounded to 8 bits";
}

TEST(Restart, InAnotherPrecisionConvertsTheState) {
  const Job job("precision", short_run("32-true"));
  EXPECT_EQ(job.run(2, {"train.stop_after_steps=10"}).exit_code, exit_resubmit);
  const Outcome outcome = job.run(1, {"precision.mode=bf16-true"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.err,
                  "was trained with precision.mode = \"32-true\", this start has "
                  "\"bf16-true\""),
            1)
      << outcome.err;
  const auto rows = job.steps();
  ASSERT_EQ(rows.size(), 20u);
  // The loss goes on from where it was, not from where it began.
  EXPECT_NEAR(rows[10].at("loss").get<double>(), rows[9].at("loss").get<double>(), 1.0);
  EXPECT_GT(rows[0].at("loss").get<double>(), rows[10].at("loss").get<double>() + 1.0);
}

TEST(Restart, AfterAKillEndsWithTheBitsOfTheUninterruptedRun) {
  const std::vector<std::string> settings = short_run("32-true", 60);
  const Job straight("kill.straight", settings);
  EXPECT_EQ(straight.run(2).exit_code, 0);

  // Whoever polls may sleep through the rest of the run: then once more.
  for (int attempt = 0; attempt < 5; ++attempt) {
    const Job killed("kill.killed", settings);
    if (!kill_after(killed, 2, 14) || fs::exists(killed.output() / "step-0000000060")) continue;
    const Outcome outcome = killed.run(2);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_EQ(count(outcome.out, "continues from output/step-"), 1) << outcome.text();
    expect_same_metrics(killed, straight);
    EXPECT_TRUE(killed.exported() == straight.exported());
    return;
  }
  FAIL() << "the run always ended before it could be killed";
}

}  // namespace
}  // namespace finetune::tests::bits_test
