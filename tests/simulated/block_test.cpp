// SPDX-License-Identifier: Apache-2.0
// Launches of one transformer block for one micro-batch, where kernels compute on the GPU as a
// Kokkos with CUDA has them: what a model of two blocks more asks for.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "simulated/simulated_job.hpp"

namespace finetune::tests::simulated_block {
namespace {

namespace fs = std::filesystem;

constexpr int micro_batch = 2;
constexpr int most_samples = 8;

struct Launches {
  double forward = 0;
  double backward = 0;
};

/// Writes `num_samples` samples of 16 tokens.
void write_tokens(const fs::path& path, int num_samples) {
  std::ofstream file(path);
  for (int i = 0; i < num_samples; ++i) {
    file << R"({"input_ids": [)";
    for (int k = 0; k < 16; ++k)
      file << (k == 0 ? "" : ", ") << (7 * i + 11 * k) % 128;
    file << "]}\n";
  }
}

/// A Llama of an 8B's shape but for its sizes, bf16-mixed.
class Model {
 public:
  explicit Model(Words settings) : settings_(std::move(settings)) {}

  /// Of one block, for one micro-batch. Forward is counted in an evaluation, which keeps nothing.
  Launches of_a_block() const {
    const Launches few = of_a_micro_batch(1), many = of_a_micro_batch(3);
    return {(many.forward - few.forward) / 2, (many.backward - few.backward) / 2};
  }

 private:
  Launches of_a_micro_batch(int num_blocks) const {
    const double once = launches(num_blocks, 1, 1);
    // Evaluated before the first step and after the last.
    const double forward = (launches(num_blocks, 1, 2) - once) / 2;
    return {forward, launches(num_blocks, 2, 1) - once - forward};
  }

  /// Of a step of so many micro-batches and an evaluation.
  double launches(int num_blocks, int trained, int evaluated) const {
    const fs::path folder = empty_folder("simulated/block");
    fs::create_directory(folder / "model");
    std::ofstream(folder / "model/config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128,)"
           R"( "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,)"
           R"( "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 64,)"
           R"( "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "num_hidden_layers": )"
        << num_blocks << "}";
    write_tokens(folder / "train.jsonl", most_samples);
    write_tokens(folder / "held_out.jsonl", evaluated * micro_batch);
    std::ofstream(folder / "deck.toml").close();
    Words words = finetune_on(
        1,
        {"deck.toml", "model.path=model", "model.init=random", "data.path=train.jsonl",
         "data.validation_path=held_out.jsonl", "data.format=tokens", "data.max_seq_length=16",
         "precision.mode=bf16-mixed", "train.output=output", "train.max_steps=1",
         "train.activation_checkpointing=none", "train.micro_batch=" + std::to_string(micro_batch),
         "train.global_batch=" + std::to_string(trained * micro_batch), "checkpoint.save_steps=0"});
    words.insert(words.end(), settings_.begin(), settings_.end());
    const Setting kernels("FINETUNE_SIMULATED_KERNELS", "1");
    const Setting report("FINETUNE_SIMULATED_REPORT", (folder / "report").string());
    const Outcome outcome = run_program(on_simulated_gpus(words), folder);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    const Asked asked = read_report(folder / "report.0");
    int num_kernels = 0;
    for (const auto& [operation, count] : asked.launches)
      num_kernels += operation.starts_with("kernel:") ? 1 : 0;
    EXPECT_GT(num_kernels, 5) << "compositions ran in the place of kernels";
    return static_cast<double>(asked.num_launches);
  }

  Words settings_;
};

constexpr int matrices_of_a_block = 7;

const Launches& with_lora() {
  static const Launches block = Model({"adapter.name=lora"}).of_a_block();
  return block;
}

TEST(ABlock, TakesFourteenLaunchesForwardAndTwentyFourBackward) {
  const Launches block = Model({}).of_a_block();
  EXPECT_GT(block.forward, 5);
  EXPECT_GT(block.backward, 10);
  EXPECT_LE(block.forward, 14);
  EXPECT_LE(block.backward, 24);
}

TEST(ABlock, DropsInputsOfAdaptersWithFourLaunchesMorePerMatrix) {
  const Launches& lora = with_lora();
  const Launches dropout = Model({"adapter.name=lora", "adapter.lora_dropout=0.1"}).of_a_block();
  const double more = dropout.forward + dropout.backward - lora.forward - lora.backward;
  EXPECT_GT(more, 0);
  EXPECT_LE(more, 4 * matrices_of_a_block);
}

// Norms: of A and B in fp32 (2), A A^T and B with it, W A^T, and their sum; then factors.
TEST(ABlock, ScalesByMagnitudesWithSevenLaunchesMorePerMatrixAndFourPerProduct) {
  constexpr int products_of_a_block = 4;
  const Launches& lora = with_lora();
  const Launches dora = Model({"adapter.name=lora", "adapter.use_dora=true"}).of_a_block();
  EXPECT_GT(dora.forward, lora.forward);
  EXPECT_LE(dora.forward - lora.forward, 7 * matrices_of_a_block + 4 * products_of_a_block);
  EXPECT_LE(dora.backward - lora.backward, 3 * matrices_of_a_block + 4 * products_of_a_block);
}

TEST(ABlock, UnpacksWithOneLaunchPerMatrixAndPass) {
  const Launches& lora = with_lora();
  for (const char* nested : {"false", "true"}) {
    const Launches qlora =
        Model({"adapter.name=qlora", std::string("adapter.double_quant=") + nested}).of_a_block();
    EXPECT_EQ(qlora.forward, lora.forward + matrices_of_a_block) << nested;
    EXPECT_EQ(qlora.backward, lora.backward + matrices_of_a_block) << nested;
  }
}

}  // namespace
}  // namespace finetune::tests::simulated_block
