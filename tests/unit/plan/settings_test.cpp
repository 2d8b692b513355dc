// SPDX-License-Identifier: Apache-2.0
#include "plan/layout/settings.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "support/settings.hpp"

namespace finetune::plan::settings_test {
namespace {

Numbers numbers(const std::string& mode, core::DType reduce_dtype = core::DType::f32) {
  return tests::read_table<PrecisionSettings>("[precision]\nmode = \"" + mode + "\"\n", "precision")
      .numbers(reduce_dtype, Determinism::run);
}

TEST(PrecisionSettings, ComputeInHalfPrecisionWithMasterWeightsByDefault) {
  const Numbers found = tests::read_table<PrecisionSettings>("", "precision")
                            .numbers(core::DType::f32, Determinism::off);
  EXPECT_EQ(found.compute, core::DType::bf16);
  EXPECT_EQ(found.master, core::DType::f32);
  EXPECT_EQ(found.moments, core::DType::f32);
  EXPECT_EQ(found.reduce, core::DType::f32);
  EXPECT_FALSE(found.scales_loss);
}

TEST(PrecisionSettings, NameTheNumberFormats) {
  EXPECT_EQ(numbers("32-true").compute, core::DType::f32);
  EXPECT_EQ(numbers("32-true").master, core::DType::f32);
  EXPECT_EQ(numbers("bf16-true").compute, core::DType::bf16);
  EXPECT_EQ(numbers("bf16-true").master, core::DType::bf16);
  EXPECT_EQ(numbers("bf16-true").moments, core::DType::bf16);
  EXPECT_EQ(numbers("16-mixed").compute, core::DType::f16);
  EXPECT_EQ(numbers("16-mixed").master, core::DType::f32);
  EXPECT_TRUE(numbers("16-mixed").scales_loss);
  EXPECT_THROW(numbers("8-mixed"), core::Error);
}

TEST(PrecisionSettings, ReduceInTheDtypeOfTheDeck) {
  EXPECT_EQ(numbers("bf16-mixed", core::DType::bf16).wire_bytes(), 2);
  EXPECT_EQ(numbers("bf16-mixed", core::DType::f16).reduce, core::DType::f16);
  EXPECT_EQ(numbers("bf16-mixed").wire_bytes(), 4);
}

TEST(Numbers, AreWiderInFixedPoint) {
  const Numbers fixed = PrecisionSettings{}.numbers(core::DType::bf16, Determinism::topology);
  EXPECT_EQ(fixed.sum_bytes(), 8);
  EXPECT_EQ(fixed.wire_bytes(), 8);
  EXPECT_EQ(numbers("bf16-mixed").sum_bytes(), 4);
}

TEST(ParallelSettings, RefuseUnknownShardingsAndNegativeMemory) {
  const auto refused = [](const char* text) {
    EXPECT_THROW(tests::read_table<ParallelSettings>(text, "parallel"), core::Error) << text;
  };
  EXPECT_EQ(
      tests::read_table<ParallelSettings>("[parallel]\nsharding = \"HYBRID_SHARD\"\n", "parallel")
          .sharding,
      Sharding::hybrid_shard);
  refused("[parallel]\nsharding = \"HALF_SHARD\"\n");
  refused("[parallel]\nbucket = \"TENSOR\"\n");
  refused("[parallel]\ndp_shard = -1\n");
  refused("[parallel]\nmemory_gib = -1.0\n");
}

}  // namespace
}  // namespace finetune::plan::settings_test
