// SPDX-License-Identifier: Apache-2.0
// A real, small, trained model (stories260K): greedy text, logits and losses that transformers
// gives.

#include <gtest/gtest.h>

#include "core/file.hpp"
#include "core/json.hpp"
#include "model/rope.hpp"
#include "registry.hpp"
#include "support/golden.hpp"
#include "support/material.hpp"
#include "support/ranks.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/infer/generate.hpp"
#include "train/infer/loaded_model.hpp"

namespace finetune::stories_test {
namespace {

class Stories : public testing::Test {
 protected:
  void SetUp() override {
    REQUIRE_MATERIAL(folder_);
    expected_ = core::read_json(folder_ / "expected.json", 1 << 20);
    loaded_ = std::make_unique<train::LoadedModel>(folder_, modules::registry(), tests::world(),
                                                   core::DType::f32);
    tokenizer_.emplace(tokenizer::Tokenizer::load(folder_));
  }

  const std::filesystem::path folder_ = tests::material("weights/stories260K-hf");
  core::Json expected_;
  std::unique_ptr<train::LoadedModel> loaded_;
  std::optional<tokenizer::Tokenizer> tokenizer_;
};

TEST_F(Stories, TellsTheStoryThatTransformersTells) {
  const auto all = expected_["greedy_from_bos_200"].get<std::vector<std::int32_t>>();
  const std::vector<std::int32_t> bos = {all.front()};
  const auto tokens = train::generate(loaded_->engine(), bos, {.max_tokens = 200, .stop = {}});
  EXPECT_EQ(tokens, std::vector<std::int32_t>(all.begin() + 1, all.end()));
  EXPECT_EQ(tokenizer_->decode(tokens), expected_["greedy_text"].get<std::string>());
}

TEST_F(Stories, GivesTheLogitsOfTransformers) {
  const auto ids = tokenizer_->encode("Once upon a time", tokenizer::Encode::document);
  const at::Tensor tensor = at::tensor(at::ArrayRef<std::int32_t>(ids), at::kInt).to(at::kLong);
  const auto sequence = model::make_sequence(loaded_->architecture(), 1, std::ssize(ids));
  const at::Tensor logits =
      train::logits(loaded_->engine(), tensor, sequence, train::Positions::last).contiguous();
  const auto expected = expected_["logits_once_upon_a_time_last_row"].get<std::vector<float>>();
  ASSERT_EQ(logits.numel(), std::ssize(expected));
  EXPECT_LT(tests::largest_difference({logits.data_ptr<float>(), expected.size()}, expected), 3e-5);
}

TEST_F(Stories, HasTheLossesOfTransformersOnNewStories) {
  const auto path = tests::material("conformance/cs336/tinystories_sample.txt");
  REQUIRE_MATERIAL(path);
  const std::string text = core::read_text(path, 1 << 20);
  const std::string separator = "<|endoftext|>";
  std::size_t first = 0;
  for (const core::Json& story : expected_["tinystories_sample_loss"]) {
    const std::size_t end = text.find(separator, first);
    std::string words = text.substr(first, end - first);
    words = words.substr(words.find_first_not_of('\n'));
    words = words.substr(0, words.find_last_not_of('\n') + 1);
    first = end + separator.size();
    const auto ids = tokenizer_->encode(words, tokenizer::Encode::document);
    ASSERT_EQ(std::ssize(ids), story["tokens"].get<std::int64_t>());
    data::MicroBatch batch{.batch = 1, .length = std::ssize(ids) - 1, .ids = {}, .labels = {}};
    batch.ids.assign(ids.begin(), ids.end() - 1);
    batch.labels.assign(ids.begin() + 1, ids.end());
    const auto sum = train::forward(loaded_->engine(), batch);
    EXPECT_NEAR(sum.loss / sum.weight, story["mean_nll"].get<double>(), 1e-5);
  }
}

}  // namespace
}  // namespace finetune::stories_test
