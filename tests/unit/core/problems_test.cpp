// SPDX-License-Identifier: Apache-2.0
#include "core/problems.hpp"

#include <gtest/gtest.h>

namespace finetune::core::problems_test {
namespace {

void collect(Problems& problems, ErrorKind kind, const char* text) {
  EXPECT_FALSE(problems.collect([&] { throw Error(kind, text); }));
}

TEST(Problems, OfOneAreThatOne) {
  Problems problems;
  EXPECT_TRUE(problems.collect([] {}));
  EXPECT_FALSE(problems.any());
  EXPECT_FALSE(problems.error("deck").has_value());
  collect(problems, ErrorKind::create, "a");
  ASSERT_TRUE(problems.error("deck").has_value());
  EXPECT_EQ(problems.error("deck")->kind(), ErrorKind::create);
  EXPECT_STREQ(problems.error("deck")->what(), "a");
}

TEST(Problems, OfSeveralAreCountedAndHaveTheFirstOnesKind) {
  Problems problems;
  collect(problems, ErrorKind::deck, "a");
  collect(problems, ErrorKind::input, "b");
  collect(problems, ErrorKind::input, "a");  // one that both causes have
  EXPECT_EQ(problems.error("deck")->kind(), ErrorKind::deck);
  EXPECT_STREQ(problems.error("deck")->what(), "a\nb\ndeck: 2 problems.");
}

TEST(Problems, AreNoneOfTheProgramOrTheMachine) {
  Problems problems;
  for (const ErrorKind kind : {ErrorKind::bug, ErrorKind::io, ErrorKind::environment})
    EXPECT_THROW(problems.collect([&] { throw Error(kind, "a"); }), Error);
  EXPECT_FALSE(problems.any());
}

}  // namespace
}  // namespace finetune::core::problems_test
