// SPDX-License-Identifier: Apache-2.0
#include "core/fault.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.hpp"
#include "support/errors.hpp"

namespace finetune::core::fault_test {
namespace {

TEST(Fault, ActsAtItsPointItsRankAndItsHitOnly) {
  ::setenv("FINETUNE_FAULT", "disk:2:2:eio,disk:1:1:exc,memory:*:*:flip,slow:2:1:slow=0", 1);
  fault::reset();
  fault::set_rank(2);
  EXPECT_EQ(fault::hit("elsewhere"), fault::FaultAction::none);
  EXPECT_EQ(fault::hit("slow"), fault::FaultAction::none);
  EXPECT_EQ(fault::hit("disk"), fault::FaultAction::none);
  EXPECT_EQ(tests::error_of(ErrorKind::io, [] { fault::hit("disk", "file.h5"); }),
            "file.h5: planted fault (Input/output error).");
  EXPECT_EQ(fault::hit("disk"), fault::FaultAction::none);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(fault::hit("memory"), fault::FaultAction::flip);
}

TEST(Fault, IsForgottenByAReset) {
  ::setenv("FINETUNE_FAULT", "memory:1:2:flip", 1);
  fault::reset();
  fault::set_rank(1);
  EXPECT_EQ(fault::hit("memory"), fault::FaultAction::none);
  EXPECT_EQ(fault::hit("memory"), fault::FaultAction::flip);
  fault::reset();
  fault::set_rank(1);
  EXPECT_EQ(fault::hit("memory"), fault::FaultAction::none) << "hits count from 1 again";
  fault::reset();
  fault::hit("memory");
  EXPECT_EQ(fault::hit("memory"), fault::FaultAction::none) << "the rank is 0 again";
  ::unsetenv("FINETUNE_FAULT");
  fault::reset();
  fault::set_rank(1);
  fault::hit("memory");
  EXPECT_EQ(fault::hit("memory"), fault::FaultAction::none) << "the variable is read again";
}

TEST(Fault, ThatCannotBeReadLeavesThoseBefore) {
  ::setenv("FINETUNE_FAULT", "memory:*:*:flip", 1);
  fault::reset();
  ::setenv("FINETUNE_FAULT", "memory", 1);
  EXPECT_THROW(fault::reset(), Error);
  EXPECT_EQ(fault::hit("memory"), fault::FaultAction::flip);
}

}  // namespace
}  // namespace finetune::core::fault_test
