// SPDX-License-Identifier: Apache-2.0
#include "restart/gguf_files.hpp"
#include "restart/job.hpp"
#include "support/folders.hpp"

#include <gtest/gtest.h>

namespace finetune::tests {
namespace {

namespace fs = std::filesystem;

Outcome python(const fs::path& folder, const Words& words) {
  return run_program(with({"env", "python3"}, words), folder);
}

}  // namespace

fs::path quickstart_model() {
  return source_folder() / "inputs/quickstart/model";
}

Outcome exported_gguf(const fs::path& folder, const std::string& model, const std::string& file,
                      const std::string& dtype) {
  return run_finetune(1, {"export", model, file, "--dtype", dtype}, folder);
}

bool has_gguf_reader(const fs::path& folder) {
  return python(folder, {"-c", "import gguf, torch, safetensors"}).exit_code == 0;
}

bool has_llama_cpp(const fs::path& folder) {
  return python(folder, {"-c", "import llama_cpp"}).exit_code == 0;
}

void expect_read_gguf(const fs::path& folder, const std::string& file, const std::string& model) {
  const Outcome read =
      python(folder, {source_folder() / "tests/restart/read_gguf.py", file, model});
  EXPECT_EQ(read.exit_code, 0) << read.text();
}

void expect_same_greedy_text(const fs::path& folder, const fs::path& model,
                             const std::string& prompt) {
  ASSERT_EQ(exported_gguf(folder, model, "run.gguf", "float32").exit_code, 0);
  const Outcome theirs =
      python(folder, {source_folder() / "tests/restart/run_gguf.py", "run.gguf", prompt, "32"});
  ASSERT_EQ(theirs.exit_code, 0) << theirs.text();
  const Outcome ours =
      run_finetune(1, {"generate", model, prompt, "--max-tokens", "32", "--dtype", "fp32"}, folder);
  ASSERT_EQ(ours.exit_code, 0) << ours.text();
  EXPECT_GT(theirs.out.size(), 40u);
  EXPECT_NE(ours.out.find(theirs.out), std::string::npos) << ours.out << "\n" << theirs.out;
  fs::remove(folder / "run.gguf");
}

}  // namespace finetune::tests
