// SPDX-License-Identifier: Apache-2.0
#include "plan/settings.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace finetune::plan {
namespace {

template <typename Settings>
Settings read(const std::string& text, const char* name) {
  deck::Deck deck(text, "input.toml", {});
  deck::Table table = deck.table(name, "A table.");
  Settings settings;
  settings.bind(table);
  deck.finish();
  return settings;
}

TEST(PrecisionSettings, NameTheDtypeToComputeIn) {
  const auto dtype = [](const char* text) {
    return read<PrecisionSettings>(text, "precision").compute_dtype();
  };
  EXPECT_EQ(dtype(""), core::DType::bf16);
  EXPECT_EQ(dtype("[precision]\nmode = \"bf16-mixed\"\n"), core::DType::bf16);
  EXPECT_EQ(dtype("[precision]\nmode = \"32-true\"\n"), core::DType::f32);
  EXPECT_THROW(dtype("[precision]\nmode = \"16-mixed\"\n"), core::Error);
}

TEST(ParallelSettings, RefuseShardingThatIsNotThere) {
  const auto sharding = [](const char* text) {
    return read<ParallelSettings>(text, "parallel").sharding;
  };
  EXPECT_EQ(sharding("[parallel]\nsharding = \"FULL_SHARD\"\n"), "FULL_SHARD");
  EXPECT_THROW(sharding("[parallel]\nsharding = \"HYBRID_SHARD\"\n"), core::Error);
}

}  // namespace
}  // namespace finetune::plan
