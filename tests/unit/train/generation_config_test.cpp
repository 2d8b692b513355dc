// SPDX-License-Identifier: Apache-2.0
// What a model's generation_config.json says, and what a command says otherwise.
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.hpp"
#include "support/folders.hpp"
#include "train/infer/generation_config.hpp"

namespace finetune::train::generation_config_test {
namespace {

namespace fs = std::filesystem;

/// Of a folder with such a file.
GenerationConfig read(const std::string& text) {
  const fs::path folder = tests::build_folder() / "generation_config";
  fs::create_directories(folder);
  std::ofstream(folder / "generation_config.json") << text;
  return read_generation_config(folder);
}

TEST(GenerationConfig, IsWhatModelsArePublishedWith) {
  const GenerationConfig config = read(
      R"({"bos_token_id": 128000, "do_sample": true, "eos_token_id": [128001, 128008, 128009],
          "temperature": 0.6, "top_p": 0.9, "top_k": null, "transformers_version": "4.45.0"})");
  const ChosenSampling chosen = choose_sampling({}, config);
  EXPECT_EQ(chosen.sampling.temperature, 0.6);
  EXPECT_EQ(chosen.sampling.top_p, 0.9);
  EXPECT_EQ(chosen.sampling.top_k, 0);
  EXPECT_EQ(chosen.sampling.stop, (std::vector<std::int32_t>{128001, 128008, 128009}));
  EXPECT_EQ(chosen.note,
            "tokens are chosen as the model's generation_config.json says: temperature 0.6, top-p "
            "0.9; --temperature 0 takes the likeliest ones");
  EXPECT_EQ(read(R"({"eos_token_id": 7})").end_ids, std::vector<std::int32_t>{7});
}

TEST(GenerationConfig, IsGreedyWhereItDoesNotSample) {
  for (const char* samples : {"", R"("do_sample": null, )", R"("do_sample": false, )"}) {
    const GenerationConfig config =
        read(std::string("{") + samples +
             R"("temperature": 0.6, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.05})");
    const Sampling sampling = choose_sampling({}, config).sampling;
    EXPECT_EQ(sampling.temperature, 0);
    EXPECT_EQ(sampling.top_k, 0);
    EXPECT_EQ(sampling.min_p, 0);
    EXPECT_EQ(sampling.repetition_penalty, 1.05) << "which is no matter of chance";
  }
  EXPECT_EQ(choose_sampling({}, read(R"({"do_sample": false})")).note,
            "the likeliest tokens are taken, as the model's generation_config.json says; "
            "--temperature samples");
  EXPECT_EQ(choose_sampling({}, read(R"({"do_sample": true})")).sampling.temperature, 1);
}

TEST(GenerationConfig, IsLessThanWhatACommandSays) {
  const GenerationConfig config =
      read(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "repetition_penalty": 1.05})");
  const ChosenSampling some = choose_sampling({.top_k = 0, .min_p = 0.2}, config);
  EXPECT_EQ(some.sampling.temperature, 0.6);
  EXPECT_EQ(some.sampling.top_k, 0);
  EXPECT_EQ(some.sampling.min_p, 0.2);
  EXPECT_EQ(some.note.find("top-k"), std::string::npos) << some.note;
  const ChosenSampling greedy = choose_sampling({.temperature = 0}, config);
  EXPECT_EQ(greedy.sampling.temperature, 0);
  EXPECT_EQ(greedy.sampling.repetition_penalty, 1.05);
  EXPECT_NE(greedy.note.find("repetition penalty 1.05"), std::string::npos) << greedy.note;
  EXPECT_EQ(choose_sampling({.temperature = 0.5}, {}).note, "");
  EXPECT_EQ(choose_sampling({}, {}).sampling.temperature, 0);
}

TEST(GenerationConfig, IsRefusedWhereItMeansNothing) {
  for (const char* text :
       {R"({"temperature": "hot"})", R"({"top_p": 1.5})", R"({"top_k": -1})", R"({"min_p": true})",
        R"({"do_sample": 1})", R"({"eos_token_id": "</s>"})", R"({"eos_token_id": [-1]})",
        R"({"repetition_penalty": Infinity})", "[]", "{"})
    EXPECT_THROW(read(text), core::Error) << text;
  EXPECT_FALSE(read_generation_config("none").samples);
}

}  // namespace
}  // namespace finetune::train::generation_config_test
