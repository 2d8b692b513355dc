#pragma once
// SPDX-License-Identifier: Apache-2.0
// Samples in memory as sources of tokens.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/text/detail/chat_writer.hpp"
#include "data/text/text_source.hpp"
#include "support/folders.hpp"
#include "unit/data/fake.hpp"

namespace finetune::data {

namespace fs = std::filesystem;

/// A folder with one of the golden tokenizers and an end token.
class ModelFolder {
 public:
  ModelFolder(const std::string& name, const std::string& config) {
    fs::copy(tests::source_folder() / "tests/golden/tokenizers" / name / "tokenizer.json",
             folder_.path() / "tokenizer.json");
    folder_.write("tokenizer_config.json", config);
  }
  tokenizer::Tokenizer load() const { return tokenizer::Tokenizer::load(folder_.path()); }

 private:
  const tests::TemporaryFolder folder_;
};

inline tokenizer::Tokenizer qwen() {
  return ModelFolder("qwen2", R"({"eos_token": "<|im_end|>"})").load();
}

inline tokenizer::Tokenizer mistral() {
  return ModelFolder("mistral", R"({"eos_token": "</s>", "bos_token": "<s>"})").load();
}

inline ChatWriter::Names names_of(const tokenizer::Tokenizer& tokenizer) {
  return {
      .bos = "",
      .eos = tokenizer.decode(std::vector{tokenizer.eos_id()}, false),
      .ends = {.find = [tokenizer](std::string_view text) { return tokenizer.find_special(text); },
               .ids = {tokenizer.eos_id()}}};
}

inline ChatTemplate template_of(const tokenizer::Tokenizer& tokenizer, const std::string& jinja) {
  ChatTemplate chat{.name = "chatml", .text = jinja};
  chat.writer = std::make_shared<const ChatWriter>(chat.text, names_of(tokenizer));
  return chat;
}

inline ChatTemplate chatml() {
  return template_of(qwen(),
                     "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + "
                     "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
                     "'<|im_start|>assistant\\n' }}{% endif %}");
}

/// Samples in memory that may be anything.
class Samples final : public SampleReader {
 public:
  explicit Samples(std::vector<Sample> samples) : samples_(std::move(samples)) {}
  std::int64_t size() const override { return std::ssize(samples_); }
  Sample sample(std::int64_t i) const override {
    Sample sample = samples_.at(static_cast<std::size_t>(i));
    sample.where = "memory:" + std::to_string(i + 1);
    return sample;
  }

 private:
  std::vector<Sample> samples_;
};

inline Sample said(std::string question, std::string answer) {
  Sample sample;
  sample.conversation.messages = {{ChatRole::user, std::move(question), {}, {}},
                                  {ChatRole::assistant, std::move(answer), {}, {}}};
  return sample;
}

inline Sample completed(std::string prompt, std::string answer) {
  Sample sample = said(prompt, answer);
  sample.segments = {{std::move(prompt), false}, {std::move(answer), true}};
  return sample;
}

inline TextSource source_of(const Sample& sample, const TokenizePolicy& policy,
                            const tokenizer::Tokenizer& tokenizer) {
  std::vector<Sample> samples = {sample};
  const Format format{"test", Layout::separate, {}};
  return TextSource(std::make_unique<Samples>(std::move(samples)), format, {}, policy, tokenizer);
}

SourceSample tokens_of(const Sample& sample, const TokenizePolicy& policy,
                       const tokenizer::Tokenizer& tokenizer) {
  return source_of(sample, policy, tokenizer).sample(0);
}

inline std::string trained_text(const SourceSample& sample, const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (const std::int32_t label : sample.tokens.labels) {
    if (label != not_trained) ids.push_back(label);
  }
  return tokenizer.decode(ids, false);
}

inline std::uint32_t bit(Oddity oddity) {
  return static_cast<std::uint32_t>(oddity);
}

inline TokenizePolicy by(ChatTemplate chat) {
  TokenizePolicy policy;
  policy.chat = std::move(chat);
  return policy;
}

}  // namespace finetune::data
