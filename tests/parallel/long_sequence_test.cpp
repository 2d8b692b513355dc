// SPDX-License-Identifier: Apache-2.0
// A sequence that one rank need not hold: 65,536 tokens on four ranks, beside the same on one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>

#include "core/json.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::long_sequence_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t length = 65'536;

/// A small model without weights, and one sample of random tokens.
fs::path make_run() {
  const fs::path folder = empty_folder("long_sequence");
  fs::create_directory(folder / "model");
  std::ofstream(folder / "model/config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512,)"
         R"( "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 1,)"
         R"( "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32, "hidden_act": "silu",)"
         R"( "max_position_embeddings": 65536, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,)"
         R"( "tie_word_embeddings": false})";
  std::ofstream data(folder / "data.jsonl");
  data << R"({"input_ids": [)";
  std::uint64_t x = 1;
  for (std::int64_t i = 0; i < length; ++i) {
    x = (1103515245 * x + 12345) % (1ull << 31);
    data << (i == 0 ? "" : ", ") << (x >> 16) % 512;
  }
  data << "]}\n";
  return folder;
}

struct Step {
  double loss = 0;
  double norm = 0;
  double planned_mib = 0;  ///< of tensors
  double used_mib = 0;
};

double mib_after(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words);
  return at == std::string::npos ? 0 : std::stod(text.substr(at + words.size()));
}

Step step_on(int ranks, const fs::path& folder, std::vector<std::string> more) {
  const fs::path output = folder / ("output." + std::to_string(ranks) + more.back());
  const std::vector<std::string> settings = {"model.path=" + (folder / "model").string(),
                                             "model.init=random",
                                             "data.path=" + (folder / "data.jsonl").string(),
                                             "data.format=tokens",
                                             "data.max_seq_length=" + std::to_string(length),
                                             "precision.mode=bf16-mixed",
                                             "train.output=" + output.string(),
                                             "train.max_steps=1",
                                             "train.global_batch=1",
                                             "train.micro_batch=1",
                                             "train.activation_checkpointing=none",
                                             "checkpoint.save_steps=0"};
  std::ofstream deck(folder / "deck.toml");
  deck.close();
  std::vector<std::string> words = {(folder / "deck.toml").string()};
  words.insert(words.end(), settings.begin(), settings.end());
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = run_program(finetune_on(ranks, words), folder);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  Step step{.planned_mib = mib_after(outcome.out, "of which tensors "),
            .used_mib = mib_after(outcome.out, "used by tensors ")};
  std::ifstream rows(output / "metrics.jsonl");
  for (std::string line; std::getline(rows, line);) {
    const core::Json row = core::Json::parse(line);
    if (!row.contains("loss")) continue;
    step.loss = row["loss"].get<double>();
    step.norm = row["grad_norm"].get<double>();
  }
  return step;
}

TEST(ALongSequence, IsSharedByFourRanksThatHoldAQuarterEach) {
  const fs::path folder = make_run();
  const Step alone = step_on(1, folder, {"parallel.cp=1"});
  ASSERT_GT(alone.used_mib, 0);
  EXPECT_NEAR(alone.loss, std::log(512.0), 0.5);
  for (const std::string method : {"RING", "GATHER"}) {
    const Step shared = step_on(4, folder, {"parallel.cp=4", "parallel.cp_method=" + method});
    EXPECT_NEAR(shared.loss, alone.loss, 1e-3 * alone.loss) << method;
    EXPECT_NEAR(shared.norm, alone.norm, 2e-2 * alone.norm) << method;
    // A quarter, and what keys and values of other ranks take on their way.
    EXPECT_LT(shared.used_mib, (method == "RING" ? 0.28 : 0.33) * alone.used_mib) << method;
    EXPECT_NEAR(shared.used_mib, shared.planned_mib, 0.05 * shared.planned_mib) << method;
  }
}

}  // namespace
}  // namespace finetune::tests::long_sequence_test
