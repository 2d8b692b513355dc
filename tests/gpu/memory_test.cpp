// SPDX-License-Identifier: Apache-2.0
// Memory, streams and events of the device as the program uses them.
#include <span>
#include <vector>

#include "core/clock.hpp"
#include "gpu/as_on_cpu.hpp"
#include "model/upload.hpp"
#include "shard/compute_stream.hpp"
#include "shard/compute_timer.hpp"
#include "shard/device_memory.hpp"
#include "shard/host_copy.hpp"

namespace finetune::tests::gpu::memory_test {
namespace {

using shard::HostCopy;

std::span<float> floats(const HostCopy& copy) {
  const std::span<std::byte> bytes = copy.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

/// Zeros that become `value` only after a while: the device has a lot to do before.
at::Tensor late(float value, std::int64_t count) {
  const at::TensorOptions there = at::TensorOptions(at::kFloat).device(device());
  at::Tensor target = at::zeros({count}, there);
  at::Tensor busy = at::eye(512, there);
  for (int i = 0; i < 50; ++i)
    busy = at::mm(busy, busy);
  target.add_(busy[0][0] * value);
  return target;
}

TEST(HostCopyOfTheDevice, HoldsWhatWasComputedBefore) {
  for (const auto contents : {HostCopy::Contents::wanted, HostCopy::Contents::started}) {
    HostCopy copy(late(3, 100'000), contents);
    EXPECT_TRUE(copy.host().is_pinned());
    EXPECT_FALSE(copy.is_own_memory());
    copy.wait();
    for (const float value : floats(copy))
      ASSERT_EQ(value, 3);
  }
}

TEST(HostCopyOfTheDevice, GoesBackBehindWhatReadsIt) {
  at::Tensor target = late(1, 100'000);
  const at::Tensor before = target + 0;
  HostCopy copy(target, HostCopy::Contents::undefined);
  for (float& value : floats(copy))
    value = 5;
  copy.start_write_back();
  const at::Tensor after = target * 2;
  copy.wait();
  EXPECT_TRUE(before.cpu().eq(1).all().item<bool>());
  EXPECT_TRUE(after.cpu().eq(10).all().item<bool>());
}

TEST(HostCopyOfTheDevice, TakesPartsAndStrides) {
  at::Tensor whole = at::arange(24, at::kFloat).view({4, 6}).to(device());
  HostCopy copy(whole.slice(1, 1, 6, 2));
  EXPECT_EQ(floats(copy)[4], 9);
  for (float& value : floats(copy))
    value = -1;
  copy.write_back();
  EXPECT_EQ(whole.cpu().eq(-1).sum().item<std::int64_t>(), 12);
}

TEST(Upload, IsReadAfterItsSourceIsGone) {
  std::vector<at::Tensor> there;
  for (int i = 0; i < 20; ++i) {
    late(1, 10);
    there.push_back(model::upload(at::full({100'000}, i, at::kLong), device()));
  }
  for (std::size_t i = 0; i < there.size(); ++i)
    EXPECT_TRUE(there[i].cpu().eq(static_cast<std::int64_t>(i)).all().item<bool>()) << i;
}

TEST(ComputeTimerOfTheDevice, TimesWhatTheDeviceDoes) {
  shard::ComputeTimer timer(device());
  EXPECT_EQ(timer.seconds(), 0);
  const core::Stopwatch watch;
  timer.begin();
  static_cast<void>(late(1, 10));
  timer.end();
  shard::wait_for_compute(device());
  const double host_s = watch.seconds();
  EXPECT_GT(timer.seconds(), 0);
  EXPECT_LE(timer.seconds(), host_s);
}

TEST(DeviceMemory, CountsThePeakOfTensors) {
  constexpr std::int64_t mib = 1 << 20;
  const at::TensorOptions bytes = at::TensorOptions(at::kByte).device(device());
  const at::Tensor kept = at::empty({64 * mib}, bytes);
  const std::int64_t with_one = shard::peak_device_bytes(device()).tensors;
  EXPECT_GE(with_one, 64 * mib);
  {
    const at::Tensor more = at::empty({256 * mib}, bytes);
    EXPECT_GE(shard::peak_device_bytes(device()).tensors, 320 * mib);
  }
  const std::int64_t with_both = shard::peak_device_bytes(device()).tensors;
  static_cast<void>(at::empty({256 * mib}, bytes));
  EXPECT_EQ(shard::peak_device_bytes(device()).tensors, with_both)
      << "what was let go is not used again";
}

TEST(DeviceMemory, HasNoRoomForWhatIsTooLargeAndSaysSo) {
  const at::TensorOptions bytes = at::TensorOptions(at::kByte).device(device());
  EXPECT_ANY_THROW(static_cast<void>(at::empty({std::int64_t{1} << 46}, bytes)));
  EXPECT_EQ(at::ones({3}, bytes).sum().item<std::int64_t>(), 3) << "nothing works afterwards";
}

}  // namespace
}  // namespace finetune::tests::gpu::memory_test
