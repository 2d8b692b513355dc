// SPDX-License-Identifier: Apache-2.0
// Model folders as files of llama.cpp: bytes that stay, what the package gguf reads, and refusals.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/hash.hpp"
#include "core/json.hpp"
#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::gguf_test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

fs::path quickstart() {
  return source_folder() / "inputs/quickstart/model";
}

Outcome exported(const fs::path& folder, const std::string& model, const std::string& file,
                 const std::string& dtype) {
  return run_program(finetune_on(1, {"export", model, file, "--dtype", dtype}), folder);
}

bool has_reader(const fs::path& folder) {
  return run_program({"env", "python3", "-c", "import gguf, torch, safetensors"}, folder)
             .exit_code == 0;
}

void expect_read(const fs::path& folder, const std::string& file, const std::string& model) {
  const Outcome read = run_program(
      {"env", "python3", source_folder() / "tests/restart/read_gguf.py", file, model}, folder);
  EXPECT_EQ(read.exit_code, 0) << read.text();
}

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
    const Outcome outcome = exported(folder, quickstart(), file, dtype);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
    EXPECT_EQ(core::fingerprint(text_of(folder / file)), fingerprint) << dtype;
    EXPECT_FALSE(fs::exists(folder / (file + ".partial")));
  }
}

TEST(Gguf, IsWhatThePackageReads) {
  const fs::path folder = empty_folder("gguf.read");
  if (!has_reader(folder)) GTEST_SKIP() << "no Python with gguf, torch and safetensors here";
  for (const char* dtype : {"float16", "bfloat16", "float32", "q8_0"}) {
    const std::string file = std::string(dtype) + ".gguf";
    exported(folder, quickstart(), file, dtype);
    expect_read(folder, file, quickstart());
  }
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    fs::copy(source_folder() / "tests/golden/models" / family, folder / family);
    std::ofstream(folder / family / "tokenizer.json")
        << R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
               "added_tokens": [{"id": 2, "content": "<e>", "special": true}],
               "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})";
    const Outcome outcome = exported(folder, family, std::string(family) + ".gguf", "bfloat16");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
    expect_read(folder, std::string(family) + ".gguf", family);
  }
}

TEST(Gguf, SaysWhatItCannotHold) {
  const fs::path folder = empty_folder("gguf.refused");
  const auto refused = [&](const std::string& model, const std::string& file,
                           const std::string& dtype, int code, const std::string& part) {
    const Outcome outcome = exported(folder, model, file, dtype);
    EXPECT_EQ(outcome.exit_code, code) << outcome.text();
    EXPECT_NE(outcome.text().find(part), std::string::npos) << outcome.text();
    EXPECT_FALSE(fs::exists(folder / (file + ".partial")));
  };
  refused(source_folder() / "tests/golden/models/qwen3_moe", "a.gguf", "float16", 65,
          "models of this kind (qwen3_moe) are not written as GGUF");
  refused(source_folder() / "tests/golden/models/glm4", "a.gguf", "float16", 65, "(glm4)");
  refused("none", "a.gguf", "float16", 65, "none");
  refused(quickstart(), "a.gguf", "int4", 64, "--dtype");
  refused(quickstart(), "out", "q8_0", 64, "is for a file that ends in .gguf");
  std::ofstream(folder / "there.gguf") << "x";
  refused(quickstart(), "there.gguf", "float16", 73, "is there already");
  EXPECT_EQ(text_of(folder / "there.gguf"), "x");
}

}  // namespace
}  // namespace finetune::tests::gguf_test
