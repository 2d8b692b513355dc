// SPDX-License-Identifier: Apache-2.0
// The simulated device finds missing waits: between streams, and of the host for its copies.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <utility>

#include "model/device.hpp"
#include "shard/detail/recorded_event.hpp"
#include "shard/host_copy.hpp"
#include "simulated/device/pinned.hpp"

namespace finetune::tests::simulated_order {
namespace {

using shard::HostCopy;

constexpr int exit_code_of_bugs = 70;

at::Device gpu() {
  return model::compute_device(0);
}

at::Tensor ones_there() {
  return at::ones({100}, at::TensorOptions(at::kFloat).device(gpu()));
}

c10::Event event_of_now() {
  return shard::recorded_event(gpu(), c10::EventFlag::PYTORCH_DEFAULT);
}

c10::Stream another_stream() {
  return c10::impl::VirtualGuardImpl(gpu().type()).getNewStream(gpu());
}

class SimulatedOrder : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

/// `f` on another stream, which waits for `event` first if there is one.
template <typename F>
auto on(const c10::Stream& stream, c10::Event* event, const F& f) {
  const c10::StreamGuard guard(stream);
  if (event != nullptr) event->block(stream);
  return f();
}

TEST_F(SimulatedOrder, AReaderOnAnotherStreamWaitsForTheWriter) {
  const at::Tensor values = ones_there();
  const c10::Stream other = another_stream();
  const auto sum = [&] { return values.sum().item<float>(); };
  EXPECT_EXIT(on(other, nullptr, sum), testing::ExitedWithCode(exit_code_of_bugs),
              "aten::sum.* of stream 2\\) reads Float \\[100\\], which aten::fill_.*computing "
              "stream\\) may still be writing");
  c10::Event filled = event_of_now();
  EXPECT_EQ(on(other, &filled, sum), 100);
}

TEST_F(SimulatedOrder, AWriterWaitsForReadersOnAnotherStream) {
  const at::Tensor values = ones_there();
  const c10::Stream other = another_stream();
  c10::Event filled = event_of_now();
  const at::Tensor sum = on(other, &filled, [&] { return values.sum(); });
  EXPECT_EXIT(values.zero_(), testing::ExitedWithCode(exit_code_of_bugs), "may still be reading");
  on(other, nullptr, event_of_now)
      .block(c10::impl::VirtualGuardImpl(gpu().type()).getStream(gpu()));
  values.zero_();
  EXPECT_EQ(sum.item<float>(), 100);
}

TEST_F(SimulatedOrder, OnlyBytesThatBothTouchMatter) {
  const at::Tensor values = ones_there();
  const c10::Stream other = another_stream();
  c10::Event filled = event_of_now();
  const at::Tensor half = values.narrow(0, 0, 50);
  on(other, &filled, [&] { return half.zero_(); });
  EXPECT_EQ(values.narrow(0, 50, 50).sum().item<float>(), 50);
  EXPECT_EXIT(values.narrow(0, 49, 2).sum(), testing::ExitedWithCode(exit_code_of_bugs),
              "may still be writing");
  on(other, nullptr, event_of_now).synchronize();
}

TEST_F(SimulatedOrder, AWaitOfTheHostOrdersAllStreams) {
  const at::Tensor values = ones_there();
  event_of_now().synchronize();
  EXPECT_EQ(on(another_stream(), nullptr, [&] { return values.sum().item<float>(); }), 100);
}

TEST_F(SimulatedOrder, AnEventIsPastWhenSomebodyHasWaited) {
  const at::Tensor values = ones_there();
  const c10::Event first = event_of_now();
  values.zero_();
  c10::Event second = event_of_now();
  EXPECT_FALSE(first.query());
  second.synchronize();
  EXPECT_TRUE(first.query());
}

TEST_F(SimulatedOrder, MemoryIsFreedAfterItsLastUseOnAnyStream) {
  at::Tensor values = ones_there();
  const c10::Stream other = another_stream();
  c10::Event filled = event_of_now();
  const at::Tensor sum = on(other, &filled, [&] { return values.sum(); });
  EXPECT_EXIT(values.reset(), testing::ExitedWithCode(exit_code_of_bugs),
              "512 bytes are freed, which aten::sum.* may still be reading");
  on(other, nullptr, event_of_now).synchronize();
  values.reset();
}

TEST_F(SimulatedOrder, ABlockThatWasFreedIsNotUsedOnAnotherStreamAtOnce) {
  const at::Tensor fresh = at::empty({100}, at::TensorOptions(at::kFloat).device(gpu()));
  const auto zero = [&] { return fresh.zero_(); };
  const c10::Stream other = another_stream();
  EXPECT_EXIT(on(other, nullptr, zero), testing::ExitedWithCode(exit_code_of_bugs),
              "an earlier owner of the block");
  c10::Event made = event_of_now();
  on(other, &made, zero);
  on(other, nullptr, event_of_now).synchronize();
}

TEST_F(SimulatedOrder, TheHostReadsACopyAfterItsEvent) {
  HostCopy copy(ones_there(), HostCopy::Contents::started);
  const auto read = [&] { return copy.host().const_data_ptr<float>()[99]; };
  EXPECT_EXIT(static_cast<void>(read()), testing::ExitedWithCode(exit_code_of_bugs),
              "touches pinned memory of 4096 bytes that copy to the host may still be writing");
  copy.wait();
  EXPECT_EQ(read(), 1);
}

TEST_F(SimulatedOrder, TheHostOverwritesWhatACopyReadsAfterItsEvent) {
  const at::Tensor values = ones_there();
  HostCopy copy(values);
  copy.host().fill_(2);
  copy.start_write_back();
  EXPECT_EQ(copy.host().const_data_ptr<float>()[99], 2);
  EXPECT_EXIT(copy.host().fill_(3), testing::ExitedWithCode(exit_code_of_bugs),
              "copy to the device may still be reading");
  copy.wait();
  copy.host().fill_(3);
  EXPECT_EQ(values.sum().item<float>(), 200);
}

TEST_F(SimulatedOrder, PinnedMemoryThatIsLetGoStaysUntilItsCopyIsDone) {
  const at::Tensor values = ones_there();
  const void* address = nullptr;
  {
    HostCopy copy(values);
    address = copy.host().const_data_ptr();
    copy.start_write_back();
  }
  const auto pinned = [] {
    return at::empty({100}, at::TensorOptions(at::kFloat).pinned_memory(true));
  };
  EXPECT_NE(pinned().const_data_ptr(), address);
  event_of_now().synchronize();
  EXPECT_EQ(pinned().const_data_ptr(), address);
}

}  // namespace
}  // namespace finetune::tests::simulated_order
