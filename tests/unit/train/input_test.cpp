// SPDX-License-Identifier: Apache-2.0
#include "train/input/input.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "comm/agree.hpp"
#include "registry.hpp"
#include "support/golden.hpp"
#include "support/ranks.hpp"
#include "unit/data/fake.hpp"

namespace finetune::train::input_test {
namespace {

using tests::TemporaryFolder;

TEST(Resolve, LooksHereThenBesideTheDeck) {
  const TemporaryFolder folder;
  folder.write("beside.json", "{}");
  const auto deck = folder.path() / "input.toml";
  EXPECT_EQ(resolve("beside.json", deck), folder.path() / "beside.json");
  EXPECT_EQ(resolve("nowhere.json", deck), "nowhere.json");
  EXPECT_EQ(resolve(folder.path() / "absolute.json", deck), folder.path() / "absolute.json");
}

TEST(Resolve, LeavesOutDetours) {
  const TemporaryFolder folder;
  folder.write("beside.json", "{}");
  std::filesystem::create_directory(folder.path() / "decks");
  EXPECT_EQ(resolve("../beside.json", folder.path() / "decks" / "input.toml"),
            folder.path() / "beside.json");
}

TEST(Resolve, PrefersTheCurrentFolder) {
  const TemporaryFolder folder;
  const std::string name = "finetune-resolve-" + std::to_string(::getpid());
  folder.write(name, "");
  std::ofstream(std::filesystem::current_path() / name) << "";
  EXPECT_EQ(resolve(name, folder.path() / "input.toml"), name);
  std::filesystem::remove(name);
}

class ReadInput : public testing::Test {
 protected:
  /// Reads a deck about the golden Llama; only the root's file counts.
  Input read(const std::string& more, const std::vector<std::string>& overrides = {}) {
    const auto path =
        folder_.write("input.toml", tests::world().is_root()
                                        ? "[model]\npath = \"" +
                                              tests::golden("models/llama").string() + "\"\n" + more
                                        : "not TOML on other ranks");
    return train::read(tests::world(), path, overrides, modules::registry());
  }
  std::string refusal(const std::string& more) {
    try {
      read(more);
    } catch (const comm::AgreedError& error) {
      return error.what();
    }
    return "nothing thrown";
  }

  const TemporaryFolder folder_;
};

TEST_F(ReadInput, GivesEveryRankTheRootsDeckAndModel) {
  const Input input = read("[data]\npath = \"d.json\"\nmax_seq_length = 32\n",
                           {"train.global_batch=6", "precision.mode=32-true"});
  EXPECT_EQ(input.train.global_batch, 6);
  EXPECT_EQ(input.family->name, "llama");
  EXPECT_GT(input.parameters.num_parameters(), 0);
  EXPECT_EQ(input.data.format_of(0), "auto");
  const plan::PlanInput request =
      input.plan_input({.world_size = 3, .ranks_per_node = 2, .num_nodes = 2, .is_even = false});
  EXPECT_EQ(request.ranks.world_size, 3);
  EXPECT_EQ(request.ranks.ranks_per_node, 2);
  EXPECT_EQ(request.deck, input.deck_path.string());
  EXPECT_EQ(request.global_batch, 6);
  EXPECT_EQ(request.max_seq_length, 32);
  EXPECT_EQ(request.numbers.compute, core::DType::f32);
}

TEST_F(ReadInput, RefusesSequencesLongerThanTheModel) {
  const std::string message = refusal("[data]\npath = \"d.json\"\nmax_seq_length = 1000000\n");
  EXPECT_NE(message.find("data.max_seq_length = 1000000 exceeds the model's"), std::string::npos)
      << message;
}

TEST_F(ReadInput, RefusesPassesLargerThanAStep) {
  const std::string message =
      refusal("[data]\npath = \"d.json\"\n[train]\nglobal_batch = 2\nmicro_batch = 3\n");
  EXPECT_NE(message.find("train.micro_batch = 3 exceeds train.global_batch = 2"), std::string::npos)
      << message;
}

TEST(ReferenceDeck, HasEveryTableOfTheChain) {
  const std::string text = reference_deck(modules::registry());
  for (const char* table : {"[model]", "[data]", "[parallel]", "[precision]", "[optimizer]",
                            "[train]", "[checkpoint]", "[metrics]"}) {
    EXPECT_NE(text.find(table), std::string::npos) << table;
  }
}

}  // namespace
}  // namespace finetune::train::input_test
