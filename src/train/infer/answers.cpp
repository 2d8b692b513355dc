// SPDX-License-Identifier: Apache-2.0
#include "train/infer/answers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/log.hpp"
#include "train/infer/generate.hpp"

namespace finetune::train {
namespace {

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

std::vector<metrics::Answer> print_answers(const Engine& engine,
                                           const tokenizer::Tokenizer& tokenizer,
                                           const Questions& questions,
                                           const MetricsSettings& settings,
                                           const std::function<bool()>& is_left) {
  std::vector<metrics::Answer> answers;
  const std::int64_t count = std::min(settings.answers, questions.size());
  for (std::int64_t i = 0; i < count && !is_left(); ++i) {
    const auto question = questions.question(i * questions.size() / count);
    if (!question) continue;
    const Sampling greedy{.max_tokens = settings.answer_tokens,
                          .stop = questions.stop_ids(),
                          .vocab_size = tokenizer.vocab_size()};
    const auto ids = generate(engine, question->prompt, greedy);
    const metrics::Answer& one = answers.emplace_back(
        metrics::Answer{shown(question->shown), tokenizer.decode(ids), question->expected});
    log::info(fmt::format("  {}\n    answer:   {}\n    expected: {}", one.prompt, one.answer,
                          one.expected));
  }
  engine.shards.release_all();
  return answers;
}

}  // namespace finetune::train
