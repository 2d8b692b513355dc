// SPDX-License-Identifier: Apache-2.0
#include "model_card.hpp"

#include <gtest/gtest.h>

namespace finetune::app::model_card_test {
namespace {

core::Json state_json() {
  return {{"step", 30},
          {"validation_loss", 1.25},
          {"model_folder", "/home/someone/models/Tiny"},
          {"build", "finetune 0.1.0; compiler GNU; cuda off; "},
          {"deck",
           "[model]\npath = \"/home/someone/models/Tiny\"\n[data]\npath = "
           "\"/scratch/someone/a_b.json\"\n"
           "validation_path = \"../held_out.json\"\n"},
          {"fixed",
           {{"data.format", "\"alpaca\""},
            {"model.path", "\"Tiny\""},
            {"data.template", "\"/home/someone/x\""},
            {"optimizer.lr", "0.001"}}}};
}

checkpoint::RunState state() {
  return checkpoint::RunState::from_json(state_json());
}

TEST(ModelCard, NamesBaseModelDataStepsLossAndSettings) {
  EXPECT_EQ(model_card(state(), "some-org/Tiny_1"),
            "---\n"
            "base_model: \"some-org/Tiny_1\"\n"
            "library_name: transformers\n"
            "# license: yours to add; it has to agree with that of the base model and of the data\n"
            "---\n\n"
            "# some-org/Tiny\\_1, fine-tuned\n\n"
            "What it is for, what it was trained on and what it cannot do: yours to add.\n\n"
            "| | |\n|---|---|\n"
            "| base model | some-org/Tiny\\_1 |\n"
            "| trained on | a\\_b.json |\n"
            "| validated on | held\\_out.json |\n"
            "| optimizer steps | 30 |\n"
            "| validation loss | 1.25 |\n"
            "| made with | finetune 0.1.0 |\n"
            "\nSettings of the run:\n\n"
            "```toml\ndata.format = \"alpaca\"\noptimizer.lr = 0.001\n```\n");
}

TEST(ModelCard, NeverNamesFolders) {
  const std::string card = model_card(state(), base_model_name({}, "/home/someone/models/Tiny/"));
  EXPECT_EQ(card.find("someone"), std::string::npos) << card;
  EXPECT_NE(card.find("base_model: \"Tiny\"\n"), std::string::npos) << card;
}

TEST(ModelCard, LeavesOutWhatIsNotKnown) {
  const std::string card = model_card({.step = 3, .deck = "not = [a deck"}, "x");
  EXPECT_NE(card.find("| optimizer steps | 3 |"), std::string::npos);
  for (const char* part : {"validation loss", "trained on |", "Settings"})
    EXPECT_EQ(card.find(part), std::string::npos) << card;
}

TEST(ModelCard, BaseModelIsCalledAsOnTheHubWhereThatIsKnown) {
  const auto name = [](const char* field, const char* folder) {
    return base_model_name({{"_name_or_path", field}}, folder);
  };
  EXPECT_EQ(name("org/model-7B", "/data/m"), "org/model-7B");
  EXPECT_EQ(name("/home/someone/model", "/data/m"), "m");
  EXPECT_EQ(name("../models/x", "m/"), "m");
  EXPECT_EQ(name("", "/cache/hub/models--org--model-7B/snapshots/0123abcd"), "org/model-7B");
  EXPECT_EQ(name("", "/"), "unknown");
}

TEST(ModelCard, MarkupInNamesStaysText) {
  checkpoint::RunState hostile = state();
  hostile.deck = "[data]\npath = \"<img onload=x>|`a`.json\"\n";
  const std::string card = model_card(hostile, "a\nlicense: mit");
  EXPECT_NE(card.find("base_model: \"a\\nlicense: mit\"\n"), std::string::npos) << card;
  EXPECT_NE(card.find("| \\<img onload=x\\>\\|\\`a\\`.json |"), std::string::npos) << card;
}

TEST(GenerationConfig, HoldsTheSpecialTokensOfTheModel) {
  const core::Json made = core::parse_json(
      generation_config({{"bos_token_id", 1}, {"eos_token_id", {2, 3}}, {"pad_token_id", nullptr}}),
      "test");
  EXPECT_EQ(
      made,
      (core::Json{{"_from_model_config", true}, {"bos_token_id", 1}, {"eos_token_id", {2, 3}}}));
}

}  // namespace
}  // namespace finetune::app::model_card_test
