#pragma once
// SPDX-License-Identifier: Apache-2.0
// The ranks a test runs on. Never a rank-local ASSERT_ before a collective: it deadlocks.

#include <gtest/gtest.h>

#include "comm/communicator.hpp"
#include "comm/environment.hpp"

namespace finetune::tests {

/// All ranks of this test program (linked with mpi_main.cpp).
const comm::Communicator& world();
const comm::Environment& mpi();

}  // namespace finetune::tests

/// Skips the test, with the reason, unless it runs on exactly `n` ranks.
#define REQUIRE_RANKS(n)                      \
  if (finetune::tests::world().size() != (n)) \
  GTEST_SKIP() << "needs " << (n) << " ranks, runs on " << finetune::tests::world().size()
