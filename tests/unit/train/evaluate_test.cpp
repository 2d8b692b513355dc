// SPDX-License-Identifier: Apache-2.0
#include "train/infer/evaluate.hpp"

#include <gtest/gtest.h>

#include "core/random.hpp"
#include "support/tiny_model.hpp"
#include "train/infer/generate.hpp"

namespace finetune::train::evaluate_test {
namespace {

using tests::TinyModel;

struct Question {
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> answer;
};

/// Prompts of different length. A third of the answers is what the model says, a third differs in
/// the last token, and a third in the first.
std::vector<Question> questions(TinyModel& tiny) {
  const core::RandomKey key(5, core::RandomUse::test);
  std::vector<Question> all;
  for (std::uint64_t i = 0; i < 11; ++i) {
    Question question;
    for (std::uint64_t k = 0; k < 2 + i % 3; ++k)
      question.prompt.push_back(static_cast<std::int32_t>(key.below(10 * i + k, 11)));
    question.answer = generate(tiny.engine(), question.prompt,
                               {.max_tokens = 1 + static_cast<std::int64_t>(i % 4), .stop = {}});
    if (i % 3 == 1) question.answer.back() = (question.answer.back() + 1) % 11;
    if (i % 3 == 2) question.answer.front() = (question.answer.front() + 1) % 11;
    all.push_back(question);
  }
  return all;
}

data::Stream stream_of(const std::vector<Question>& questions, const comm::Communicator& batch) {
  auto tokens = std::make_shared<std::vector<data::PackedToken>>();
  std::vector<data::Span> samples;
  for (const Question& question : questions) {
    samples.push_back(
        {std::ssize(*tokens), std::ssize(question.prompt) + std::ssize(question.answer)});
    for (const std::int32_t id : question.prompt)
      tokens->emplace_back(id, false);
    for (const std::int32_t id : question.answer)
      tokens->emplace_back(id, true);
  }
  constexpr std::int64_t micro_batch = 2;
  data::Sampler sampler(std::ssize(samples), micro_batch * batch.size(), 1,
                        data::SampleOrder::as_read);
  return {data::Dataset(tokens, samples), sampler, {micro_batch, batch.size(), batch.rank()}, 0};
}

TEST(Evaluate, ExactMatchIsGreedyGenerationGivingTheAnswer) {
  TinyModel tiny(tests::world());
  const auto all = questions(tiny);
  std::int64_t expected = 0;
  for (const Question& question : all) {
    expected +=
        generate(tiny.engine(), question.prompt,
                 {.max_tokens = std::ssize(question.answer), .stop = {}}) == question.answer;
  }
  EXPECT_EQ(expected, 4);
  data::Stream stream = stream_of(all, tests::world());
  const Evaluation result = *evaluate(tiny.engine(), tests::world(), stream);
  EXPECT_EQ(result.num_samples, 11);
  EXPECT_DOUBLE_EQ(result.exact_match, 4.0 / 11);
}

TEST(Evaluate, LossIsTheMeanOverTrainedTokensOnAnyNumberOfRanks) {
  TinyModel alone{comm::Communicator()};
  const auto all = questions(alone);
  double loss = 0;
  std::int64_t num_targets = 0;
  for (const Question& question : all) {
    data::MicroBatch one{.batch = 1, .length = 0, .ids = {}, .labels = {}};
    std::vector<std::int32_t> text = question.prompt;
    text.insert(text.end(), question.answer.begin(), question.answer.end());
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
      one.ids.push_back(text[i]);
      one.labels.push_back(i + 1 < question.prompt.size() ? -100 : text[i + 1]);
    }
    one.length = std::ssize(one.ids);
    loss += forward(alone.engine(), one).loss;
    num_targets += std::ssize(question.answer);
  }
  TinyModel tiny(tests::world());
  data::Stream stream = stream_of(all, tests::world());
  const double expected = loss / static_cast<double>(num_targets);
  EXPECT_NEAR(evaluate(tiny.engine(), tests::world(), stream)->loss, expected, 1e-5 * expected);
}

}  // namespace
}  // namespace finetune::train::evaluate_test
