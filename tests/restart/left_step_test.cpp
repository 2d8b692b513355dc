// SPDX-License-Identifier: Apache-2.0
// A step of many micro-batches that a signal meets is left, not waited for: the checkpoint is that
// of the step before, and what goes on from it ends with the bits of a run that nothing happened
// to.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "restart/job.hpp"
#include "support/messages.hpp"

namespace finetune::tests::left_step_test {
namespace {

namespace fs = std::filesystem;

constexpr int exit_resubmit = 75;
constexpr int exit_resubmit_older = 76;
// An epoch is one step: all have as many.
constexpr int micro_batches = 18;

std::vector<std::string> long_steps(const std::string& sharding) {
  return {
      "precision.mode=32-true",        "train.max_steps=5",       "train.global_batch=18",
      "train.micro_batch=1",           "optimizer.lr=1e-3",       "optimizer.warmup_steps=2",
      "parallel.sharding=" + sharding, "checkpoint.save_steps=0", "data.validation_fraction=0.2",
      "train.validate_steps=2"};
}

/// The last rank gets a signal when it begins micro-batch `pass` of `step`, both from 1; ranks vote
/// after every one of them.
std::string signal_in(int ranks, int step, int pass) {
  const int hit = (step - 1) * micro_batches / ranks + pass;
  return "stop.vote:*:*:flip,step.fwd:" + std::to_string(ranks - 1) + ":" + std::to_string(hit) +
         ":usr1";
}

Outcome run_with_fault(const Job& job, int ranks, const std::string& fault) {
  ::setenv("FINETUNE_FAULT", fault.c_str(), 1);
  Outcome outcome = job.run(ranks);
  ::unsetenv("FINETUNE_FAULT");
  return outcome;
}

using Parameters = std::tuple<int, std::string>;

class LeftStep : public testing::TestWithParam<Parameters> {};

TEST_P(LeftStep, IsMadeAgainAndEndsWithTheBitsOfAnUninterruptedRun) {
  const auto& [ranks, sharding] = GetParam();
  const std::string name = sharding + ".r" + std::to_string(ranks);
  const Job straight("left.straight." + name, long_steps(sharding));
  const Job left("left." + name, long_steps(sharding));
  const Outcome whole = straight.run(ranks);
  ASSERT_EQ(whole.exit_code, 0) << whole.text();

  const Outcome first = run_with_fault(left, ranks, signal_in(ranks, 3, 2));
  EXPECT_EQ(first.exit_code, exit_resubmit) << first.text();
  // Ranks that do not wait for each other hear of it one micro-batch later.
  const int done = sharding == "NO_SHARD" && ranks > 1 ? 3 : 2;
  EXPECT_EQ(count(first.out, "a signal asks to stop: step 3 is left after " + std::to_string(done) +
                                 " of its " + std::to_string(micro_batches / ranks) +
                                 " micro-batches, the last checkpoint is from step 2"),
            1)
      << first.text();
  EXPECT_EQ(left.steps().size(), 2u);
  EXPECT_TRUE(fs::exists(left.output() / "step-0000000002"));
  EXPECT_FALSE(fs::exists(left.output() / "step-0000000003"));

  const Outcome second = left.run(ranks);
  EXPECT_EQ(second.exit_code, 0) << second.text();
  EXPECT_EQ(count(second.out, "continues from output/step-0000000002 (step 2 of 5)"), 1)
      << second.text();
  expect_same_metrics(left, straight);
  EXPECT_TRUE(left.checkpoint_bytes(5) == straight.checkpoint_bytes(5));
}

INSTANTIATE_TEST_SUITE_P(Ranks, LeftStep,
                         testing::Values(Parameters{1, "FULL_SHARD"}, Parameters{2, "FULL_SHARD"},
                                         Parameters{3, "FULL_SHARD"}, Parameters{2, "NO_SHARD"},
                                         Parameters{3, "NO_SHARD"}),
                         [](const auto& info) {
                           return std::get<1>(info.param) == "NO_SHARD"
                                      ? "ReplicatedOn" + std::to_string(std::get<0>(info.param))
                                      : "ShardedOn" + std::to_string(std::get<0>(info.param));
                         });

TEST(LeftStepOfAStart, ThatIsTheFirstOfItsStartSavesNothingAndSaysSo) {
  const Job job("left.first", long_steps("FULL_SHARD"));
  const Outcome outcome = run_with_fault(job, 2, signal_in(2, 1, 2));
  EXPECT_EQ(outcome.exit_code, exit_resubmit_older) << outcome.text();
  EXPECT_EQ(count(outcome.out,
                  "step 1 is left after 2 of its 9 micro-batches, there is no "
                  "checkpoint yet"),
            1)
      << outcome.text();
  EXPECT_FALSE(fs::exists(job.output() / "step-0000000000"));
}

/// A validation, which votes after every micro-batch, is left at its `hit`th vote since the start.
Outcome leave_validation(const Job& job, int ranks, int hit) {
  return run_with_fault(job, ranks,
                        "stop.vote:*:*:flip,validate.pass:" + std::to_string(ranks - 1) + ":" +
                            std::to_string(hit) + ":usr1");
}

TEST(LeftValidation, IsDoneAgainWhereverItWas) {
  constexpr int ranks = 2, votes = 2;  // of three micro-batches
  std::vector<std::string> deck = long_steps("FULL_SHARD");
  deck.push_back("data.validation_fraction=0.25");
  const Job straight("left.valid.straight", deck), left("left.valid", deck);
  const Outcome whole = straight.run(ranks);
  ASSERT_EQ(whole.exit_code, 0) << whole.text();

  // Before the first step there is nothing to save.
  Outcome outcome = leave_validation(left, ranks, 2);
  EXPECT_EQ(outcome.exit_code, exit_resubmit_older) << outcome.text();
  constexpr const char* is_left = "the validation is interrupted";
  EXPECT_EQ(count(outcome.out, is_left), 1) << outcome.text();
  EXPECT_FALSE(fs::exists(left.output() / "step-0000000000"));

  // The step that was just done is saved, and validated by the next start, which is stopped in it.
  outcome = leave_validation(left, ranks, votes + 1);
  EXPECT_EQ(outcome.exit_code, exit_resubmit) << outcome.text();
  EXPECT_EQ(count(outcome.out, is_left), 1) << outcome.text();
  EXPECT_TRUE(fs::exists(left.output() / "step-0000000002"));
  outcome = leave_validation(left, ranks, 1);
  EXPECT_EQ(outcome.exit_code, exit_resubmit_older) << outcome.text();
  EXPECT_EQ(count(outcome.out, is_left), 1) << outcome.text();

  // That of the end, behind those of steps 2 and 4.
  outcome = leave_validation(left, ranks, 2 * votes + 1);
  EXPECT_EQ(outcome.exit_code, exit_resubmit) << outcome.text();
  EXPECT_EQ(count(outcome.out, is_left), 1) << outcome.text();
  outcome = left.run(ranks);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();

  expect_same_metrics(left, straight);
  EXPECT_TRUE(left.checkpoint_bytes(5) == straight.checkpoint_bytes(5));
  EXPECT_EQ(left.run(ranks).exit_code, 0);
  expect_same_metrics(left, straight);
}

TEST(LeftTokenising, StopsAllRanksBeforeTheFirstStep) {
  for (const int ranks : {1, 3}) {
    const std::string name = ".r" + std::to_string(ranks);
    const std::vector<std::string> deck = long_steps("FULL_SHARD");
    const Job straight("left.tokens.straight" + name, deck), left("left.tokens" + name, deck);
    core::Json samples = core::Json::array();
    for (int i = 0; i < 7000; ++i)
      samples.push_back({{"instruction", "Say " + std::to_string(i)}, {"output", "yes"}});
    for (const Job* job : {&straight, &left})
      write_file(job->data(), samples.dump());
    ASSERT_EQ(straight.run(ranks).exit_code, 0);
    const Outcome stopped =
        run_with_fault(left, ranks, "tokenise.unit:" + std::to_string(ranks - 1) + ":1:usr1");
    EXPECT_EQ(stopped.exit_code, exit_resubmit_older) << stopped.text();
    // Too few tokens to be worth a file.
    expect_line_about(stopped.out, {"first step", "0 of 7,000"});
    EXPECT_TRUE(left.metrics().empty());
    EXPECT_EQ(left.run(ranks).exit_code, 0);
    expect_same_metrics(left, straight);
  }
}

}  // namespace
}  // namespace finetune::tests::left_step_test
