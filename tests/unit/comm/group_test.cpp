// SPDX-License-Identifier: Apache-2.0
// The contract of Group, for every backend. NCCL's part runs where every rank has a GPU of its own.
#include "comm/group.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/agree.hpp"
#include "comm/device.hpp"
#include "comm/group_factory.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "core/error.hpp"
#include "support/ranks.hpp"
#include "unit/comm/group_memory.hpp"

namespace finetune::comm::group_test {
namespace {

enum class Backend { mpi_behind, mpi_inline, nccl };

/// Memory that a group of the backend works on, with the values of a host vector.
template <typename T>
class Memory {
 public:
  Memory(Backend backend, std::vector<T> values) : host_(std::move(values)) {
    if (backend != Backend::nccl) return;
    device_ = tests::make_device_bytes(host_.size() * sizeof(T));
    tests::copy_to_device(device_, std::as_bytes(std::span(host_)));
  }
  T* data() {
    return device_ == nullptr ? host_.data() : static_cast<T*>(static_cast<void*>(device_.get()));
  }
  const std::vector<T>& values() {
    if (device_ != nullptr) tests::copy_to_host(std::as_writable_bytes(std::span(host_)), device_);
    return host_;
  }

 private:
  std::vector<T> host_;
  tests::DeviceBytes device_;
};

class GroupOf : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (GetParam() != Backend::nccl) {
      worker_ = std::make_shared<Worker>(
          GetParam() == Backend::mpi_behind ? Worker::Where::behind : Worker::Where::inline_);
      return;
    }
    // Agreed, because a rank that skips alone would leave the others waiting.
    const auto& world = tests::world();
    const bool too_few = num_gpus() < tests::mpi().topology().ranks_per_node;
    if (world.all_reduce(std::int64_t{too_few}, Reduce::max) != 0)
      GTEST_SKIP() << "needs a GPU for each rank";
    choose_device(world, tests::mpi().node());
    stream_ = std::make_shared<DeviceStream>(tests::compute_stream);
  }

  std::unique_ptr<Group> make_group(const Communicator& comm = tests::world()) {
    if (GetParam() == Backend::nccl) return make_nccl_group(comm, stream_);
    return std::make_unique<MpiGroup>(comm, worker_);
  }

  template <typename T>
  Memory<T> memory(std::vector<T> values) const {
    return {GetParam(), std::move(values)};
  }

  template <typename Letters>
  void expect_swapped(Group& group, const Letters& letters) {
    auto sent = memory(letters.sent);
    auto received = memory(letters.blank());
    group.wait(
        group.all_to_all(sent.data(), letters.send_bytes, received.data(), letters.recv_bytes));
    EXPECT_EQ(received.values(), letters.expected);
  }

  static std::size_t ranks() { return static_cast<std::size_t>(tests::world().size()); }
  /// 0 + 1 + ... + (ranks - 1).
  static std::int64_t ranks_sum() {
    return std::int64_t{tests::world().size()} * (tests::world().size() - 1) / 2;
  }

 private:
  std::shared_ptr<Worker> worker_;
  std::shared_ptr<DeviceStream> stream_;
};

TEST_P(GroupOf, AllGatherKeepsRankOrder) {
  const auto group = make_group();
  auto shard = memory<std::int64_t>({group->rank(), group->rank() + 10});
  auto full = memory(std::vector<std::int64_t>(2 * ranks(), -1));
  group->wait(group->all_gather(core::DType::i64, shard.data(), full.data(), 2));
  const auto& values = full.values();
  for (int rank = 0; rank < group->size(); ++rank) {
    EXPECT_EQ(values[static_cast<std::size_t>(2 * rank)], rank);
    EXPECT_EQ(values[static_cast<std::size_t>(2 * rank + 1)], rank + 10);
  }
}

TEST_P(GroupOf, AllGatherTakesAnyDtypeAndTheOwnPartInPlace) {
  const auto group = make_group();
  std::vector<std::uint8_t> values(3 * ranks(), 255);
  for (std::size_t i = 0; i < 3; ++i)
    values[3 * static_cast<std::size_t>(group->rank()) + i] =
        static_cast<std::uint8_t>(group->rank());
  auto full = memory(values);
  group->wait(group->all_gather(core::DType::u8, full.data() + 3 * group->rank(), full.data(), 3));
  for (std::size_t i = 0; i < 3 * ranks(); ++i)
    EXPECT_EQ(full.values()[i], i / 3);
}

TEST_P(GroupOf, ReduceScatterSumsEachRanksPart) {
  const auto group = make_group();
  std::vector<float> values(3 * ranks());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i) + 0.5f * static_cast<float>(group->rank());
  auto full = memory(values);
  auto shard = memory(std::vector<float>(3, -1.0f));
  group->wait(group->reduce_scatter(core::DType::f32, full.data(), shard.data(), 3));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(shard.values()[static_cast<std::size_t>(i)],
              static_cast<float>(group->size() * (3 * group->rank() + i)) +
                  0.5f * static_cast<float>(ranks_sum()));
  }
}

/// Sums that each dtype holds exactly, of a number of elements that no number of ranks divides.
TEST_P(GroupOf, AllReduceSumsEveryDtypeOfGradients) {
  const auto group = make_group();
  const auto own = static_cast<float>(group->rank());
  const auto sum = static_cast<float>(ranks_sum());
  auto wholes = memory(std::vector<std::int64_t>(7, (std::int64_t{1} << 40) + group->rank()));
  auto floats = memory(std::vector<float>(7, own + 0.25f));
  auto brains = memory(std::vector<std::uint16_t>(7, core::float_to_bf16(own + 0.5f)));
  auto halves = memory(std::vector<std::uint16_t>(7, core::float_to_f16(own + 0.5f)));
  (void)group->all_reduce(core::DType::i64, wholes.data(), 7);
  (void)group->all_reduce(core::DType::f32, floats.data(), 7);
  (void)group->all_reduce(core::DType::bf16, brains.data(), 7);
  group->wait(group->all_reduce(core::DType::f16, halves.data(), 7));  // the last of them
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(wholes.values()[i], (std::int64_t{1} << 40) * group->size() + ranks_sum());
    EXPECT_EQ(floats.values()[i], sum + 0.25f * static_cast<float>(group->size()));
    const float expected = sum + 0.5f * static_cast<float>(group->size());
    EXPECT_EQ(core::bf16_to_float(brains.values()[i]), expected);
    EXPECT_EQ(core::f16_to_float(halves.values()[i]), expected);
  }
}

/// Elements that one rank sends to another: between none and three, also to itself.
std::int64_t num_sent(int from, int to) {
  return (from + 2 * to) % 4;
}

/// Parts of `count(from, to)` elements: what this rank sends, or shall receive.
template <typename Count>
struct Letters {
  Letters(const Group& group, const Count& count) {
    for (int peer = 0; peer < group.size(); ++peer) {
      const std::int64_t out = count(group.rank(), peer), in = count(peer, group.rank());
      send_bytes.push_back(8 * out);
      recv_bytes.push_back(8 * in);
      for (std::int64_t i = 0; i < out; ++i)
        sent.push_back(100 * group.rank() + 10 * peer + i);
      for (std::int64_t i = 0; i < in; ++i)
        expected.push_back(100 * peer + 10 * group.rank() + i);
    }
    // Memory of no elements is none; one more shows also what is written behind the end.
    sent.push_back(-1);
    expected.push_back(-2);
  }
  std::vector<std::int64_t> blank() const { return std::vector<std::int64_t>(expected.size(), -2); }

  std::vector<std::int64_t> send_bytes, recv_bytes, sent, expected;
};

TEST_P(GroupOf, AllToAllGivesEachRankItsPart) {
  const auto group = make_group();
  const Letters letters(*group, num_sent);
  auto sent = memory(letters.sent);
  auto received = memory(letters.blank());
  // Sizes are read before it returns.
  auto send_bytes = letters.send_bytes, recv_bytes = letters.recv_bytes;
  const Ticket ticket = group->all_to_all(sent.data(), send_bytes, received.data(), recv_bytes);
  send_bytes.assign(send_bytes.size(), 1 << 30);
  recv_bytes.assign(recv_bytes.size(), 1 << 30);
  group->wait(ticket);
  EXPECT_EQ(received.values(), letters.expected);
}

/// Along a ring, and where the first comes when the others are done.
TEST_P(GroupOf, AllToAllWaitsForNobodyWhoHasNothingForIt) {
  const auto group = make_group();
  const auto along_a_ring = [&](int from, int to) -> std::int64_t {
    return to == (from + 1) % group->size() ? 2 : 0;
  };
  const auto without_the_first = [](int from, int to) -> std::int64_t {
    return from == 0 || to == 0 ? 0 : 1 + from;
  };
  expect_swapped(*group, Letters(*group, along_a_ring));
  if (group->rank() == 0) tests::world().barrier();
  expect_swapped(*group, Letters(*group, without_the_first));
  if (group->rank() != 0) tests::world().barrier();
}

TEST_P(GroupOf, AllToAllTakesItsTurn) {
  const auto group = make_group();
  const Letters letters(*group, num_sent);
  auto terms = memory(letters.sent);
  auto received = memory(letters.blank());
  const auto zeros = std::vector<std::int64_t>(ranks(), 0);
  (void)group->all_to_all(terms.data(), letters.send_bytes, received.data(), letters.recv_bytes);
  (void)group->all_to_all(nullptr, zeros, nullptr, zeros);
  EXPECT_THROW((void)group->all_to_all(nullptr, {}, nullptr, zeros), core::Error);
  auto last = memory<std::int64_t>({1});
  group->wait(group->all_reduce(core::DType::i64, last.data(), 1));
  EXPECT_EQ(last.values()[0], group->size());
  EXPECT_EQ(received.values(), letters.expected);
}

TEST_P(GroupOf, EveryRankEndsWithTheSameBits) {
  const auto group = make_group();
  std::vector<float> values;
  for (int i = 0; i < 13; ++i)
    values.push_back(1.0f / static_cast<float>(1 + i + 17 * group->rank()));
  auto sums = memory(values);
  group->wait(group->all_reduce(core::DType::f32, sums.data(), 13));
  const auto all = tests::world().all_gather_bytes(std::as_bytes(std::span(sums.values())));
  for (const auto& bytes : all)
    EXPECT_EQ(bytes, all.front());
}

TEST_P(GroupOf, ReductionsOfOneAfterTheOtherSeeEachOther) {
  const auto group = make_group();
  auto values = memory<std::int64_t>({1});
  auto full = memory(std::vector<std::int64_t>(ranks()));
  (void)group->all_reduce(core::DType::i64, values.data(), 1);
  (void)group->all_reduce(core::DType::i64, values.data(), 1);
  const Ticket gathered = group->all_gather(core::DType::i64, values.data(), full.data(), 1);
  group->wait(gathered);
  group->wait(gathered);  // again: nothing happens
  for (const std::int64_t value : full.values())
    EXPECT_EQ(value, group->size() * group->size());
}

TEST_P(GroupOf, SynchronizeWaitsForWhatWasStarted) {
  const auto group = make_group();
  auto values = memory(std::vector<float>(1000, 1.0f));
  for (int i = 0; i < 3; ++i)
    (void)group->all_reduce(core::DType::f32, values.data(), 1000);
  group->synchronize();
  const auto n = static_cast<float>(group->size());
  EXPECT_EQ(values.values(), std::vector<float>(1000, n * n * n));
}

TEST_P(GroupOf, GroupsThatShareAStreamTakeTurns) {
  const auto& world = tests::world();
  const Communicator half = world.split(world.rank() % 2, world.rank(), "half");
  const auto all = make_group();
  const auto some = make_group(half);
  auto values = memory<std::int64_t>({1});
  (void)some->all_reduce(core::DType::i64, values.data(), 1);
  // Ranks 0, 2, ... hold the number of even ranks now, the others that of odd ones.
  all->wait(all->all_reduce(core::DType::i64, values.data(), 1));
  const std::int64_t even = (world.size() + 1) / 2, odd = world.size() / 2;
  EXPECT_EQ(values.values()[0], even * even + odd * odd);
  EXPECT_EQ(some->communicator().name(), "half");
  some->synchronize();
}

TEST_P(GroupOf, NothingStartedIsNothingToWaitFor) {
  const auto group = make_group();
  group->wait(nothing_started);
  group->synchronize();
  EXPECT_EQ(group->traffic().collectives, 0);
  EXPECT_EQ(group->traffic().sent_bytes, 0);
}

/// A rank's part of a gather goes to each other rank, and so do the parts it sums for others; an
/// all-reduce is both.
TEST_P(GroupOf, CountsTheBytesItSends) {
  const auto group = make_group();
  const std::int64_t n = group->size(), others = n - 1;
  auto shard = memory(std::vector<float>(2));
  auto full = memory(std::vector<float>(2 * ranks()));
  (void)group->all_gather(core::DType::f32, shard.data(), full.data(), 2);
  EXPECT_EQ(group->traffic().sent_bytes, 8 * others);
  (void)group->reduce_scatter(core::DType::f32, full.data(), shard.data(), 2);
  EXPECT_EQ(group->traffic().sent_bytes, 2 * 8 * others);
  (void)group->all_reduce(core::DType::f32, full.data(), 2 * n);
  EXPECT_EQ(group->traffic().sent_bytes, 4 * 8 * others);
  EXPECT_EQ(group->traffic().collectives, 3);
  // What a rank sends to itself stays.
  const std::vector<std::int64_t> bytes(ranks(), 8);
  auto out = memory(std::vector<std::int64_t>(ranks()));
  auto received = memory(std::vector<std::int64_t>(ranks()));
  (void)group->all_to_all(out.data(), bytes, received.data(), bytes);
  EXPECT_EQ(group->traffic().sent_bytes, 5 * 8 * others);
  EXPECT_EQ(group->traffic().collectives, 4);
  group->synchronize();
}

TEST_P(GroupOf, ExposedTimeIsTakenOnce) {
  const auto group = make_group();
  auto values = memory(std::vector<float>(10));
  group->wait(group->all_reduce(core::DType::f32, values.data(), 10));
  group->synchronize();
  values.values();
  EXPECT_GE(group->take_exposed_s(), 0.0);
  EXPECT_EQ(group->take_exposed_s(), 0.0);
}

TEST_P(GroupOf, MovesNothingOfNoElements) {
  const auto group = make_group();
  auto values = memory<float>({2.0f});
  (void)group->all_gather(core::DType::f32, values.data(), values.data(), 0);
  (void)group->reduce_scatter(core::DType::f32, values.data(), values.data(), 0);
  group->wait(group->all_reduce(core::DType::f32, values.data(), 0));
  EXPECT_EQ(values.values()[0], 2.0f);
}

TEST_P(GroupOf, WithoutMpiIsAGroupOfOne) {
  if (tests::world().size() > 1) GTEST_SKIP() << "every rank would be alone";
  const auto group = make_group(Communicator());
  auto shard = memory<float>({3.0f, 4.0f});
  auto full = memory<float>({0.0f, 0.0f});
  (void)group->all_gather(core::DType::f32, shard.data(), full.data(), 2);
  group->wait(group->all_reduce(core::DType::f32, full.data(), 2));
  EXPECT_EQ(full.values(), (std::vector<float>{3.0f, 4.0f}));
  EXPECT_EQ(group->traffic().sent_bytes, 0);
}

TEST_P(GroupOf, ExchangesOnTheHostAlone) {
  const auto group = make_group();
  std::vector<std::int32_t> sums(3, 0);
  Exchange exchange{.count = 3,
                    .element_bytes = 4,
                    .sums = reinterpret_cast<std::byte*>(sums.data()),
                    .pack =
                        [&](int to, std::int64_t offset, std::int64_t n, std::byte* wire) {
                          for (std::int64_t i = 0; i < n; ++i) {
                            const auto value = static_cast<std::int32_t>(
                                100 * to + 10 * group->rank() + static_cast<int>(offset + i));
                            std::memcpy(wire + 4 * i, &value, 4);
                          }
                        },
                    .add =
                        [&](const std::byte* wire, std::int64_t n, std::byte* to) {
                          for (std::int64_t i = 0; i < n; ++i) {
                            std::int32_t value = 0;
                            std::memcpy(&value, wire + 4 * i, 4);
                            reinterpret_cast<std::int32_t*>(to)[i] += value;
                          }
                        }};
  if (GetParam() == Backend::nccl) {
    EXPECT_THROW((void)group->exchange(std::move(exchange)), core::Error);
    return;
  }
  group->wait(group->exchange(std::move(exchange)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sums[static_cast<std::size_t>(i)],
              group->size() * (100 * group->rank() + i) + 10 * ranks_sum());
  }
}

TEST_P(GroupOf, RefusesToSumTypesItCannotAdd) {
  if (GetParam() != Backend::nccl) GTEST_SKIP() << "the worker would meet the error";
  const auto group = make_group();
  auto bytes = memory<std::uint8_t>({1});
  EXPECT_THROW((void)group->all_reduce(core::DType::boolean, bytes.data(), 1), core::Error);
}

INSTANTIATE_TEST_SUITE_P(Backends, GroupOf,
                         testing::Values(Backend::mpi_behind, Backend::mpi_inline, Backend::nccl),
                         [](const auto& info) {
                           return std::string(info.param == Backend::mpi_behind   ? "MpiBehind"
                                              : info.param == Backend::mpi_inline ? "MpiInline"
                                                                                  : "Nccl");
                         });

TEST(NcclGroup, IsRefusedWithoutAGpu) {
  if (num_gpus() > 0) GTEST_SKIP() << "this machine has GPUs";
  try {
    const auto stream = std::make_shared<DeviceStream>([]() -> void* { return nullptr; });
    make_nccl_group(tests::world(), stream);
    ADD_FAILURE() << "it was made";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::environment) << error.what();
  }
}

}  // namespace
}  // namespace finetune::comm::group_test
