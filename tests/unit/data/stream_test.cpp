// SPDX-License-Identifier: Apache-2.0
#include "data/steps/stream.hpp"

#include <gtest/gtest.h>

#include "data/steps/ahead.hpp"

namespace finetune::data::stream_test {
namespace {

/// Samples i of i + 2 tokens with id i, all trained.
Dataset staircase(std::int32_t num_samples) {
  auto tokens = std::make_shared<std::vector<PackedToken>>();
  std::vector<Span> samples;
  for (std::int32_t i = 0; i < num_samples; ++i) {
    samples.push_back({std::ssize(*tokens), i + 2});
    tokens->insert(tokens->end(), static_cast<std::size_t>(i + 2), PackedToken(i, true));
  }
  return Dataset(std::move(tokens), std::move(samples));
}

Stream stream_of(std::int64_t rank, std::int64_t num_ranks) {
  const Dataset dataset = staircase(7);
  return Stream(dataset, Sampler(7, 4, 3, SampleOrder::shuffled), {1, num_ranks, rank}, 0);
}

TEST(Stream, RanksTogetherTrainExactlyTheTokensOfTheStep) {
  for (std::int64_t num_ranks = 1; num_ranks <= 4; ++num_ranks) {
    for (std::int64_t step = 0; step < 3; ++step) {
      std::int64_t labels = 0;
      std::int64_t rows = 0;
      std::int64_t expected = 0;
      std::int64_t num_samples = 0;
      for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
        const StepData data = stream_of(rank, num_ranks).step(step);
        EXPECT_EQ(std::ssize(data.micro_steps), (data.num_samples + num_ranks - 1) / num_ranks);
        for (const auto& micro_batch : data.micro_steps) {
          if (!micro_batch) continue;
          rows += micro_batch->batch;
          for (const std::int64_t label : micro_batch->labels)
            labels += label == not_trained ? 0 : 1;
        }
        expected = data.num_trained_tokens;
        num_samples = data.num_samples;
        EXPECT_EQ(data.num_tokens, data.num_trained_tokens + data.num_samples);
      }
      EXPECT_EQ(labels, expected);
      EXPECT_EQ(rows, num_samples);
      EXPECT_EQ(num_samples, step == 1 ? 3 : 4);
    }
  }
}

TEST(StepsAhead, AreThoseOfTheStreamInAnyOrder) {
  const Stream stream = stream_of(1, 2);
  StepsAhead ahead(stream, 6);
  for (const std::int64_t step : {0, 1, 2, 2, 5, 3, 4, 5, 0, 9}) {
    const StepData data = ahead.take(step), expected = stream.step(step);
    ASSERT_EQ(data.micro_steps.size(), expected.micro_steps.size());
    for (std::size_t k = 0; k < data.micro_steps.size(); ++k) {
      ASSERT_EQ(data.micro_steps[k].has_value(), expected.micro_steps[k].has_value());
      if (!data.micro_steps[k]) continue;
      EXPECT_EQ(data.micro_steps[k]->ids, expected.micro_steps[k]->ids) << step;
      EXPECT_EQ(data.micro_steps[k]->first_row, expected.micro_steps[k]->first_row) << step;
    }
    EXPECT_EQ(data.num_trained_tokens, expected.num_trained_tokens);
  }
}

TEST(Stream, AMicroBatchIsTheSameOnAnyNumberOfRanksAndHasNeighboursInLength) {
  const Dataset dataset = staircase(9);
  std::vector<MicroBatch> expected;
  for (std::int64_t num_ranks = 1; num_ranks <= 4; ++num_ranks) {
    std::vector<std::optional<MicroBatch>> by_index(5);
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
      const MicroBatchGrid grid{2, num_ranks, rank};
      const Stream stream(dataset, Sampler(9, 9, 3, SampleOrder::shuffled), grid, 0);
      const StepData data = stream.step(1);
      for (std::int64_t k = 0; k < std::ssize(data.micro_steps); ++k) {
        const auto& micro_batch = data.micro_steps[static_cast<std::size_t>(k)];
        if (micro_batch) by_index.at(static_cast<std::size_t>(grid.index(k))) = micro_batch;
      }
    }
    for (std::size_t j = 0; j < by_index.size(); ++j) {
      ASSERT_TRUE(by_index[j]);
      if (num_ranks == 1) expected.push_back(*by_index[j]);
      EXPECT_EQ(by_index[j]->ids, expected[j].ids);
    }
  }
  // Samples have 1 to 9 positions: 9 and 8, 7 and 6, and so on; rows are multiples of 8 long.
  EXPECT_EQ(expected[0].stretches,
            (std::vector<RowPart>{{9, false}, {7, true}, {8, false}, {8, true}}));
  EXPECT_EQ(expected[4].stretches, (std::vector<RowPart>{{1, false}, {7, true}}));
}

TEST(Stream, CountsWhatItsMicroBatchesHold) {
  for (const bool packs : {false, true}) {
    const Dataset dataset = staircase(9);
    const Sequences sequences = packs ? Sequences::packed(dataset, 12) : Sequences(dataset);
    const Stream stream(sequences, Sampler(sequences.size(), 3, 3, SampleOrder::shuffled),
                        {2, 1, 0}, 0);
    for (std::int64_t step = 0; step < stream.sampler().steps_per_epoch(); ++step) {
      const StepData data = stream.step(step);
      std::int64_t positions = 0;
      std::int64_t padding = 0;
      std::int64_t samples = 0;
      std::int64_t trained = 0;
      for (const auto& micro_batch : data.micro_steps) {
        positions += std::ssize(micro_batch->ids);
        std::int64_t sum = 0;
        for (const RowPart& stretch : micro_batch->stretches) {
          sum += stretch.length;
          (stretch.is_padding ? padding : samples) += stretch.is_padding ? stretch.length : 1;
        }
        EXPECT_EQ(sum, micro_batch->batch * micro_batch->length);
        for (const std::int64_t label : micro_batch->labels)
          trained += label == not_trained ? 0 : 1;
      }
      EXPECT_EQ(data.num_positions, positions);
      EXPECT_EQ(data.num_padding, padding);
      EXPECT_EQ(data.num_samples, samples);
      EXPECT_EQ(data.num_trained_tokens, trained);
      EXPECT_EQ(stream.counts(step).num_positions, positions);
    }
  }
}

TEST(Stream, AStepIsTheSameAfterARestart) {
  Stream straight = stream_of(0, 2);
  straight.step(0);
  straight.step(1);
  const StepData expected = straight.step(2);
  const StepData restarted = stream_of(0, 2).step(2);
  ASSERT_EQ(restarted.micro_steps.size(), expected.micro_steps.size());
  for (std::size_t k = 0; k < expected.micro_steps.size(); ++k) {
    ASSERT_EQ(restarted.micro_steps[k].has_value(), expected.micro_steps[k].has_value());
    if (!expected.micro_steps[k]) continue;
    EXPECT_EQ(restarted.micro_steps[k]->ids, expected.micro_steps[k]->ids);
  }
}

}  // namespace
}  // namespace finetune::data::stream_test
