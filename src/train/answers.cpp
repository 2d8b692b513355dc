// SPDX-License-Identifier: Apache-2.0
#include "train/answers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/log.hpp"
#include "data/encoder.hpp"
#include "train/generate.hpp"

namespace finetune::train {
namespace {

struct Question {
  std::string prompt;
  std::string expected;
};

Question question_of(const data::Sample& sample) {
  Question question;
  for (const data::Segment& segment : sample.segments) {
    (segment.trained ? question.expected : question.prompt) += segment.text;
  }
  return question;
}

/// The part of a prompt that differs from sample to sample: what follows its first blank line.
std::string shown(const std::string& prompt) {
  const std::size_t blank = prompt.find("\n\n");
  std::string text = blank == std::string::npos ? prompt : prompt.substr(blank + 2);
  std::string line;
  for (const char c : text)
    line += c == '\n' ? ' ' : c;
  return line;
}

}  // namespace

void print_answers(const Engine& engine, const data::Tokenizer& tokenizer,
                   const data::Reader& questions, const MetricsSettings& settings) {
  const std::int64_t count = std::min(settings.answers, questions.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const Question question = question_of(questions.sample(i * questions.size() / count));
    const auto prompt = data::encode_prompt(tokenizer, question.prompt);
    const Sampling greedy{.max_tokens = settings.answer_tokens, .stop = {tokenizer.eos_id()}};
    const auto answer = generate(engine, prompt, greedy);
    log::info(fmt::format("  {}\n    answer:   {}\n    expected: {}", shown(question.prompt),
                          tokenizer.decode(answer), question.expected));
  }
  engine.shards.release_all();
}

}  // namespace finetune::train
