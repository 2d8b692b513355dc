// SPDX-License-Identifier: Apache-2.0
// Connects the fake of a test's ranks, and looks after each test what the code under test did that
// it must not.
#include <gtest/gtest.h>
#include <mpi.h>

#include <string>
#include <vector>

#include "fake_cuda/fake.hpp"
#include "support/ranks.hpp"

namespace finetune::fake {
namespace {

class Violations : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { set({}); }
  void OnTestEnd(const testing::TestInfo&) override {
    wait_until_idle();
    for (const std::string& violation : take_violations())
      ADD_FAILURE() << violation;
    EXPECT_EQ(num_communicators(), 0);
    EXPECT_EQ(num_registered(), 0);
  }
};

/// The ranks that run the tests, by their numbers in the job.
std::vector<int> ranks_in_job() {
  int own = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  std::vector<int> all;
  for (const auto& text : tests::world().all_gather_text(std::to_string(own)))
    all.push_back(std::stoi(text));
  return all;
}

/// Set up for each number of ranks (support/mpi_main.cpp).
class World : public testing::Environment {
  void SetUp() override {
    connect(ranks_in_job());
    testing::UnitTest::GetInstance()->listeners().Append(&violations_);
  }
  void TearDown() override {
    testing::UnitTest::GetInstance()->listeners().Release(&violations_);
    disconnect();
  }

  Violations violations_;
};

[[maybe_unused]] const auto* const world = testing::AddGlobalTestEnvironment(new World);

}  // namespace
}  // namespace finetune::fake
