// SPDX-License-Identifier: Apache-2.0
// Model folders as files of llama.cpp: bytes that stay, what the package gguf reads, and refusals.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/hash.hpp"
#include "core/json.hpp"
#include "restart/gguf_files.hpp"
#include "restart/job.hpp"
#include "support/golden_models.hpp"
#include "support/material.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::gguf_test {
namespace {

namespace fs = std::filesystem;

/// Files that the package gguf has read, tensor by tensor.
TEST(Gguf, HasTheBytesThatWereRead) {
  const fs::path folder = empty_folder("gguf.bytes");
  const std::pair<const char*, const char*> known[] = {
      {"float16", "e5a6b83aa26f27ce5c95ef4844bfee8c"},
      {"bfloat16", "af1543a7972a534f96c2c46ea201a3bd"},
      {"float32", "4ac1007070182460823a3f95142b5f4a"},
      {"q8_0", "fa392968251de8b5410e5ae87a5111fe"}};
  for (const auto& [dtype, fingerprint] : known) {
    const std::string file = std::string(dtype) + ".gguf";
    const Outcome outcome = exported_gguf(folder, quickstart_model(), file, dtype);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_EQ(core::fingerprint(read_file(folder / file)), fingerprint) << dtype;
    EXPECT_FALSE(fs::exists(folder / (file + ".partial")));
  }
}

TEST(Gguf, IsWhatThePackageReads) {
  const fs::path folder = empty_folder("gguf.read");
  if (!has_gguf_reader(folder)) GTEST_SKIP() << "no Python with gguf, torch and safetensors here";
  for (const char* dtype : {"float16", "bfloat16", "float32", "q8_0"}) {
    const std::string file = std::string(dtype) + ".gguf";
    exported_gguf(folder, quickstart_model(), file, dtype);
    expect_read_gguf(folder, file, quickstart_model());
  }
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    fs::copy(golden_model(family), folder / family);
    std::ofstream(folder / family / "tokenizer.json")
        << R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
               "added_tokens": [{"id": 2, "content": "<e>", "special": true}],
               "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})";
    const Outcome outcome =
        exported_gguf(folder, family, std::string(family) + ".gguf", "bfloat16");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
    expect_read_gguf(folder, std::string(family) + ".gguf", family);
  }
}

TEST(Gguf, HasTheSameGreedyTextInLlamaCpp) {
  const fs::path folder = empty_folder("gguf.run_there");
  if (!has_llama_cpp(folder)) GTEST_SKIP() << "no Python with llama_cpp here";
  expect_same_greedy_text(folder, quickstart_model(), "The river");
  // A tokenizer of SentencePiece's pieces.
  const fs::path pieces = material("weights/stories260K-hf");
  if (fs::exists(pieces)) expect_same_greedy_text(folder, pieces, "Once upon a time");
}

/// A tiny Llama with this tokenizer.
std::string model_with(const fs::path& folder, const std::string& name,
                       const core::Json& tokenizer) {
  fs::copy(golden_model("llama"), folder / name);
  std::ofstream(folder / name / "tokenizer.json") << tokenizer.dump();
  return name;
}

core::Json byte_level(bool cuts) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", cuts}};
}

core::Json split(const std::string& expression) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", expression}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

core::Json bytes(const core::Json& steps) {
  return {{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
          {"added_tokens", {{{"id", 2}, {"content", "<e>"}, {"special", true}}}},
          {"model",
           {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", core::Json::array()}}}};
}

const std::string llama_expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string qwen_expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string tekken_expression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// A key whose value is a text, as the file has it: lengths of 64 bits.
bool says(const std::string& file, const std::string& key, const std::string& value) {
  const std::size_t at = file.find(key);
  if (at == std::string::npos) return false;
  return file.substr(at + key.size() + 12, value.size()) == value &&
         static_cast<std::size_t>(file[at + key.size() + 4]) == value.size();
}

TEST(Gguf, NamesTheWayThatTextIsCutByTheWholeOfIt) {
  const fs::path folder = empty_folder("gguf.cutting");
  const core::Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const std::pair<const char*, core::Json> known[] = {
      {"gpt-2", core::Json::array({byte_level(true)})},
      {"smollm", {digits, byte_level(true)}},
      {"llama-bpe", {split(llama_expression), byte_level(false)}},
      {"qwen2", {split(qwen_expression), byte_level(false)}},
      {"tekken", {split(tekken_expression), byte_level(false)}}};
  for (const auto& [name, steps] : known) {
    const std::string model = model_with(folder, name, bytes(steps));
    const Outcome outcome = exported_gguf(folder, model, model + ".gguf", "float32");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_TRUE(says(read_file(folder / (model + ".gguf")), "tokenizer.ggml.pre", name)) << name;
  }
  core::Json spaced = byte_level(true), inverted = split(qwen_expression);
  spaced["add_prefix_space"] = true;
  inverted["invert"] = true;
  const std::pair<const char*, core::Json> others[] = {
      {"spaced", core::Json::array({spaced})},
      {"twice", {split(llama_expression), byte_level(true)}},
      {"other", {split(llama_expression + "|x"), byte_level(false)}},
      {"inverted", {inverted, byte_level(false)}},
      {"more", {digits, split(qwen_expression), byte_level(false)}},
      {"groups", {{{"type", "Digits"}, {"individual_digits", false}}, byte_level(true)}}};
  for (const auto& [name, steps] : others) {
    const std::string model = model_with(folder, name, bytes(steps));
    const Outcome outcome = exported_gguf(folder, model, model + ".gguf", "float32");
    EXPECT_EQ(outcome.exit_code, 65) << name << outcome.text();
    EXPECT_EQ(count(outcome.text(), "its tokenizer cuts text in a way that has no name"), 1)
        << outcome.text();
    EXPECT_FALSE(fs::exists(folder / (model + ".gguf"))) << name;
  }
}

TEST(Gguf, RefusesPositionsThatItsReadersWouldComputeOtherwise) {
  const fs::path folder = empty_folder("gguf.positions");
  const auto refused = [&](const char* family, const std::string& name, const core::Json& changes,
                           const std::string& part) {
    fs::copy(golden_model(family), folder / name);
    std::ofstream(folder / name / "tokenizer.json")
        << bytes(core::Json::array({byte_level(true)})).dump();
    core::Json config = core::Json::parse(read_file(folder / name / "config.json"));
    config.update(changes);
    std::ofstream(folder / name / "config.json") << config.dump();
    const Outcome outcome = exported_gguf(folder, name, name + ".gguf", "float32");
    EXPECT_EQ(outcome.exit_code, part.empty() ? 0 : 65) << name << outcome.text();
    EXPECT_EQ(part.empty() || outcome.text().find(part) != std::string::npos, true)
        << outcome.text();
  };
  const core::Json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  const auto with = [&](const char* key, const core::Json& value) {
    core::Json changed = yarn;
    changed[key] = value;
    return core::Json({{"rope_scaling", changed}, {"rope_parameters", nullptr}});
  };
  refused("llama", "plain", with("factor", 4.0), "");
  refused("llama", "fast", with("beta_fast", 16.0), "beta_fast");
  refused("llama", "attention", with("attention_factor", 1.0), "attention_factor");
  refused("mistral", "window", {{"sliding_window", 8}}, "see a window");
  refused("qwen2", "some",
          {{"use_sliding_window", true},
           {"sliding_window", 8},
           {"max_window_layers", 1},
           {"layer_types", nullptr}},
          "see a window");
}

// The tokens of SentencePiece: what is merged first scores most.
TEST(Gguf, HoldsPiecesWithScores) {
  const fs::path folder = empty_folder("gguf.pieces");
  core::Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int i = 0; i < 256; ++i) {
    const char* digits = "0123456789ABCDEF";
    vocab[std::string("<0x") + digits[i / 16] + digits[i % 16] + ">"] = 3 + i;
  }
  core::Json added = core::Json::array();
  for (int i = 0; i < 3; ++i)
    added.push_back({{"id", i},
                     {"content", i == 0   ? "<unk>"
                                 : i == 1 ? "<s>"
                                          : "</s>"},
                     {"special", true}});
  int next = 259;
  for (const char* piece : {"\u2581", "a", "b", "ab", "\u2581ab"})
    vocab[piece] = next++;
  const core::Json prepares = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "\u2581"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}};
  core::Json tokenizer = {{"normalizer", prepares},
                          {"pre_tokenizer", nullptr},
                          {"added_tokens", added},
                          {"model",
                           {{"type", "BPE"},
                            {"byte_fallback", true},
                            {"unk_token", "<unk>"},
                            {"vocab", vocab},
                            {"merges", {"a b", "\u2581 ab"}}}}};
  const auto write = [&](const std::string& name) { return model_with(folder, name, tokenizer); };
  const std::string model = write("pieces");
  const Outcome outcome = exported_gguf(folder, model, "pieces.gguf", "float32");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const std::string file = read_file(folder / "pieces.gguf");
  EXPECT_TRUE(says(file, "tokenizer.ggml.model", "llama"));
  const std::size_t scores = file.find("tokenizer.ggml.scores");
  ASSERT_NE(scores, std::string::npos);
  // Behind the key: two types of 4 bytes and a length of 8.
  const auto score = [&](int token) {
    float value = 0;
    std::memcpy(&value, file.data() + scores + 21 + 16 + 4 * token, sizeof value);
    return value;
  };
  EXPECT_EQ(score(0), 0);
  EXPECT_EQ(score(262), 0) << "ab is merged first";
  EXPECT_EQ(score(263), -1);
  EXPECT_EQ(score(260), -2) << "nothing is merged to a";
  tokenizer["normalizer"]["normalizers"].push_back({{"type", "NFKC"}});
  write("prepared");
  const Outcome refused = exported_gguf(folder, "prepared", "prepared.gguf", "float32");
  EXPECT_EQ(refused.exit_code, 65) << refused.text();
  EXPECT_EQ(count(refused.text(), "prepares text in a way that has no name"), 1) << refused.text();
}

TEST(Gguf, OfARunIsThatOfItsExport) {
  const Job job("gguf.run", {"train.max_steps=2", "checkpoint.save_steps=0"});
  ASSERT_EQ(job.run(1).exit_code, 0);
  const auto finetune = [&](const Words& words) { return run_finetune(1, words, job.folder()); };
  ASSERT_EQ(finetune({"export", "output", "run", "--dtype", "float32"}).exit_code, 0);
  ASSERT_EQ(finetune({"export", "run", "folder.gguf", "--dtype", "q8_0"}).exit_code, 0);
  const Outcome outcome = finetune({"export", "output", "run.gguf", "--dtype", "q8_0"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_TRUE(read_file(job.folder() / "run.gguf") == read_file(job.folder() / "folder.gguf"));
  for (const auto& entry : fs::directory_iterator(job.folder()))
    EXPECT_EQ(entry.path().string().find(".tmp."), std::string::npos) << entry.path();
  EXPECT_EQ(finetune({"export", "output", "run.gguf"}).exit_code, 73);
}

TEST(Gguf, SaysWhatItCannotHold) {
  const fs::path folder = empty_folder("gguf.refused");
  const auto refused = [&](const std::string& model, const std::string& file,
                           const std::string& dtype, int code, const std::string& part) {
    const Outcome outcome = exported_gguf(folder, model, file, dtype);
    EXPECT_EQ(outcome.exit_code, code) << outcome.text();
    EXPECT_NE(outcome.text().find(part), std::string::npos) << outcome.text();
    EXPECT_FALSE(fs::exists(folder / (file + ".partial")));
  };
  refused(golden_model("qwen3_moe"), "a.gguf", "float16", 65, "some of its layers have no experts");
  refused(golden_model("olmoe"), "a.gguf", "float16", 65, "fewer key heads than heads");
  refused(golden_model("glm4"), "a.gguf", "float16", 65, "(glm4)");
  refused("none", "a.gguf", "float16", 65, "none");
  refused(quickstart_model(), "a.gguf", "int4", 64, "--dtype");
  refused(quickstart_model(), "out", "q8_0", 64, "is for a file that ends in .gguf");
  std::ofstream(folder / "there.gguf") << "x";
  refused(quickstart_model(), "there.gguf", "float16", 73, "is there already");
  EXPECT_EQ(read_file(folder / "there.gguf"), "x");
}

}  // namespace
}  // namespace finetune::tests::gguf_test
