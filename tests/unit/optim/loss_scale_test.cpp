// SPDX-License-Identifier: Apache-2.0
#include "optim/loss_scale.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace finetune::optim::loss_scale_test {
namespace {

void take(LossScale& scale, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step)
    scale.step_taken();
}

void skip(LossScale& scale, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step)
    scale.step_skipped();
}

TEST(LossScale, BeginsAtTwoToTheSixteenth) {
  EXPECT_EQ(LossScale().scale(), 65536);
}

TEST(LossScale, DoublesAfterTwoThousandGoodSteps) {
  LossScale scale;
  take(scale, 1999);
  EXPECT_EQ(scale.scale(), 65536);
  take(scale, 1);
  EXPECT_EQ(scale.scale(), 131072);
  take(scale, 1999);
  EXPECT_EQ(scale.scale(), 131072);
}

TEST(LossScale, HalvesWhenGradientsOverflow) {
  LossScale scale;
  skip(scale, 2);
  EXPECT_EQ(scale.scale(), 16384);
  EXPECT_EQ(scale.skipped(), 2);
}

TEST(LossScale, CountsGoodStepsAnewAfterAnOverflow) {
  LossScale scale;
  take(scale, 1999);
  skip(scale, 1);
  take(scale, 1999);
  EXPECT_EQ(scale.scale(), 32768);
  EXPECT_EQ(scale.skipped(), 0);
  take(scale, 1);
  EXPECT_EQ(scale.scale(), 65536);
}

TEST(LossScale, StaysAtItsBounds) {
  LossScale scale;
  skip(scale, 17);
  EXPECT_EQ(scale.scale(), 1);
  take(scale, 40 * LossScale::growth_interval);
  EXPECT_EQ(scale.scale(), LossScale::max_scale);
}

TEST(LossScale, FailsIfSmallerScalesDoNotHelp) {
  LossScale scale;
  skip(scale, 19);
  try {
    scale.step_skipped();
    FAIL() << "expected an error";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::numbers);
    EXPECT_NE(std::string(error.what()).find("20 steps in a row"), std::string::npos);
  }
}

TEST(LossScale, AllowsManyOverflowsFromALargeScale) {
  LossScale scale(
      core::Json{{"scale", 0x1p30}, {"good_steps", 0}, {"skipped", 0}, {"skipped_in_all", 0}},
      "state");
  skip(scale, 30);
  EXPECT_EQ(scale.scale(), 1);
}

TEST(LossScale, OneGoodStepForgivesTheSkippedOnes) {
  LossScale scale;
  skip(scale, 19);
  take(scale, 1);
  EXPECT_NO_THROW(skip(scale, 19));
}

TEST(LossScale, ComesBackFromJson) {
  LossScale scale;
  skip(scale, 3);
  take(scale, 1500);
  LossScale restored(core::parse_json(scale.to_json().dump(), "text"), "state");
  for (LossScale* each : {&scale, &restored})
    take(*each, 499);
  EXPECT_EQ(restored.to_json(), scale.to_json());
  EXPECT_EQ(restored.scale(), 8192);
  take(restored, 1);
  EXPECT_EQ(restored.scale(), 16384);
}

TEST(LossScale, RefusesAStateThatItDidNotWrite) {
  const core::Json good = LossScale().to_json();
  const auto refused = [&](const char* key, const core::Json& value) {
    core::Json state = good;
    state[key] = value;
    EXPECT_THROW(LossScale(state, "state"), core::Error) << state;
  };
  for (const core::Json& scale : {core::Json(0.5), core::Json(3.0), core::Json(0x1p31),
                                  core::Json(-2.0), core::Json("2"), core::Json()})
    refused("scale", scale);
  for (const core::Json& steps : {core::Json(-1), core::Json(2000), core::Json(1.5)})
    refused("good_steps", steps);
  refused("skipped", -1);
  EXPECT_THROW(LossScale(core::Json::object(), "state"), core::Error);
  EXPECT_THROW(LossScale(core::Json::array(), "state"), core::Error);
  EXPECT_NO_THROW(LossScale(good, "state"));
}

}  // namespace
}  // namespace finetune::optim::loss_scale_test
