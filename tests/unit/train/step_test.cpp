// SPDX-License-Identifier: Apache-2.0
#include "train/step/step.hpp"

#include <gtest/gtest.h>

#include "comm/agree.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "support/tiny_model.hpp"

namespace finetune::train::step_test {
namespace {

using tests::TinyModel;

StepResult run(TinyModel& tiny, const comm::Communicator& batch, const StepSettings& settings) {
  optimizers::adamw::AdamW optimizer({}, tiny.table, tiny.shards);
  return run_step(tiny.engine(), batch, tests::tiny_step(batch), optimizer, settings);
}

TEST(Step, IsTheSameOnAnyNumberOfRanks) {
  const StepSettings settings{.step = 0, .lr = 1e-3, .max_grad_norm = 0.5};
  TinyModel alone{comm::Communicator()};
  TinyModel tiny(tests::world());
  const StepResult expected = run(alone, comm::Communicator(), settings);
  const StepResult result = run(tiny, tests::world(), settings);
  EXPECT_NEAR(result.loss, expected.loss, 1e-6 * expected.loss);
  EXPECT_NEAR(result.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm);
}

TEST(Step, LossIsTheMeanOverTrainedTokens) {
  TinyModel alone{comm::Communicator()};
  const data::StepData data = tests::tiny_step({});
  double sum = 0;
  for (const auto& batch : data.micro_steps)
    sum += forward(alone.engine(), batch).loss;
  const StepResult result = run(alone, {}, {.step = 0, .lr = 0, .max_grad_norm = 1});
  EXPECT_NEAR(result.loss, sum / static_cast<double>(data.num_trained_tokens), 1e-6);
}

TEST(Step, LowersTheLossOfItsOwnData) {
  TinyModel tiny(tests::world());
  const StepSettings settings{.step = 0, .lr = 1e-2, .max_grad_norm = 1};
  const double before = run(tiny, tests::world(), settings).loss;
  EXPECT_LT(run(tiny, tests::world(), settings).loss, before);
}

/// Two steps of one pass; of several ranks the last has no micro-batch.
tests::Elements trained(const shard::Options& options, tests::TinyKind kind, bool in_backward,
                        std::vector<double>& norms) {
  const comm::Communicator& world = tests::world();
  TinyModel tiny(shard::one_copy(world), options, kind);
  optimizers::adamw::AdamW optimizer({}, tiny.table, tiny.shards);
  const data::StepData data = tests::tiny_step(world, 2 * std::max(1, world.size() - 1));
  EXPECT_EQ(data.micro_steps.size(), 1u);
  for (std::int64_t step = 0; step < 2; ++step)
    norms.push_back(run_step(tiny.engine(), world, data, optimizer,
                             {.step = step,
                              .lr = 1e-2,
                              .updates_in_backward = in_backward,
                              .more_follow = step == 0})
                        .grad_norm);
  return tiny.elements();
}

TEST(Step, UpdatedInBackwardHasTheBitsOfOneThatIsUpdatedAfterwards) {
  using tests::TinyKind;
  for (const TinyKind kind : {TinyKind::own_head, TinyKind::tied, TinyKind::experts}) {
    for (const auto sharding : {plan::Sharding::full_shard, plan::Sharding::shard_grad_op}) {
      for (const auto determinism : {plan::Determinism::run, plan::Determinism::topology}) {
        for (const bool overlap : {true, false}) {
          shard::Options options = TinyModel::in_fp32();
          options.sharding = sharding;
          options.overlap = overlap;
          options.numbers.determinism = determinism;
          std::vector<double> norms, expected_norms;
          const auto expected = trained(options, kind, false, expected_norms);
          EXPECT_EQ(trained(options, kind, true, norms), expected);
          EXPECT_EQ(norms, expected_norms);
        }
      }
    }
  }
}

TEST(Step, UpdatedInBackwardRefusesNumbersThatAreNotFiniteOnAllRanks) {
  TinyModel tiny(tests::world());
  tiny.shards.master(tiny.shards.num_units() - 1).fill_(std::numeric_limits<float>::quiet_NaN());
  tiny.shards.publish_all();
  optimizers::adamw::AdamW optimizer({}, tiny.table, tiny.shards);
  try {
    run_step(tiny.engine(), tests::world(), tests::tiny_step(tests::world(), 2), optimizer,
             {.step = 4, .lr = 1e-3, .updates_in_backward = true});
    ADD_FAILURE() << "nothing thrown";
  } catch (const comm::AgreedError& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::numbers);
    EXPECT_NE(std::string(error.what()).find("the last checkpoint counts"), std::string::npos)
        << error.what();
  }
}

TEST(Step, RefusesNumbersThatAreNotFiniteOnAllRanksAndKeepsTheWeights) {
  TinyModel tiny(tests::world());
  if (tests::world().rank() == tests::world().size() - 1) {
    // One rank's part of the head.
    const int unit = tiny.shards.num_units() - 1;
    tiny.shards.master(unit)[0].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  tiny.shards.publish_all();
  const tests::Elements before = tiny.elements();
  try {
    run(tiny, tests::world(), {.step = 4, .lr = 1e-3, .max_grad_norm = 1});
    ADD_FAILURE() << "nothing thrown";
  } catch (const comm::AgreedError& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::numbers);
    EXPECT_TRUE(std::string(error.what()).starts_with("step 5: loss is nan")) << error.what();
  }
  for (const auto& [element, after] : tiny.elements())
    EXPECT_TRUE(before.at(element) == after || std::isnan(before.at(element)));
}

TEST(Step, OfNumbersThatAreNotFiniteAdvisesTheLearningRateUnderTopologyToo) {
  shard::Options options = TinyModel::in_fp32();
  options.numbers.determinism = plan::Determinism::topology;
  TinyModel tiny(shard::one_copy(tests::world()), options);
  // The loss is finite, its gradient is not.
  const int unit = tiny.shards.num_units() - 1;
  tiny.shards.master(unit).fill_(3e38f);
  tiny.shards.publish_all();
  try {
    run(tiny, tests::world(), {.step = 4, .lr = 1e-3, .max_grad_norm = 1});
    ADD_FAILURE() << "nothing thrown";
  } catch (const comm::AgreedError& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), core::ErrorKind::numbers);
    EXPECT_NE(message.find("the gradient of "), std::string::npos) << message;
    EXPECT_NE(message.find("Lower optimizer.lr or raise optimizer.warmup_steps"), std::string::npos)
        << message;
  }
}

/// Ranks whose passes take ten seconds, of which only the last is asked to stop, in its pass
/// `asked_in`.
class LastRankIsAsked {
 public:
  LastRankIsAsked(StopVote::Passes passes, int asked_in)
      : vote_(
            tests::world(), passes,
            [this, asked_in] {
              const auto& world = tests::world();
              return world.rank() == world.size() - 1 && num_looks_++ + 1 >= asked_in;
            },
            [this] { return 10.0 * num_ticks_++; }) {}

  StopVote& vote() { return vote_; }

 private:
  int num_looks_ = 0;
  int num_ticks_ = 0;
  StopVote vote_;
};

constexpr std::int32_t many_samples = 16;

/// The step that `is_asked` leaves, and after it a whole one, against one that follows nothing.
void expect_left_without_a_trace(StopVote::Passes passes, std::int64_t left_after) {
  const comm::Communicator& world = tests::world();
  const data::StepData data = tests::tiny_step(world, many_samples, 1);
  StepSettings settings{.step = 0, .lr = 1e-2, .max_grad_norm = 1};
  TinyModel whole(world);
  optimizers::adamw::AdamW whole_optimizer({}, whole.table, whole.shards);
  const StepResult expected = run_step(whole.engine(), world, data, whole_optimizer, settings);

  TinyModel tiny(world);
  optimizers::adamw::AdamW optimizer({}, tiny.table, tiny.shards);
  const tests::Elements before = tiny.elements();
  LastRankIsAsked asked(passes, 2);
  settings.vote = &asked.vote();
  EXPECT_EQ(run_step(tiny.engine(), world, data, optimizer, settings).left_after, left_after);
  EXPECT_EQ(tiny.elements(), before);

  settings.vote = nullptr;
  const StepResult result = run_step(tiny.engine(), world, data, optimizer, settings);
  EXPECT_EQ(result.left_after, 0);
  EXPECT_EQ(result.loss, expected.loss);
  EXPECT_EQ(result.grad_norm, expected.grad_norm);
  EXPECT_EQ(tiny.elements(), whole.elements());
}

TEST(Step, IsLeftByAllRanksWhereOneIsAskedAndTheNextKnowsNothingOfIt) {
  expect_left_without_a_trace(StopVote::Passes::in_step, 2);
}

TEST(Step, IsLeftOnePassLaterWhereRanksDoNotWaitForEachOther) {
  expect_left_without_a_trace(StopVote::Passes::apart, tests::world().size() == 1 ? 2 : 3);
}

TEST(Step, OfPassesThatAreOverSoonIsAskedAboutOnce) {
  const comm::Communicator& world = tests::world();
  int num_looks = 0, num_ticks = 0;
  StopVote vote(
      world, StopVote::Passes::in_step,
      [&] {
        ++num_looks;
        return false;
      },
      [&] { return 1e-3 * num_ticks++; });
  vote.begin_step(500);
  for (int i = 1; i < 500; ++i)
    EXPECT_FALSE(vote.after_pass());
  EXPECT_EQ(num_looks, 1) << "to learn how long a pass takes";
  vote.begin_step(500);
  for (int i = 1; i < 500; ++i)
    EXPECT_FALSE(vote.after_pass());
  EXPECT_EQ(num_looks, 1);
}

/// Steps of two passes of 25 s each; asked while the first pass is computed.
TEST(Step, OfTwoLongPassesIsLeftBeforeTheLastHoweverTheRanksGo) {
  for (const auto passes : {StopVote::Passes::in_step, StopVote::Passes::apart}) {
    double now = 0;
    StopVote vote(
        tests::world(), passes, [&] { return now > 100; }, [&] { return now; });
    for (int step = 0; step < 2; ++step) {
      vote.begin_step(2);
      now += 25;
      EXPECT_FALSE(vote.after_pass());
      now += 25;
    }
    vote.begin_step(2);
    now += 25;
    EXPECT_TRUE(vote.after_pass());
  }
}

TEST(Step, OfPassesThatBecomeSlowIsLookedAtAgain) {
  double now = 0, pass_s = 1e-3;
  StopVote vote(
      tests::world(), StopVote::Passes::apart, [&] { return pass_s > 1; }, [&] { return now; });
  const auto is_left = [&] {
    vote.begin_step(8);
    for (int i = 1; i < 8; ++i) {
      now += pass_s;
      if (vote.after_pass()) return true;
    }
    return false;
  };
  EXPECT_FALSE(is_left());
  pass_s = 20;
  int steps = 1;
  while (steps < 40 && !is_left())
    ++steps;
  EXPECT_LT(steps, 20) << "passes are timed again now and then";
}

}  // namespace
}  // namespace finetune::train::step_test
