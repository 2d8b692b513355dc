// SPDX-License-Identifier: Apache-2.0
// Collectives in two levels, on ranks of one machine that pretend to be on several nodes, against
// those in one level.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/activity.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "core/error.hpp"
#include "support/ranks.hpp"

namespace finetune::comm::two_level_test {
namespace {

using Levels = MpiGroup::Options::Levels;
using Bytes = std::vector<std::byte>;

// A half holds pieces of a few hundred elements then.
constexpr std::int64_t small_half = 4096;

/// The node of each rank.
using Nodes = std::vector<int>;

/// All that this number of ranks can be, with several of them on at least one node.
std::vector<Nodes> topologies() {
  if (tests::world().size() == 3) return {{0, 0, 1}, {0, 1, 1}};
  return {{0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 1, 1}, {0, 0, 1, 2}, {0, 1, 1, 2}, {3, 2, 2, 0}};
}

std::string to_string(const Nodes& nodes) {
  std::string text = "nodes of ranks:";
  for (const int node : nodes)
    text += " " + std::to_string(node);
  return text;
}

class TwoLevels : public testing::Test {
 protected:
  void SetUp() override {
    if (tests::world().size() < 3) GTEST_SKIP() << "two nodes with two ranks on one: three ranks";
  }

  std::unique_ptr<MpiGroup> group(const Nodes& nodes, Levels levels,
                                  std::int64_t half = small_half) {
    const auto& world = tests::world();
    return std::make_unique<MpiGroup>(
        world.as_on_node(nodes[static_cast<std::size_t>(world.rank())]), worker_,
        MpiGroup::Options{.levels = levels, .window_half_bytes = half});
  }

 private:
  std::shared_ptr<Worker> worker_ = std::make_shared<Worker>(Worker::Where::behind);
};

/// Terms of every magnitude, whose sum in floating point depends on their order.
float term(std::int64_t i) {
  auto bits = static_cast<std::uint64_t>(1 + i + 1'000'003 * tests::world().rank());
  bits = (bits ^ (bits >> 31)) * 0x9e3779b97f4a7c15U;
  bits ^= bits >> 29;
  const float mantissa = static_cast<float>(bits % (1 << 24)) - 0x1p23F;
  return std::ldexp(mantissa, static_cast<int>((bits >> 30) % 12) - 23);
}

Bytes terms(core::DType dtype, std::int64_t count) {
  Bytes bytes(static_cast<std::size_t>(count * core::size_bytes(dtype)));
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = term(i);
    std::byte* at = bytes.data() + i * core::size_bytes(dtype);
    const std::uint16_t half =
        dtype == core::DType::bf16 ? core::float_to_bf16(value) : core::float_to_f16(value);
    const auto integer = static_cast<std::int64_t>(value * 0x1p40F);
    if (dtype == core::DType::f32) std::memcpy(at, &value, sizeof(value));
    if (dtype == core::DType::i64) std::memcpy(at, &integer, sizeof(integer));
    if (core::size_bytes(dtype) == 2) std::memcpy(at, &half, sizeof(half));
  }
  return bytes;
}

constexpr core::DType summed[] = {core::DType::f32, core::DType::bf16, core::DType::f16,
                                  core::DType::i64};
// None, fewer than ranks, one piece, and several with a short one.
constexpr std::int64_t counts[] = {0, 1, 7, 2500};

/// What a collective of `group` leaves, for each dtype and count.
std::vector<Bytes> scattered_sums(MpiGroup& group) {
  std::vector<Bytes> all;
  for (const core::DType dtype : summed)
    for (const std::int64_t count : counts) {
      const Bytes full = terms(dtype, group.size() * count);
      Bytes& shard = all.emplace_back(static_cast<std::size_t>(count * core::size_bytes(dtype)));
      group.wait(group.reduce_scatter(dtype, full.data(), shard.data(), count));
    }
  return all;
}

std::vector<Bytes> sums(MpiGroup& group) {
  std::vector<Bytes> all;
  for (const core::DType dtype : summed)
    for (const std::int64_t count : counts) {
      Bytes& values = all.emplace_back(terms(dtype, 3 * count));
      group.wait(group.all_reduce(dtype, values.data(), 3 * count));
    }
  return all;
}

std::vector<Bytes> gathers(MpiGroup& group) {
  std::vector<Bytes> all;
  for (const core::DType dtype : {core::DType::u8, core::DType::f32, core::DType::i64})
    for (const std::int64_t count : counts) {
      const std::int64_t bytes = count * core::size_bytes(dtype);
      const Bytes shard = terms(core::DType::f32, (bytes + 3) / 4);
      Bytes& full = all.emplace_back(static_cast<std::size_t>(group.size() * bytes));
      group.wait(group.all_gather(dtype, shard.data(), full.data(), count));
    }
  return all;
}

TEST_F(TwoLevels, GatherTheSameBytes) {
  for (const Nodes& nodes : topologies()) {
    const auto one = group(nodes, Levels::one), two = group(nodes, Levels::two);
    EXPECT_TRUE(gathers(*two) == gathers(*one)) << to_string(nodes);
    EXPECT_LE(two->traffic().to_other_nodes_bytes, one->traffic().to_other_nodes_bytes);
  }
}

TEST_F(TwoLevels, ScatterSumsOfTheSameBits) {
  for (const Nodes& nodes : topologies()) {
    const auto one = group(nodes, Levels::one), two = group(nodes, Levels::two);
    EXPECT_TRUE(scattered_sums(*two) == scattered_sums(*one)) << to_string(nodes);
  }
}

TEST_F(TwoLevels, SumUpToTheSameBits) {
  for (const Nodes& nodes : topologies()) {
    const auto one = group(nodes, Levels::one), two = group(nodes, Levels::two);
    EXPECT_TRUE(sums(*two) == sums(*one)) << to_string(nodes);
  }
}

TEST_F(TwoLevels, TheTestsTermsAddUpToOtherBitsInAnotherOrder) {
  const auto group = this->group(topologies().front(), Levels::one);
  std::vector<float> values(50);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = term(static_cast<std::int64_t>(i));
  std::vector<float> all(values.size() * static_cast<std::size_t>(group->size()));
  tests::world().all_gather(core::DType::f32, values.data(), all.data(), std::ssize(values));
  group->wait(group->all_reduce(core::DType::f32, values.data(), std::ssize(values)));
  std::vector<float> ascending(values.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    ascending[i % values.size()] += all[i];
  EXPECT_NE(values, ascending);
}

/// Gradients are added to the sums of earlier passes, in fp32 from bf16 on the wire.
std::vector<float> accumulated(MpiGroup& group, std::int64_t count) {
  const Bytes full = terms(core::DType::bf16, group.size() * count);
  std::vector<float> own(static_cast<std::size_t>(count), 0.1f);
  Exchange exchange{
      .count = count, .element_bytes = 2, .sums = reinterpret_cast<std::byte*>(own.data())};
  exchange.pack = [&](int to, std::int64_t offset, std::int64_t n, std::byte* wire) {
    std::memcpy(wire, full.data() + 2 * (to * count + offset), static_cast<std::size_t>(2 * n));
  };
  exchange.add = [](const std::byte* wire, std::int64_t n, std::byte* sums) {
    for (std::int64_t i = 0; i < n; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, wire + 2 * i, 2);
      reinterpret_cast<float*>(sums)[i] += core::bf16_to_float(bits);
    }
  };
  group.wait(group.exchange(exchange));
  group.wait(group.exchange(exchange));
  return own;
}

TEST_F(TwoLevels, AddToWhatSumsHoldAlready) {
  for (const Nodes& nodes : topologies()) {
    const auto one = group(nodes, Levels::one), two = group(nodes, Levels::two);
    for (const std::int64_t count : counts)
      EXPECT_EQ(accumulated(*two, count), accumulated(*one, count)) << to_string(nodes);
  }
}

TEST_F(TwoLevels, FollowEachOtherWithoutABarrier) {
  for (const Nodes& nodes : topologies()) {
    const auto two = group(nodes, Levels::two), other = group(nodes, Levels::two);
    std::vector<std::int64_t> values(1000, 1), full(values.size() * std::size_t{4});
    for (int i = 0; i < 5; ++i) {
      two->all_reduce(core::DType::i64, values.data(), std::ssize(values));
      other->all_gather(core::DType::i64, values.data(), full.data(), 1000);
    }
    two->synchronize();
    const auto expected = static_cast<std::int64_t>(std::pow(two->size(), 5));
    EXPECT_EQ(values, std::vector<std::int64_t>(1000, expected)) << to_string(nodes);
    for (std::size_t i = 0; i < 1000 * static_cast<std::size_t>(two->size()); ++i)
      ASSERT_EQ(full[i], expected) << to_string(nodes);
  }
}

/// Over all ranks.
std::int64_t between_nodes(const Group& group) {
  return group.communicator().all_reduce(group.traffic().to_other_nodes_bytes, Reduce::sum);
}

TEST_F(TwoLevels, SendEachPartOnceToEachOtherNode) {
  for (const Nodes& nodes : topologies()) {
    const auto two = group(nodes, Levels::cheapest);
    std::vector<int> distinct = nodes;
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    const std::int64_t hops = std::ssize(distinct) - 1;
    std::vector<float> shard(10), full(40);
    two->all_gather(core::DType::f32, shard.data(), full.data(), 10);
    const std::int64_t gathered = hops * 40 * two->size();
    EXPECT_EQ(between_nodes(*two), gathered) << to_string(nodes);
    std::vector<std::int64_t> integers(40), part(10);
    two->reduce_scatter(core::DType::i64, integers.data(), part.data(), 10);
    EXPECT_EQ(between_nodes(*two), gathered + hops * 80 * two->size()) << to_string(nodes);
    two->synchronize();
  }
}

/// Messages between two ranks have one way, whatever the levels.
TEST_F(TwoLevels, SendWhatIsForOneRankOnlyToItsNode) {
  for (const Nodes& nodes : topologies()) {
    SCOPED_TRACE(to_string(nodes));
    const auto one = group(nodes, Levels::two);
    const auto num_ranks = static_cast<std::size_t>(one->size());
    std::vector<std::int64_t> send_bytes, recv_bytes(num_ranks, 1 + one->rank());
    std::int64_t all = 0, elsewhere = 0;
    for (int to = 0; to < one->size(); ++to) {
      send_bytes.push_back(1 + to);
      if (to == one->rank()) continue;
      all += 1 + to;
      if (nodes[static_cast<std::size_t>(to)] != nodes[static_cast<std::size_t>(one->rank())])
        elsewhere += 1 + to;
    }
    const std::vector<std::byte> sent(num_ranks * (num_ranks + 1), std::byte(one->rank()));
    std::vector<std::byte> received(num_ranks * (num_ranks + 1));
    one->wait(one->all_to_all(sent.data(), send_bytes, received.data(), recv_bytes));
    EXPECT_EQ(one->traffic().sent_bytes, all);
    EXPECT_EQ(one->traffic().to_other_nodes_bytes, elsewhere);
    for (std::size_t i = 0; i < num_ranks * static_cast<std::size_t>(1 + one->rank()); ++i)
      EXPECT_EQ(received[i], std::byte(i / static_cast<std::size_t>(1 + one->rank())));
  }
}

TEST_F(TwoLevels, AreTakenForFloatsOnlyWhereThatSendsLess) {
  if (tests::world().size() < 4) GTEST_SKIP() << "a second node of three ranks";
  // Running sums would go there and back: as much as two ranks' terms.
  const auto even = group({0, 0, 1, 1}, Levels::cheapest);
  std::vector<float> full(40), shard(10);
  even->reduce_scatter(core::DType::f32, full.data(), shard.data(), 10);
  EXPECT_EQ(between_nodes(*even), 4 * 2 * 40);
  even->synchronize();
  // 3 + 1: six terms an element, or eight sums.
  const auto uneven = group({0, 0, 0, 1}, Levels::cheapest);
  uneven->reduce_scatter(core::DType::f32, full.data(), shard.data(), 10);
  EXPECT_EQ(between_nodes(*uneven), 6 * 40);
  uneven->synchronize();
}

TEST_F(TwoLevels, AreNotForOneRankOnEachNodeNorForRanksInTurns) {
  Nodes apart, in_turns;
  for (int rank = 0; rank < tests::world().size(); ++rank) {
    apart.push_back(rank);
    in_turns.push_back(rank % 2);
  }
  for (const Nodes& nodes : {apart, in_turns}) {
    const auto asked = group(nodes, Levels::two), one = group(nodes, Levels::one);
    EXPECT_TRUE(sums(*asked) == sums(*one)) << to_string(nodes);
    EXPECT_EQ(asked->why_one_level(), "");
    EXPECT_EQ(asked->traffic().sent_bytes, one->traffic().sent_bytes) << to_string(nodes);
    EXPECT_EQ(asked->traffic().to_other_nodes_bytes, one->traffic().to_other_nodes_bytes);
  }
}

TEST_F(TwoLevels, ServeGroupsOfAPartOfEachNode) {
  if (tests::world().size() < 4) GTEST_SKIP() << "needs four ranks";
  const auto& world = tests::world();
  const Communicator all = world.as_on_node(world.rank() / 2);
  const Communicator three = all.split(world.rank() == 3 ? 1 : 0, world.rank(), "three");
  const auto worker = std::make_shared<Worker>(Worker::Where::behind);
  MpiGroup two(three, worker, {.levels = Levels::two, .window_half_bytes = small_half});
  MpiGroup one(three, worker, {.levels = Levels::one});
  EXPECT_TRUE(sums(two) == sums(one));
  EXPECT_TRUE(gathers(two) == gathers(one));
  if (world.rank() == 2) {
    EXPECT_LT(two.traffic().to_other_nodes_bytes, one.traffic().to_other_nodes_bytes);
  }
}

TEST_F(TwoLevels, AreGivenUpByAllRanksTogetherWhereMemoryCannotBeShared) {
  const Nodes nodes = topologies().front();
  // More than any machine has, in what a file may be.
  const auto refused = group(nodes, Levels::two, std::int64_t{1} << 58);
  const auto one = group(nodes, Levels::one);
  EXPECT_TRUE(sums(*refused) == sums(*one));
  const std::string& why = refused->why_one_level();
  EXPECT_NE(why.find("/dev/shm"), std::string::npos) << why;
  EXPECT_EQ(one->why_one_level(), "");
}

TEST_F(TwoLevels, LeaveNoNameInDevShm) {
  const auto two = group(topologies().front(), Levels::two);
  const std::string own = "finetune-" + std::to_string(::getpid());
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    EXPECT_FALSE(entry.path().filename().string().starts_with(own)) << entry.path();
}

/// The run ends while the last rank computes: whoever waits for it stops waiting.
TEST_F(TwoLevels, AreGivenUpWhenTheRunEnds) {
  const auto& world = tests::world();
  const Communicator pretending =
      world.as_on_node(topologies().front()[static_cast<std::size_t>(world.rank())]);
  enum class Kind { gather, sum, swap };
  for (const Kind kind : {Kind::gather, Kind::sum, Kind::swap}) {
    const auto worker = std::make_shared<Worker>(Worker::Where::behind);
    MpiGroup two(pretending, worker, {.levels = Levels::two, .window_half_bytes = small_half});
    std::vector<std::int64_t> values(4000, 1), full(4 * values.size());
    if (world.rank() + 1 < world.size()) {
      const std::vector<std::int64_t> bytes(static_cast<std::size_t>(world.size()), 8000);
      const Ticket ticket =
          kind == Kind::gather
              ? two.all_gather(core::DType::i64, values.data(), full.data(), std::ssize(values))
          : kind == Kind::sum ? two.all_reduce(core::DType::i64, values.data(), std::ssize(values))
                              : two.all_to_all(values.data(), bytes, full.data(), bytes);
      while (!world.activity()->look(Track::stream).is_inside)
        ::sched_yield();
      two.abandon();
      EXPECT_THROW(two.wait(ticket), core::Error);
    }
    world.barrier();
  }
}

}  // namespace
}  // namespace finetune::comm::two_level_test
