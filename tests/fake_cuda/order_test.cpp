// SPDX-License-Identifier: Apache-2.0
// Whatever the timing, collectives read what the computation wrote before them, and the computation
// reads what they wrote.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <random>

#include "comm/mpi/mpi_group.hpp"
#include "core/error.hpp"
#include "fake_cuda/fixture.hpp"

namespace finetune::fake_cuda::order_test {
namespace {

using comm::Group;
using comm::Ticket;
using core::DType;
using tests::compute_stream;
using tests::DeviceArray;

class Order : public tests::OnFakeGpus {};

/// A rank writes its part while the gather stands before it, and reads all parts behind it.
bool gathers_what_is_written_late(Group& group, const comm::DeviceStream& stream) {
  DeviceArray<int> own({-1});
  DeviceArray<int> all(std::vector<int>(static_cast<std::size_t>(group.size()), -2));
  fake::Gate gate;
  gate.hold(compute_stream());
  own.write_later({10 + group.rank()});
  const Ticket ticket = group.all_gather(DType::i32, own.get(), all.get(), 1);
  group.wait(ticket);
  // Without a wait before it, the gather is done by now.
  const bool is_held = fake::is_held(stream.stream());
  gate.open();
  std::vector<int> expected(static_cast<std::size_t>(group.size()));
  std::iota(expected.begin(), expected.end(), 10);
  return all.read() == expected && is_held;
}

/// The computation goes on while the stream of collectives is held up, and waits where it must.
bool waits_for_what_arrives_late(Group& group, const comm::DeviceStream& stream) {
  const DeviceArray<int> own({5});
  const DeviceArray<int> all(std::vector<int>(static_cast<std::size_t>(group.size()), -2));
  fake::Gate gate;
  gate.hold(stream.stream());
  const Ticket ticket = group.all_gather(DType::i32, own.get(), all.get(), 1);
  group.wait(ticket);
  int seen = -1;
  fake::put(compute_stream(), [&] { seen = all.get()[group.size() - 1]; });
  gate.wait_until_reached();
  fake::is_held(compute_stream());
  gate.open();
  cudaStreamSynchronize(static_cast<cudaStream_t>(compute_stream()));
  return seen == 5;
}

TEST_F(Order, CollectivesReadWhatIsWrittenLate) {
  const auto stream = make_stream();
  const auto group = comm::make_nccl_group(tests::world(), stream);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(gathers_what_is_written_late(*group, *stream));
}

TEST_F(Order, TheComputationReadsWhatArrivesLate) {
  const auto stream = make_stream();
  const auto group = comm::make_nccl_group(tests::world(), stream);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(waits_for_what_arrives_late(*group, *stream));
}

/// The event of the first is not to be that of anything later.
TEST_F(Order, AnOlderTicketIsWaitedForWhenOthersAreUnderWay) {
  const auto stream = make_stream();
  const auto group = comm::make_nccl_group(tests::world(), stream);
  const DeviceArray<int> own({5});
  const DeviceArray<int> all(std::vector<int>(ranks(), -2));
  const DeviceArray<std::int64_t> sum({1});
  fake::Gate gate;
  gate.hold(stream->stream());
  const Ticket older = group->all_gather(DType::i32, own.get(), all.get(), 1);
  stream->settle();
  (void)group->all_reduce(DType::i64, sum.get(), 1);
  stream->settle();
  group->wait(older);
  int seen = -1;
  fake::put(compute_stream(), [&] { seen = all.get()[group->size() - 1]; });
  gate.wait_until_reached();
  EXPECT_TRUE(fake::is_held(compute_stream()));
  gate.open();
  cudaStreamSynchronize(static_cast<cudaStream_t>(compute_stream()));
  EXPECT_EQ(seen, 5);
}

/// What both find or do not find with a mistake planted; nothing where an error says so.
std::optional<bool> is_right_with(fake::Defect defect) {
  const auto stream = std::make_shared<comm::DeviceStream>(compute_stream);
  const auto group = comm::make_nccl_group(tests::world(), stream);
  fake::set({.defect = defect});
  std::optional<bool> is_right;
  try {
    const bool reads = gathers_what_is_written_late(*group, *stream);
    const bool waits = waits_for_what_arrives_late(*group, *stream);
    // All ranks go on together, or none.
    const std::int64_t all =
        tests::world().all_reduce(std::int64_t{reads && waits}, comm::Reduce::min);
    is_right = all == 1;
  } catch (const core::Error&) {
    (void)tests::world().all_reduce(std::int64_t{0}, comm::Reduce::min);
  }
  fake::set({});
  return is_right;
}

TEST_F(Order, TheseTestsFindWaitsThatAreMissing) {
  EXPECT_EQ(is_right_with(fake::Defect::none), true);
  EXPECT_EQ(is_right_with(fake::Defect::communication_waits_for_nothing), false);
  EXPECT_EQ(is_right_with(fake::Defect::computation_waits_for_nothing), false);
  EXPECT_EQ(is_right_with(fake::Defect::done_at_once), false);
}

TEST_F(Order, TheseTestsFindEventsThatAreRecordedTooEarly) {
  EXPECT_NE(is_right_with(fake::Defect::under_way_at_once), true);
  EXPECT_FALSE(fake::take_violations().empty());
}

template <typename T>
std::vector<T> numbers(std::mt19937& random, std::size_t count) {
  std::vector<T> values(count);
  // Sums of a few of them are exact in every dtype, so that their order does not matter.
  for (T& value : values) {
    const int number = static_cast<int>(random() % 32) - 16;
    value = static_cast<T>(number);
    if constexpr (sizeof(T) == 2) value = core::float_to_bf16(static_cast<float>(number));
  }
  return values;
}

/// Every operation on device memory and, by MPI, on the host's.
template <typename T>
void expect_mpis_bits(Group& group, DType dtype, std::mt19937& random) {
  comm::MpiGroup reference(tests::world(),
                           std::make_shared<comm::Worker>(comm::Worker::Where::behind));
  const auto n = static_cast<std::size_t>(group.size());
  for (const std::size_t count : {1u, 7u, 300u}) {
    std::vector<T> whole = numbers<T>(random, n * count), part = numbers<T>(random, count);
    if (dtype == DType::f16)
      for (auto* values : {&whole, &part})
        for (T& value : *values)
          value = static_cast<T>(
              core::float_to_f16(core::bf16_to_float(static_cast<std::uint16_t>(value))));
    const DeviceArray<T> device_whole(whole), device_part(part);
    const auto elements = static_cast<std::int64_t>(count);
    (void)group.all_gather(dtype, device_part.get(), device_whole.get(), elements);
    (void)group.all_reduce(dtype, device_whole.get(), elements);
    group.wait(group.reduce_scatter(dtype, device_whole.get(), device_part.get(), elements));
    (void)reference.all_gather(dtype, part.data(), whole.data(), elements);
    (void)reference.all_reduce(dtype, whole.data(), elements);
    reference.wait(reference.reduce_scatter(dtype, whole.data(), part.data(), elements));
    EXPECT_EQ(device_whole.read(), whole) << core::name(dtype);
    EXPECT_EQ(device_part.read(), part) << core::name(dtype);
    const std::vector<std::int64_t> bytes(n, static_cast<std::int64_t>(count * sizeof(T)));
    const DeviceArray<T> device_swapped(whole);
    std::vector<T> swapped = whole;
    group.wait(group.all_to_all(device_whole.get(), bytes, device_swapped.get(), bytes));
    reference.wait(reference.all_to_all(whole.data(), bytes, swapped.data(), bytes));
    EXPECT_EQ(device_swapped.read(), swapped) << core::name(dtype);
  }
}

TEST_F(Order, ResultsAreThoseOfMpiToTheBit) {
  const auto group = comm::make_nccl_group(tests::world(), make_stream());
  std::mt19937 random(static_cast<unsigned>(tests::world().rank()));
  for (const int num_in_progress : {0, 1, 5}) {
    with({.num_in_progress = num_in_progress, .longest_delay_us = 200});
    expect_mpis_bits<float>(*group, DType::f32, random);
    expect_mpis_bits<std::int64_t>(*group, DType::i64, random);
    expect_mpis_bits<std::uint16_t>(*group, DType::bf16, random);
    expect_mpis_bits<std::uint16_t>(*group, DType::f16, random);
  }
}

TEST_F(Order, TwoGroupsOfAStreamTakeTurnsHoweverFastTheyAre) {
  const auto& world = tests::world();
  const auto stream = make_stream();
  const auto all = comm::make_nccl_group(world, stream);
  const auto pair =
      comm::make_nccl_group(world.split(world.rank() / 2, world.rank(), "pair"), stream);
  with({.longest_delay_us = 100, .seed = 5u + static_cast<unsigned>(world.rank())});
  const DeviceArray<std::int64_t> value({1});
  std::int64_t expected = 1;
  Ticket last = comm::nothing_started;
  for (int i = 0; i < 10; ++i) {
    last = pair->all_reduce(DType::i64, value.get(), 1);
    last = all->all_reduce(DType::i64, value.get(), 1);
    // Pairs of two and, of an odd number of ranks, one that is alone.
    const std::int64_t in_pairs = world.size() / 2 * 2;
    expected = expected * (2 * in_pairs + world.size() % 2) % 1'000'003;
    fake::put(compute_stream(), [] {});
    all->wait(last);
    fake::put(compute_stream(), [at = value.get()] { *at %= 1'000'003; });
  }
  EXPECT_EQ(value.read().front(), expected);
}

TEST_F(Order, EventsAreUsedAgain) {
  const auto group = comm::make_nccl_group(tests::world(), make_stream());
  const DeviceArray<float> values(std::vector<float>(4, 0.0f));
  for (int i = 0; i < 60; ++i) {
    const Ticket first = group->all_reduce(DType::f32, values.get(), 4);
    group->wait(group->all_reduce(DType::f32, values.get(), 4));
    group->wait(first);
    group->synchronize();
    values.read();
    static_cast<void>(group->take_exposed_s());
  }
  // Of two collectives, which may or may not have been done when they were waited for.
  EXPECT_LE(fake::num_events(), 12);
}

TEST_F(Order, ExposedIsTheTimeThatTheComputationStoodStill) {
  with({.clock_stands = true});
  const auto stream = make_stream();
  const auto group = comm::make_nccl_group(tests::world(), stream);
  const DeviceArray<float> values({1.0f});
  fake::Gate gate;
  gate.hold(stream->stream());
  const Ticket ticket = group->all_reduce(DType::f32, values.get(), 1);
  fake::advance_clock(8);  // the computation does not wait yet
  group->wait(ticket);
  EXPECT_TRUE(fake::is_held(compute_stream()));
  EXPECT_EQ(group->take_exposed_s(), 0.0) << "it has not ended";
  fake::advance_clock(0.25);
  gate.open();
  group->synchronize();
  values.read();
  EXPECT_NEAR(group->take_exposed_s(), 0.25, 1e-6);
  EXPECT_EQ(group->take_exposed_s(), 0.0);
  group->wait(ticket);
  EXPECT_EQ(group->take_exposed_s(), 0.0) << "it was done already";
}

TEST_F(Order, WhatIsNotReadyLeavesNoErrorBehind) {
  const auto stream = make_stream();
  const auto group = comm::make_nccl_group(tests::world(), stream);
  const DeviceArray<float> values({1.0f});
  fake::Gate gate;
  gate.hold(stream->stream());
  group->wait(group->all_reduce(DType::f32, values.get(), 1));
  static_cast<void>(group->take_exposed_s());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  gate.open();
  group->synchronize();
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(Order, AFullDeviceIsWaitedFor) {
  const auto group = comm::make_nccl_group(tests::world(), make_stream());
  with({.longest_delay_us = 50, .most_in_queue = 2});
  const DeviceArray<std::int64_t> value({1});
  std::int64_t expected = 1;
  for (int i = 0; i < 20; ++i) {
    group->wait(group->all_reduce(DType::i64, value.get(), 1));
    expected *= group->size();
  }
  EXPECT_EQ(value.read().front(), expected);
}

/// A gather and a sum that begin as one, of which the sum's ticket is waited for.
bool begin_as_one(Group& group, bool waits_inside) {
  const auto n = static_cast<std::size_t>(group.size());
  DeviceArray<int> own({-1}), all(std::vector<int>(n, -2));
  DeviceArray<std::int64_t> terms(std::vector<std::int64_t>(n, 3)), sum({0});
  own.write_later({10 + group.rank()});
  const std::int64_t before = fake::num_launches();
  Ticket last = comm::nothing_started;
  group.together([&] {
    const Ticket gather = group.all_gather(DType::i32, own.get(), all.get(), 1);
    last = group.reduce_scatter(DType::i64, terms.get(), sum.get(), 1);
    EXPECT_EQ(last, gather);
    if (waits_inside) group.wait(last);
  });
  group.wait(last);
  std::vector<int> expected(n);
  std::iota(expected.begin(), expected.end(), 10);
  const bool is_right = all.read() == expected && sum.read().front() == 3 * group.size();
  return is_right && fake::num_launches() == before + 1;
}

TEST_F(Order, WhatBelongsTogetherIsOneLaunchWithOneTicket) {
  const auto group = comm::make_nccl_group(tests::world(), make_stream());
  for (const bool waits_inside : {false, true})
    EXPECT_TRUE(begin_as_one(*group, waits_inside));
  const std::int64_t before = fake::num_launches();
  group->together([] {});
  EXPECT_EQ(fake::num_launches(), before);
  EXPECT_EQ(group->traffic().collectives, 4);
}

/// Each rank's number from each other one, in one launch.
bool swaps_as_one(Group& group) {
  const auto n = static_cast<std::size_t>(group.size());
  const DeviceArray<int> own(std::vector<int>(n, -1)), all(std::vector<int>(n, -2));
  own.write_later(std::vector<int>(n, group.rank()));
  const std::vector<std::int64_t> bytes(n, sizeof(int));
  const std::int64_t before = fake::num_launches();
  group.wait(group.all_to_all(own.get(), bytes, all.get(), bytes));
  std::vector<int> expected(n);
  std::iota(expected.begin(), expected.end(), 0);
  return all.read() == expected && fake::num_launches() == before + 1;
}

TEST_F(Order, AnAllToAllIsOneLaunch) {
  const auto group = comm::make_nccl_group(tests::world(), make_stream());
  EXPECT_TRUE(swaps_as_one(*group));
}

TEST_F(Order, TheseTestsFindGroupsThatAreLost) {
  const auto group = comm::make_nccl_group(tests::world(), make_stream());
  with({.defect = fake::Defect::group_is_lost});
  EXPECT_FALSE(begin_as_one(*group, false));
  EXPECT_FALSE(swaps_as_one(*group));
}

/// Another group of the stream, or the same outside, starts what was held back.
TEST_F(Order, WhatBelongsTogetherKeepsItsPlace) {
  const auto stream = make_stream();
  const auto first = comm::make_nccl_group(tests::world(), stream);
  const auto second = comm::make_nccl_group(tests::world(), stream);
  const DeviceArray<std::int64_t> value({1});
  Ticket last = comm::nothing_started;
  first->together([&] {
    const Ticket early = first->all_reduce(DType::i64, value.get(), 1);
    last = second->all_reduce(DType::i64, value.get(), 1);
    EXPECT_EQ(last, early + 1);
    last = first->all_reduce(DType::i64, value.get(), 1);
    EXPECT_EQ(last, early + 2);
  });
  second->wait(last);
  const std::int64_t n = tests::world().size();
  EXPECT_EQ(value.read().front(), n * n * n);
}

TEST_F(Order, WhatAnExceptionInterruptsIsNotStarted) {
  const auto stream = make_stream();
  const auto group = comm::make_nccl_group(tests::world(), stream);
  const DeviceArray<std::int64_t> value({1});
  const std::int64_t before = fake::num_launches();
  EXPECT_THROW(group->together([&] {
    (void)group->all_reduce(DType::i64, value.get(), 1);
    throw core::Error(core::ErrorKind::numbers, "elsewhere");
  }),
               core::Error);
  group->synchronize();
  EXPECT_EQ(fake::num_launches(), before);
  group->wait(group->all_reduce(DType::i64, value.get(), 1));
  EXPECT_EQ(value.read().front(), group->size());
}

TEST_F(Order, RememberedMemoryIsRegisteredUntilItIsForgotten) {
  const auto group = comm::make_nccl_group(tests::world(), make_stream());
  const DeviceArray<float> values(std::vector<float>(100, 1.0f));
  (void)group->all_reduce(DType::f32, values.get(), 100);
  group->remember(values.get(), 400);
  EXPECT_EQ(fake::num_registered(), 1);
  group->wait(group->all_reduce(DType::f32, values.get(), 100));
  group->forget(values.get());
  EXPECT_EQ(fake::num_registered(), 0);
  group->forget(values.get());
  const auto n = static_cast<float>(group->size());
  EXPECT_EQ(values.read().front(), n * n);
}

TEST_F(Order, TheFakeFindsMemoryThatIsFreedBeforeItIsForgotten) {
  const auto group = comm::make_nccl_group(tests::world(), make_stream());
  std::optional<DeviceArray<float>> values(std::vector<float>(100, 1.0f));
  float* const memory = values->get();
  group->remember(memory, 400);
  values.reset();
  EXPECT_EQ(fake::take_violations().size(), 1u);
  group->forget(memory);
}

}  // namespace
}  // namespace finetune::fake_cuda::order_test
