// SPDX-License-Identifier: Apache-2.0
#include "preflight/patience.hpp"

#include <gtest/gtest.h>

namespace finetune::preflight::patience_test {
namespace {

struct Row {
  const char* name;
  PatienceInput input;
  double connecting_s;
  double measuring_s;
};

const Row rows[] = {
    {"on CPUs it is short from the beginning", {.hang_timeout_s = 1800}, 20, 20},
    {"GPUs get as long as training gives them until they are connected",
     {.hang_timeout_s = 1800, .has_gpus = true},
     1800,
     20},
    {"saving rates takes longer",
     {.hang_timeout_s = 1800, .has_gpus = true, .saves = true},
     1800,
     60},
    {"a deck may ask for less", {.hang_timeout_s = 5, .has_gpus = true}, 5, 5},
    {"a deck that watches nothing watches no start, but the measurements",
     {.hang_timeout_s = 0, .has_gpus = true},
     0,
     20},
    {"nor does it leave a check on CPUs unwatched", {.hang_timeout_s = 0}, 20, 20},
};

TEST(Patience, IsLongUntilGpusAreConnectedAndShortAfterwards) {
  for (const Row& row : rows) {
    const Patience patience = patience_of(row.input);
    EXPECT_EQ(patience.connecting_s, row.connecting_s) << row.name;
    EXPECT_EQ(patience.measuring_s, row.measuring_s) << row.name;
  }
}

TEST(Patience, OfTheFirstLookLastsUntilDriversAreAwake) {
  EXPECT_EQ(first_patience_s(false), 20);
  EXPECT_EQ(first_patience_s(true), 300);
}

}  // namespace
}  // namespace finetune::preflight::patience_test
