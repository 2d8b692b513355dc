// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "support/ranks.hpp"

namespace finetune::comm::communicator_test {
namespace {

TEST(Communicator, AllGatherKeepsRankOrder) {
  const auto& world = tests::world();
  const std::vector<std::int64_t> shard = {world.rank() * 10, world.rank() * 10 + 1};
  std::vector<std::int64_t> full(2 * static_cast<std::size_t>(world.size()));
  world.all_gather(core::DType::i64, shard.data(), full.data(), 2);
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(full[static_cast<std::size_t>(2 * rank)], rank * 10);
    EXPECT_EQ(full[static_cast<std::size_t>(2 * rank + 1)], rank * 10 + 1);
  }
}

TEST(Communicator, AllGatherInPlaceUsesTheOwnPart) {
  const auto& world = tests::world();
  std::vector<float> full(3 * static_cast<std::size_t>(world.size()), -1.0f);
  float* own = full.data() + 3 * world.rank();
  for (int i = 0; i < 3; ++i)
    own[i] = static_cast<float>(world.rank());
  world.all_gather(core::DType::f32, own, full.data(), 3);
  for (std::size_t i = 0; i < full.size(); ++i)
    EXPECT_EQ(full[i], static_cast<float>(i / 3));
}

TEST(Communicator, ReduceScatterSumsEachRanksPart) {
  const auto& world = tests::world();
  const int n = world.size();
  std::vector<float> full(static_cast<std::size_t>(2 * n));
  for (std::size_t i = 0; i < full.size(); ++i)
    full[i] = static_cast<float>(i) + static_cast<float>(world.rank());
  std::vector<float> shard(2);
  world.reduce_scatter(full.data(), shard.data(), 2);
  const float ranks_sum = static_cast<float>(n * (n - 1)) / 2;
  EXPECT_EQ(shard[0], static_cast<float>(n * 2 * world.rank()) + ranks_sum);
  EXPECT_EQ(shard[1], static_cast<float>(n * (2 * world.rank() + 1)) + ranks_sum);
}

/// Of this thread, on cores.
double core_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Else a core that a late rank needs is taken by those that wait for it.
TEST(Communicator, SleepsWhileItWaitsForALateRank) {
  const auto& world = tests::world();
  if (world.size() == 1) GTEST_SKIP() << "nobody waits";
  std::vector<std::byte> few(8), many(1 << 20);
  std::int64_t value = 1;
  std::vector<std::int64_t> values(static_cast<std::size_t>(world.size()));
  const std::function<void()> collectives[] = {
      [&] { world.barrier(); },
      [&] { world.broadcast(few, 0); },
      [&] { world.broadcast(many, 0); },
      [&] { world.all_reduce(std::span(&value, 1), Reduce::max); },
      [&] { world.all_gather(core::DType::i64, &value, values.data(), 1); },
      [&] { world.gather_bytes(few); },
      [&] { world.shift(few, 1); }};
  for (const auto& collective : collectives) {
    world.barrier();
    if (world.is_root()) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const double before = core_seconds();
    const core::Stopwatch waiting;
    collective();
    // The root may be even later; who does not sleep takes all of the time, on a core of its own.
    EXPECT_LT(core_seconds() - before, 0.1 + waiting.seconds() / 3);
  }
}

TEST(Communicator, GathersTextsOfDifferentLength) {
  const auto& world = tests::world();
  const auto texts =
      world.all_gather_text(std::string(static_cast<std::size_t>(world.rank()), 'x'));
  ASSERT_EQ(std::ssize(texts), world.size());
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    EXPECT_EQ(texts[rank].size(), rank);
}

TEST(Communicator, GathersTextsOnTheRootAlone) {
  const auto& world = tests::world();
  const auto texts = world.gather_text(std::string(static_cast<std::size_t>(world.rank()), 'x'));
  ASSERT_EQ(std::ssize(texts), world.is_root() ? world.size() : 0);
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    EXPECT_EQ(texts[rank], std::string(rank, 'x'));
}

/// As many bytes as the rank's number, each of that value.
std::vector<std::byte> bytes_of(int rank) {
  return std::vector<std::byte>(static_cast<std::size_t>(rank), static_cast<std::byte>(rank));
}

TEST(Communicator, ShiftsBytesAroundTheRing) {
  const auto& world = tests::world();
  for (int distance = -world.size(); distance <= world.size(); ++distance) {
    const int from = (world.rank() - distance + 2 * world.size()) % world.size();
    EXPECT_EQ(world.shift(bytes_of(world.rank()), distance), bytes_of(from)) << distance;
  }
}

TEST(Communicator, DeliversToOneRankWhatAllHandIt) {
  const auto& world = tests::world();
  const auto received = world.deliver(bytes_of(world.rank()), world.size() - 1);
  ASSERT_EQ(std::ssize(received), world.rank() == world.size() - 1 ? world.size() : 0);
  for (std::size_t i = 0; i < received.size(); ++i) {
    EXPECT_EQ(received[i].from, static_cast<int>(i));
    EXPECT_EQ(received[i].bytes, bytes_of(static_cast<int>(i)));
  }
}

TEST(Communicator, SplitsByColour) {
  const auto& world = tests::world();
  const Communicator half = world.split(world.rank() % 2, world.rank(), "half");
  EXPECT_EQ(half.rank(), world.rank() / 2);
  EXPECT_EQ(half.all_reduce(std::int64_t{1}, Reduce::sum), half.size());
}

/// Ranks side by side on nodes, in turns, and all on one but the first.
TEST(Communicator, BroadcastsManyBytesOverSeveralNodes) {
  const auto& world = tests::world();
  for (const int node : {world.rank() / 2, world.rank() % 2, world.rank() > 0 ? 1 : 0}) {
    const Communicator nodes = world.as_on_node(node);
    EXPECT_EQ(nodes.node(), node);
    EXPECT_EQ(nodes.split(0, nodes.rank(), "all").node(), node);
    for (int root = 0; root < world.size(); ++root) {
      const std::vector<std::byte> expected(100'000, static_cast<std::byte>(7 + root));
      std::vector<std::byte> bytes(expected.size());
      if (world.rank() == root) bytes = expected;
      nodes.broadcast(bytes, root);
      EXPECT_TRUE(bytes == expected) << "root " << root;
    }
  }
}

TEST(Communicator, WithoutMpiIsAWorldOfOne) {
  const Communicator alone;
  float value = 3;
  float copy = 0;
  alone.all_gather(core::DType::f32, &value, &copy, 1);
  EXPECT_EQ(copy, 3);
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(alone.all_reduce(2.0, Reduce::max), 2.0);
}

}  // namespace
}  // namespace finetune::comm::communicator_test
