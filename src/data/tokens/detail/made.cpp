// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/made.hpp"

#include <fmt/format.h>

#include <atomic>
#include <thread>
#include <utility>

#include "core/error.hpp"

namespace finetune::data {
namespace {

void check_ids(const SampleSource& source, std::int64_t i, const Tokens& tokens,
               const DatasetOptions& options) {
  const std::int64_t vocab_size = options.vocab_size;
  const auto outside = [&](std::int32_t id) { return id < 0 || id >= vocab_size; };
  auto bad = tokens.ids.begin();
  for (; bad != tokens.ids.end(); ++bad) {
    const bool is_label =
        options.num_labels > 0 &&
        tokens.labels[static_cast<std::size_t>(bad - tokens.ids.begin())] != not_trained;
    if (!is_label && outside(*bad)) break;
  }
  if (bad == tokens.ids.end()) return;
  core::fail(core::ErrorKind::input,
             {source.where(i), fmt::format("holds the token id {}", *bad),
              fmt::format("the model's vocabulary has {} entries, ids 0 to {}", vocab_size,
                          vocab_size - 1),
              "Use the tokenizer that belongs to the model."});
}

Made make(const SampleSource& source, std::int64_t i, const DatasetOptions& options) {
  Made made;
  try {
    SourceSample sample = source.sample(i);
    const Tokens& tokens = sample.tokens;
    core::check(tokens.ids.size() == tokens.labels.size(), "every token has a label");
    check_ids(source, i, tokens, options);
    made.tokens.reserve(tokens.ids.size());
    for (std::size_t l = 0; l < tokens.ids.size(); ++l)
      made.tokens.emplace_back(tokens.ids[l], tokens.labels[l] != not_trained);
    made.digest = core::digest(std::as_bytes(std::span(made.tokens)));
    made.oddities = sample.oddities;
    made.answers = std::move(sample.answers);
    made.has_turns = sample.has_turns;
  } catch (...) {
    made.error = std::current_exception();
  }
  return made;
}

}  // namespace

void make_all(const SampleSource& source, std::int64_t begin, std::span<Made> made,
              const DatasetOptions& options, int num_threads) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t k = next++; k < made.size(); k = next++)
      made[k] = make(source, begin + static_cast<std::int64_t>(k), options);
  };
  std::vector<std::jthread> threads;
  for (int t = 1; t < num_threads && static_cast<std::size_t>(t) < made.size(); ++t)
    threads.emplace_back(work);
  work();
}

}  // namespace finetune::data
