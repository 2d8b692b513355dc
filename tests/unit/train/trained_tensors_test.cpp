// SPDX-License-Identifier: Apache-2.0
#include "train/input/trained_tensors.hpp"

#include <gtest/gtest.h>

#include "comm/agree.hpp"
#include "registry.hpp"
#include "support/golden.hpp"
#include "support/ranks.hpp"
#include "train/input/detail/optimizer_groups.hpp"
#include "unit/data/fake.hpp"

namespace finetune::train::trained_tensors_test {
namespace {

/// A deck about a model of tests/golden/models; `more` begins below [train].
Input read(const std::string& model, const std::string& more) {
  const tests::TemporaryFolder folder;
  const auto path =
      folder.write("input.toml", "[model]\npath = \"" + tests::golden("models/" + model).string() +
                                     "\"\n[data]\npath = \"d.json\"\n"
                                     "max_seq_length = 32\n[train]\n" +
                                     more);
  return train::read(tests::world(), path, {}, modules::registry());
}

std::string refusal(const std::string& model, const std::string& more) {
  try {
    read(model, more);
  } catch (const comm::AgreedError& error) {
    return error.what();
  }
  return "nothing thrown";
}

/// Parts of names of what is trained, each once.
std::int64_t num_trained(const Input& input, const std::string& part) {
  std::int64_t num = 0;
  for (const model::Parameter& row : input.parameters.rows)
    num += row.trainable && row.name.find(part) != std::string::npos ? 1 : 0;
  return num;
}

TEST(TrainedTensors, AreMatricesThatTheOptimizerTakes) {
  Input input = read("llama", "max_steps = 1\n[optimizer]\nname = \"adafactor\"\n");
  set_optimizer_groups(input);
  input.parameters.rows.front().shape = {std::int64_t{1} << 19, 8};
  EXPECT_NE(
      tests::refusal([&] { set_optimizer_groups(input); }, "")
          .find("optimizer.name = \"adafactor\", but model.embed_tokens.weight is a matrix of "
                "524288 x 8"),
      std::string::npos);
  input.parameters.rows.front().trainable = false;
  set_optimizer_groups(input);
}

TEST(TrainedTensors, AreAllButThoseThatAreNamed) {
  const Input input = read("llama", "frozen = [\"embed_tokens\", \"layers[.]0[.]\"]\n");
  EXPECT_EQ(num_trained(input, "embed_tokens"), 0);
  EXPECT_EQ(num_trained(input, "layers.0."), 0);
  EXPECT_EQ(num_trained(input, "layers.1."), 9);
  EXPECT_EQ(num_trained(input, ""), 11) << "and norm and head";
  EXPECT_EQ(frozen_in_words(input), "layer 0; model.embed_tokens.weight");
}

TEST(TrainedTensors, AreThoseThatAreNamedWithoutWhatIsFrozenOfThem) {
  const Input input = read("llama", "trainable = \"layers\"\nfrozen = [\"norm\", \"q_proj\"]\n");
  EXPECT_EQ(num_trained(input, "layers."), 2 * 6);
  EXPECT_EQ(num_trained(input, ""), 2 * 6);
  EXPECT_EQ(frozen_in_words(input).substr(0, 26), "model.embed_tokens.weight;");
  EXPECT_NE(frozen_in_words(input).find("more tensors"), std::string::npos);
}

TEST(TrainedTensors, AreAllByDefault) {
  const Input input = read("llama", "");
  EXPECT_EQ(input.parameters.num_trainable(), input.parameters.num_parameters());
  EXPECT_EQ(frozen_in_words(input), "");
}

TEST(TrainedTensors, AreWhatGradientsAndMomentsArePlannedFor) {
  const Input all = read("llama", ""), some = read("llama", "frozen = \"layers|embed_tokens\"\n");
  const auto plan_of = [](const Input& input) {
    const auto request =
        input.plan_input({.world_size = 1, .ranks_per_node = 1, .num_nodes = 1, .is_even = true});
    return plan::make(request, input.parameters);
  };
  const plan::Plan of_all = plan_of(all), of_some = plan_of(some);
  EXPECT_EQ(of_some.num_trainable, some.parameters.num_trainable());
  EXPECT_EQ(of_some.num_parameters, of_all.num_parameters);
  // Of a frozen weight the computation's bf16, of a trained one fp32 master weight and moments too.
  const std::int64_t frozen = of_all.num_trainable - of_some.num_trainable;
  EXPECT_LT(of_some.memory_bytes(), of_all.memory_bytes() - 12 * frozen);
}

TEST(TrainedTensors, AreAllExpertsOfALayerOrNone) {
  EXPECT_NE(refusal("qwen3_moe", "frozen = \"experts[.]2[.]\"\n")
                .find("only some experts of layer 1 are frozen"),
            std::string::npos);
  EXPECT_EQ(num_trained(read("qwen3_moe", "frozen = \"experts\"\n"), "experts"), 0);
}

TEST(TrainedTensors, AreNotNamedBesideAnAdapter) {
  EXPECT_NE(refusal("llama", "frozen = \"embed_tokens\"\n[adapter]\nname = \"lora\"\n")
                .find("train.frozen is given beside adapter.name = \"lora\""),
            std::string::npos);
}

}  // namespace
}  // namespace finetune::train::trained_tensors_test
