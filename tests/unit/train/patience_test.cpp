// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/patience.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace finetune::train::patience_test {
namespace {

checkpoint::Score loss(double value) {
  return {.name = "validation_loss", .value = value, .less_is_better = true};
}

checkpoint::Score accuracy(double value) {
  return {.name = "arc/accuracy", .value = value, .less_is_better = false};
}

TEST(Patience, IsLostAfterSoManyInARowThatAreNotBetter) {
  Patience patience(2, 0, "validation_loss", {});
  for (const double value : {3.0, 2.0, 2.0, 1.0, 1.5}) {
    patience.add(loss(value));
    EXPECT_FALSE(patience.is_lost()) << value;
  }
  patience.add(loss(1));
  EXPECT_TRUE(patience.is_lost());
  EXPECT_EQ(patience.why(),
            "validation_loss has not become better than 1 in 2 measurements in a row");
}

TEST(Patience, KnowsWhereMoreIsBetter) {
  Patience patience(1, 0, "arc/accuracy", {});
  patience.add(accuracy(0.25));
  patience.add(accuracy(0.5));
  EXPECT_FALSE(patience.is_lost());
  patience.add(accuracy(0.5));
  EXPECT_TRUE(patience.is_lost());
}

TEST(Patience, WithoutALimitIsNeverLost) {
  Patience patience(0, 0, "validation_loss", {});
  for (int i = 0; i < 9; ++i)
    patience.add(loss(i));
  EXPECT_FALSE(patience.is_lost());
}

// The counter starts again only by more than the threshold; the best is the best all the same.
TEST(Patience, AThresholdIsHowMuchBetterCounts) {
  Patience patience(3, 0.5, "validation_loss", {});
  for (const double value : {3.0, 2.75, 2.5}) {
    patience.add(loss(value));
    EXPECT_FALSE(patience.is_lost()) << value;
  }
  patience.add(loss(2.25));
  EXPECT_TRUE(patience.is_lost());
  patience.add(loss(1.5));
  EXPECT_FALSE(patience.is_lost());
}

TEST(Patience, NoNumberIsNotBetter) {
  Patience patience(2, 0, "validation_loss", {});
  patience.add(loss(std::nan("")));
  EXPECT_FALSE(patience.to_json().has_value());
  patience.add(loss(1));
  patience.add(loss(std::nan("")));
  patience.add(loss(std::nan("")));
  EXPECT_TRUE(patience.is_lost());
}

TEST(Patience, GoesOnFromWhatWasWrittenOfTheSameScore) {
  Patience before(3, 0, "validation_loss", {});
  before.add(loss(1));
  before.add(loss(2));
  const core::Json state = core::Json::parse(before.to_json()->dump());
  Patience after(2, 0, "validation_loss", state);
  EXPECT_FALSE(after.is_lost());
  EXPECT_EQ(after.to_json(), before.to_json());
  after.add(loss(1.5));
  EXPECT_TRUE(after.is_lost());
  EXPECT_FALSE(Patience(1, 0, "arc/accuracy", state).to_json());
}

TEST(Patience, TakesNothingFromWhatIsSomethingElse) {
  for (const char* text : {"null", "[]", "{}", R"({"best": 1, "without_better": 2})",
                           R"({"best": {"name": "validation_loss", "value": 1,
                                        "less_is_better": true}, "without_better": -1})"})
    EXPECT_FALSE(Patience(1, 0, "validation_loss", core::Json::parse(text)).to_json()) << text;
}

}  // namespace
}  // namespace finetune::train::patience_test
