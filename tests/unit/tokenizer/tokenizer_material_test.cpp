// SPDX-License-Identifier: Apache-2.0
// Token for token on published tokenizers, with the vectors of llama.cpp. Skipped without them.

#include "tokenizer_files.hpp"

#include <sstream>
#include <vector>

#include "core/file.hpp"

namespace finetune::tokenizer::test::tokenizer_material_test {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr const char* absent = "set FINETUNE_MATERIAL to the folder with the published tokenizers";

struct Vector {
  std::string text;
  Ids ids;
};

/// `*.inp`: texts between separator lines. `*.out`: ids, a line each, without a begin token.
std::vector<Vector> vectors(const std::string& name) {
  const auto base = material("conformance/llama.cpp-vocab/ggml-vocab-" + name + ".gguf").string();
  const std::string texts = core::read_text(base + ".inp", 1 << 20);
  std::istringstream lines(core::read_text(base + ".out", 1 << 20));
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<Vector> result;
  std::size_t begin = 0;
  for (std::size_t end = texts.find(separator); end != std::string::npos;
       end = texts.find(separator, begin)) {
    std::string line;
    std::getline(lines, line);
    std::istringstream numbers(line);
    Vector vector{texts.substr(begin, end - begin), {}};
    for (std::int32_t id = 0; numbers >> id;)
      vector.ids.push_back(id);
    result.push_back(vector);
    begin = end + separator.size();
  }
  return result;
}

/// GPT-2 is published as vocab.json and merges.txt.
Tokenizer gpt2(const ModelFolder& folder) {
  std::istringstream lines(core::read_text(material("tokenizers/gpt2/gpt2_merges.txt"), 1 << 22));
  Json merges = Json::array();
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) merges.push_back(line);
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return folder.load(
      {{"pre_tokenizer", byte_level},
       {"decoder", byte_level},
       {"model",
        {{"type", "BPE"},
         {"vocab", core::read_json(material("tokenizers/gpt2/gpt2_vocab.json"), 1 << 22)},
         {"merges", merges}}}});
}

struct Published {
  const char* vectors;
  const char* tokenizer;
  std::size_t num_begin_tokens;
  const char* file = "tokenizer.json";
};

class PublishedTokenizer : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedTokenizer, GivesTheIdsOfTheVectors) {
  const Published& published = GetParam();
  const auto folder = material(std::string("tokenizers/") + published.tokenizer);
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << absent;
  const ModelFolder made;
  const bool is_gpt2 = std::string(published.tokenizer) == "gpt2";
  if (!is_gpt2)
    std::filesystem::create_symlink(std::filesystem::absolute(folder / published.file),
                                    made.path() / published.file);
  const Tokenizer tokenizer = is_gpt2 ? gpt2(made) : Tokenizer::load(made.path());
  const auto all = vectors(published.vectors);
  ASSERT_EQ(all.size(), 46U);
  for (const Vector& vector : all) {
    Ids ids = tokenizer.encode(vector.text, Encode::document);
    ASSERT_GE(ids.size(), published.num_begin_tokens);
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(published.num_begin_tokens));
    EXPECT_EQ(ids, vector.ids) << vector.text;
    EXPECT_EQ(tokenizer.decode(ids), vector.text);
  }
}

INSTANTIATE_TEST_SUITE_P(LlamaCpp, PublishedTokenizer,
                         ::testing::Values(Published{"gpt-2", "gpt2", 0},
                                           Published{"llama-bpe", "llama3", 1},
                                           Published{"llama-spm", "llama2", 1},
                                           Published{"llama-bpe", "llama3", 1, "tokenizer.model"},
                                           Published{"llama-spm", "llama2", 1, "tokenizer.model"},
                                           Published{"qwen2", "qwen2.5", 0}),
                         [](const auto& info) {
                           std::string name = info.param.tokenizer;
                           name += info.param.file + std::string_view("tokenizer").size();
                           std::erase(name, '.');
                           return name;
                         });

TEST(Stories260K, GivesTheIdsOfItsVectors) {
  const auto folder = material("weights/stories260K-hf");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << absent;
  const Tokenizer tokenizer = Tokenizer::load(folder);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  const Json expected = core::read_json(folder / "expected.json", 1 << 24);
  for (const Json& vector : expected.at("encode_vectors")) {
    const auto text = vector.at("text").get<std::string>();
    EXPECT_EQ(tokenizer.encode(text, Encode::document), vector.at("ids").get<Ids>()) << text;
  }
}

TEST(PublishedTokenizers, NameTheirEndTokens) {
  if (!std::filesystem::exists(material("tokenizers"))) GTEST_SKIP() << absent;
  const auto load = [](const char* name) {
    return Tokenizer::load(material(std::string("tokenizers/") + name));
  };
  const Tokenizer qwen3 = load("qwen3");
  EXPECT_EQ(qwen3.eos_id(), qwen3.id("<|im_end|>"));
  EXPECT_EQ(qwen3.bos_id(), std::nullopt);
  EXPECT_EQ(qwen3.vocab_size(), 151669);
  const Tokenizer mistral = load("mistral-7b-instruct-v0.3");
  EXPECT_EQ(mistral.eos_id(), 2);
  EXPECT_EQ(mistral.bos_id(), 1);
  EXPECT_EQ(mistral.vocab_size(), 32768);
}

TEST(PublishedTokenizers, SplitOneTextIntoPromptAndAnswer) {
  if (!std::filesystem::exists(material("tokenizers"))) GTEST_SKIP() << absent;
  for (const char* name : {"llama2", "mistral-7b-instruct-v0.3", "llama3", "qwen2.5"}) {
    const Tokenizer tokenizer = Tokenizer::load(material(std::string("tokenizers/") + name));
    Ids ids = tokenizer.encode("The answer is:", Encode::document);
    const Ids answer = tokenizer.encode(" forty-two.", Encode::continuation);
    ids.insert(ids.end(), answer.begin(), answer.end());
    EXPECT_EQ(ids, tokenizer.encode("The answer is: forty-two.", Encode::document)) << name;
  }
}

}  // namespace
}  // namespace finetune::tokenizer::test::tokenizer_material_test
