// SPDX-License-Identifier: Apache-2.0
#include "train/infer/generate.hpp"

#include <gtest/gtest.h>

#include "model/rope.hpp"
#include "support/tiny_model.hpp"

namespace finetune::train::generate_test {
namespace {

using tests::TinyModel;

const std::vector<std::int32_t> prompt = {1, 7, 2};

/// Greedy tokens from passes over the whole text, without a cache.
std::vector<std::int32_t> without_cache(TinyModel& tiny, std::int64_t num_tokens) {
  std::vector<std::int64_t> ids(prompt.begin(), prompt.end());
  for (std::int64_t i = 0; i < num_tokens; ++i) {
    const auto sequence = model::make_sequence(tiny.architecture, 1, std::ssize(ids));
    const at::Tensor last =
        logits(tiny.engine(), at::tensor(ids, at::kLong), sequence, Positions::last);
    ids.push_back(last.argmax().item<std::int64_t>());
  }
  return {ids.begin() + std::ssize(prompt), ids.end()};
}

TEST(Generate, WithTheCacheGivesTheTokensWithoutIt) {
  TinyModel tiny(tests::world());
  EXPECT_EQ(generate(tiny.engine(), prompt, {.max_tokens = 12, .stop = {}}),
            without_cache(tiny, 12));
}

TEST(Generate, IsTheSameOnAnyNumberOfRanks) {
  const Sampling sampling{.temperature = 1, .top_p = 0.9, .seed = 3, .max_tokens = 12, .stop = {}};
  TinyModel alone{comm::Communicator()};
  TinyModel tiny(tests::world());
  EXPECT_EQ(generate(tiny.engine(), prompt, sampling), generate(alone.engine(), prompt, sampling));
}

TEST(Generate, StopsAtTheModelsLastPosition) {
  TinyModel tiny{comm::Communicator()};
  EXPECT_EQ(generate(tiny.engine(), prompt, {.max_tokens = 1000, .stop = {}}).size(), 21u);
  const std::vector<std::int32_t> full(24, 1);
  EXPECT_TRUE(generate(tiny.engine(), full, {.stop = {}}).empty());
  const std::vector<std::int32_t> overfull(30, 1);
  EXPECT_TRUE(generate(tiny.engine(), overfull, {.stop = {}}).empty());
}

TEST(Generate, ChoosesNothingTheTokenizerDoesNotHave) {
  TinyModel tiny{comm::Communicator()};
  const auto all = generate(tiny.engine(), prompt, {.max_tokens = 12, .stop = {}});
  const std::int32_t largest = *std::max_element(all.begin(), all.end());
  ASSERT_GT(largest, 0);
  for (const double temperature : {0.0, 1.0}) {
    const auto below =
        generate(tiny.engine(), prompt,
                 {.temperature = temperature, .max_tokens = 12, .stop = {}, .vocab_size = largest});
    EXPECT_LT(*std::max_element(below.begin(), below.end()), largest);
  }
}

TEST(Generate, EndsBeforeAStopToken) {
  TinyModel tiny{comm::Communicator()};
  const auto all = generate(tiny.engine(), prompt, {.max_tokens = 12, .stop = {}});
  const std::int32_t stop = all[5];
  const auto until = std::find(all.begin(), all.end(), stop);
  EXPECT_EQ(generate(tiny.engine(), prompt, {.max_tokens = 12, .stop = {stop}}),
            std::vector<std::int32_t>(all.begin(), until));
}

TEST(Generate, ShowsEachTokenAsItComes) {
  TinyModel tiny{comm::Communicator()};
  std::vector<std::int32_t> seen;
  const auto all = generate(tiny.engine(), prompt, {.max_tokens = 4, .stop = {}},
                            [&](std::int32_t token) { seen.push_back(token); });
  EXPECT_EQ(seen, all);
}

}  // namespace
}  // namespace finetune::train::generate_test
