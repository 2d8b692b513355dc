// SPDX-License-Identifier: Apache-2.0
// What others' keys say of low-rank matrices: where they lie, what they begin with, how fast they
// learn.
#include <gtest/gtest.h>

#include "support/messages.hpp"
#include "unit/migrate/sample.hpp"

namespace finetune::migrate::tests::adapter_test {
namespace {

using finetune::tests::expect_message;

const std::string axolotl = least + "adapter: lora\nlora_target_modules: [q_proj]\n";
const std::string llama_factory =
    "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ndataset: d.json\n"
    "lora_target: q_proj\n";

TEST(MigrateAdapter, TakesOverExperts) {
  const std::string made = deck(axolotl + "lora_target_parameters: [mlp.experts.down_proj]\n");
  EXPECT_TRUE(has_line(made, "target_parameters = \"mlp.experts.down_proj\"")) << made;
}

TEST(MigrateAdapter, TakesOverWhatMatricesBeginWith) {
  const auto begins = [](const std::string& text, const std::string& as) {
    const std::string made = deck(text);
    EXPECT_TRUE(has_line(made, "init = \"" + as + "\"")) << made;
  };
  begins(axolotl + "peft_init_lora_weights: pissa_niter_4\n", "pissa_niter_4");
  begins(axolotl + "peft_init_lora_weights: olora\n", "olora");
  begins(llama_factory + "pissa_init: true\n", "pissa_niter_16");
  begins(llama_factory + "pissa_init: true\npissa_iter: 4\n", "pissa_niter_4");
  begins(llama_factory + "pissa_init: true\npissa_iter: -1\n", "pissa");
  for (const std::string usual : {"true", "gaussian"})
    EXPECT_EQ(deck(axolotl + "peft_init_lora_weights: " + usual + "\n").find("\ninit"),
              std::string::npos);
  EXPECT_EQ(deck(llama_factory + "pissa_init: false\n").find("\ninit"), std::string::npos);
}

TEST(MigrateAdapter, WritesNoNumberOfIterationsThatADeckRefuses) {
  for (const char* number : {"0", "-2", "1001"}) {
    const std::string made = deck(llama_factory + "pissa_init: true\npissa_iter: " + number + "\n");
    EXPECT_TRUE(has_line(made, "init = \"pissa\"")) << made;
    EXPECT_NE(made.find(std::string("#   pissa_iter = ") + number + ": adapter.init takes from 1"),
              std::string::npos)
        << made;
  }
  EXPECT_TRUE(
      has_line(deck(axolotl + "peft_init_lora_weights: pissa_niter_0\n"), "init = \"pissa\""));
  EXPECT_NE(refusal(axolotl + "peft_init_lora_weights: pissa_niter_x\n").find("adapter.init=lora"),
            std::string::npos);
}

TEST(MigrateAdapter, TakesAnOptimizerWithRatesOfPartsWhereTheseHaveOne) {
  const std::string eight = "optimizer: adamw_bnb_8bit\n", ratio = "loraplus_lr_ratio: 16\n";
  const std::string made = deck(axolotl + eight + ratio);
  EXPECT_TRUE(has_line(made, "name = \"adamw\"")) << made;
  EXPECT_NE(made.find("adamw8bit has one learning rate for all"), std::string::npos) << made;
  EXPECT_TRUE(has_line(deck(axolotl + eight), "name = \"adamw8bit\""));
}

TEST(MigrateAdapter, StopsAtOtherStarts) {
  EXPECT_NE(refusal(axolotl + "peft_init_lora_weights: eva\n").find("adapter.init=lora"),
            std::string::npos);
  expect_message(
      refusal(least + "adapter: qlora\nload_in_4bit: true\nlora_target_modules: [q_proj]\n"
                      "peft_init_lora_weights: pissa\n"),
      "", {"4"});
}

TEST(MigrateAdapter, TakesOverTheRateOfAnEmbedding) {
  const std::string made = deck(least +
                                "adapter: lora\nlora_target_modules: [embed_tokens, q_proj]\n"
                                "loraplus_lr_ratio: 16\nloraplus_lr_embedding: 1e-5\n");
  EXPECT_TRUE(has_line(made, "loraplus_embedding_lr_ratio = 0.1")) << made;
  EXPECT_EQ(deck(axolotl + "loraplus_lr_embedding: 1e-5\n").find("embedding_lr"),
            std::string::npos);
}

}  // namespace
}  // namespace finetune::migrate::tests::adapter_test
