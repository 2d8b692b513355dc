// SPDX-License-Identifier: Apache-2.0
// Real instructions through a real tokenizer, where both are at hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "data/text/text_source.hpp"
#include "data/tokens/load.hpp"
#include "formats/alpaca/alpaca.hpp"
#include "support/material.hpp"

namespace finetune::formats::alpaca::real_data_test {
namespace {

namespace fs = std::filesystem;

TEST(AlpacaRealData, EverySampleDecodesToItsPromptAndAnswer) {
  const fs::path path = tests::material("datasets/alpaca/instruction-data.json");
  const fs::path model = tests::material("weights/stories260K-hf");
  if (!fs::exists(path) || !fs::exists(model / "tokenizer.json"))
    GTEST_SKIP() << "no " << path << " or " << model;
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(model);
  data::DatasetOptions options;
  options.max_seq_length = 4096;
  options.vocab_size = tokenizer.vocab_size();
  const auto reader = format().open(path, {});
  const data::TextSource source(format().open(path, {}), format(), {}, {}, tokenizer);
  const data::Loaded loaded = data::load({}, source, format().layout, options);
  EXPECT_EQ(loaded.report.num_samples, 1100);
  EXPECT_EQ(loaded.report.eos_trained, 1100);
  EXPECT_EQ(loaded.report.of(data::SampleKind::overlong).number, 0);
  EXPECT_TRUE(reader->sample(0).where.ends_with("instruction-data.json:2: entry 1"));
  EXPECT_TRUE(reader->sample(1).where.ends_with("instruction-data.json:7: entry 2"));
  for (const std::int64_t i : {0, 1, 2, 500, 1099}) {
    const data::Sample sample = reader->sample(i);
    const data::Tokens tokens = loaded.dataset.tokens(i);
    EXPECT_EQ(tokens.ids.front(), tokenizer.bos_id());
    EXPECT_EQ(tokenizer.decode(tokens.ids), sample.segments[0].text + sample.segments[1].text);
    const auto answer =
        std::find_if(tokens.labels.begin(), tokens.labels.end(), [](int l) { return l >= 0; });
    EXPECT_EQ(tokenizer.decode({answer, tokens.labels.end()}), sample.segments[1].text);
    EXPECT_EQ(tokens.labels.back(), tokenizer.eos_id());
  }
}

}  // namespace
}  // namespace finetune::formats::alpaca::real_data_test
