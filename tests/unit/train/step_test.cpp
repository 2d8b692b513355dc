// SPDX-License-Identifier: Apache-2.0
#include "train/step.hpp"
#include "optim/adamw.hpp"

#include <gtest/gtest.h>

#include "comm/agree.hpp"
#include "unit/train/tiny_model.hpp"

namespace finetune::train {
namespace {

using tests::TinyModel;

/// Four samples, two to a micro-batch, dealt to the ranks; some ranks may have none.
data::StepData step_data(const comm::Communicator& batch) {
  auto tokens = std::make_shared<std::vector<data::PackedToken>>();
  std::vector<data::Span> samples;
  for (std::int32_t i = 0; i < 4; ++i) {
    samples.push_back({std::ssize(*tokens), 4 + i});
    for (std::int32_t k = 0; k < 4 + i; ++k)
      tokens->emplace_back((3 * i + k * k) % 11, k > 1);
  }
  data::Stream stream(data::Dataset(tokens, samples), {4, 4, 1, data::Order::as_read},
                      {2, batch.size(), batch.rank()}, 0);
  return stream.step(0);
}

StepResult run(TinyModel& tiny, const comm::Communicator& batch, const StepSettings& settings) {
  optim::AdamW optimizer({}, tiny.table, tiny.shards);
  return run_step(tiny.engine(), batch, step_data(batch), optimizer, settings);
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
  const data::StepData data = step_data({});
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

TEST(Step, RefusesNumbersThatAreNotFiniteOnAllRanksAndKeepsTheWeights) {
  TinyModel tiny(tests::world());
  if (tests::world().rank() == tests::world().size() - 1) {
    // One rank's part of the head.
    const int unit = tiny.shards.num_units() - 1;
    tiny.shards.master(unit)[0].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  tiny.shards.publish_all();
  std::vector<float> before, after;
  tiny.for_each([&](int, std::int64_t, float master, float) { before.push_back(master); });
  try {
    run(tiny, tests::world(), {.step = 4, .lr = 1e-3, .max_grad_norm = 1});
    ADD_FAILURE() << "nothing thrown";
  } catch (const comm::AgreedError& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::numbers);
    EXPECT_TRUE(std::string(error.what()).starts_with("step 5: loss is nan")) << error.what();
  }
  tiny.for_each([&](int, std::int64_t, float master, float) { after.push_back(master); });
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(before[i] == after[i] || std::isnan(before[i]));
}

}  // namespace
}  // namespace finetune::train
