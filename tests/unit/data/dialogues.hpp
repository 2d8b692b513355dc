#pragma once
// SPDX-License-Identifier: Apache-2.0
// Conversations in memory by turns, of one token a byte.

#include <string>
#include <utility>
#include <vector>

#include "data/text/source.hpp"
#include "unit/data/fake.hpp"

namespace finetune::tests {

struct Said {
  std::string role;
  std::string text;
  bool is_trained = false;
  bool has_end = true;  ///< fake_eos, trained as the text is
};

inline std::vector<Said> asked(const std::string& question, const std::string& answer) {
  return {{"user", question}, {"assistant", answer, true}};
}

inline std::vector<Said> operator+(std::vector<Said> a, const std::vector<Said>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// At "FILE:1", "FILE:2", ..., of the one file there is.
class Dialogues final : public data::SampleSource {
 public:
  std::vector<std::vector<Said>> samples;
  std::filesystem::path file = "chat.jsonl";
  std::string name = "dialogues";
  std::string chat_template = "the template \"bytes\" of this program";
  std::vector<std::int32_t> stops = {fake_eos};

  explicit Dialogues(std::vector<std::vector<Said>> all) : samples(std::move(all)) {}

  std::int64_t size() const override { return std::ssize(samples); }

  data::SourceSample sample(std::int64_t i) const override {
    data::SourceSample made;
    data::Tokens& tokens = made.tokens;
    const auto add = [&](std::int32_t id, bool is_trained) {
      tokens.ids.push_back(id);
      tokens.labels.push_back(is_trained ? id : data::not_trained);
    };
    int answers = 0;
    for (const Said& said : samples.at(static_cast<std::size_t>(i))) {
      const std::int64_t begin = std::ssize(tokens.ids);
      for (const std::int32_t id : bytes_of(said.text))
        add(id, said.is_trained);
      const std::int64_t end = std::ssize(tokens.ids);
      if (said.has_end) add(fake_eos, said.is_trained);
      if (said.is_trained) made.answers.push_back({begin, end, std::ssize(tokens.ids)});
      answers += said.role == "assistant" ? 1 : 0;
    }
    made.has_turns = answers > 1;
    return made;
  }

  std::vector<data::Turn> turns(std::int64_t i) const override {
    std::vector<data::Turn> turns;
    std::int64_t begin = 0;
    for (const Said& said : samples.at(static_cast<std::size_t>(i))) {
      turns.push_back({said.role, begin});
      begin += std::ssize(said.text) + (said.has_end ? 1 : 0);
    }
    return turns;
  }

  std::string where(std::int64_t i) const override {
    return file.string() + ":" + std::to_string(i + 1);
  }
  std::string text(std::span<const std::int32_t> ids) const override { return text_of(ids); }
  std::string written_by() const override { return chat_template; }
  std::vector<std::int32_t> model_ends() const override { return stops; }
  std::vector<std::filesystem::path> files() const override { return {file}; }
  std::string settings() const override { return name; }
};

inline data::DatasetOptions dialogue_options(std::int64_t max_seq_length = 10'000) {
  data::DatasetOptions options;
  options.max_seq_length = max_seq_length;
  options.vocab_size = fake_vocab_size;
  return options;
}

}  // namespace finetune::tests
