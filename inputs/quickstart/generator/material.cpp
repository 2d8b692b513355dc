// SPDX-License-Identifier: Apache-2.0
#include "generator/material.hpp"

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "generator/corpus.hpp"
#include "generator/task.hpp"
#include "generator/tokenizer_file.hpp"

namespace finetune::quickstart {
namespace {

constexpr std::uint64_t num_documents = 80'000;
constexpr std::size_t num_train = 10'000;
constexpr std::size_t num_held_out = 250;
constexpr std::size_t vocab_size = 1'280;

// Keys stay in the order in which they are written.
using Json = nlohmann::ordered_json;

/// One example a line, so that differences can be read.
std::string alpaca_json(const std::vector<Example>& examples) {
  std::string text = "[\n";
  for (const Example& example : examples) {
    const Json row = {
        {"instruction", example.instruction}, {"input", example.input}, {"output", example.output}};
    text.append(" ").append(row.dump()).append(&example == &examples.back() ? "\n" : ",\n");
  }
  return text + "]\n";
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    core::fail(core::ErrorKind::create,
               {folder.string(), "cannot be made", error.message(), "Name another folder."});
  }
}

}  // namespace

void write_material(const std::filesystem::path& folder) {
  make_folder(folder / "model");
  std::string corpus;
  MergeLearner learner;
  for (std::uint64_t i = 0; i < num_documents; ++i) {
    const std::string text = document(i);
    learner.read(text);
    corpus += Json{{"text", text}}.dump() + "\n";
  }
  const Merges merges = learner.learn(vocab_size - num_special_tokens);
  core::write_text_atomically(folder / "corpus.jsonl", corpus);
  core::write_text_atomically(folder / "train.json",
                              alpaca_json(examples(Split::shown, num_train)));
  core::write_text_atomically(folder / "held_out.json",
                              alpaca_json(examples(Split::held_out, num_held_out)));
  core::write_text_atomically(folder / "model" / "tokenizer.json", tokenizer_json(merges));
  core::write_text_atomically(folder / "model" / "tokenizer_config.json", tokenizer_config_json());
  core::write_text_atomically(folder / "model" / "config.json", model_config_json(vocab_size));
}

}  // namespace finetune::quickstart
