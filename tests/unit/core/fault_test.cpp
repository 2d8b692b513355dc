// SPDX-License-Identifier: Apache-2.0
#include "core/fault.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.hpp"

namespace finetune::core::fault_test {
namespace {

// The variable is read once in a process, so all of it is one test.
TEST(Fault, ActsAtItsPointItsRankAndItsHitOnly) {
  ::setenv("FINETUNE_FAULT", "disk:2:2:eio,disk:1:1:exc,memory:*:*:flip,slow:2:1:slow=0", 1);
  fault::set_rank(2);
  EXPECT_EQ(fault::hit("elsewhere"), fault::FaultAction::none);
  EXPECT_EQ(fault::hit("slow"), fault::FaultAction::none);
  EXPECT_EQ(fault::hit("disk"), fault::FaultAction::none);
  try {
    fault::hit("disk", "file.h5");
    ADD_FAILURE() << "the second hit passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    EXPECT_STREQ(error.what(), "file.h5: planted fault (Input/output error).");
  }
  EXPECT_EQ(fault::hit("disk"), fault::FaultAction::none);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(fault::hit("memory"), fault::FaultAction::flip);
}

}  // namespace
}  // namespace finetune::core::fault_test
