// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "metrics/memory.hpp"

namespace finetune::metrics::tensor_bytes_test {
namespace {

constexpr std::int64_t mebi = std::int64_t{1} << 20;
/// What the allocator may round a block up by.
constexpr std::int64_t rounding = 8192;

class TensorBytesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { count_tensor_bytes(); }
};

TEST_F(TensorBytesTest, CountATensorWhileItLives) {
  const std::int64_t before = tensor_bytes().live;
  {
    const at::Tensor tensor = at::empty({mebi}, at::kFloat);
    const at::Tensor view = tensor.narrow(0, 0, 10);
    EXPECT_GE(tensor_bytes().live - before, 4 * mebi);
    EXPECT_LE(tensor_bytes().live - before, 4 * mebi + rounding);
  }
  EXPECT_EQ(tensor_bytes().live, before);
}

TEST_F(TensorBytesTest, RememberTheirPeak) {
  reset_peak();
  const std::int64_t before = tensor_bytes().live;
  at::empty({3 * mebi}, at::kByte);
  const at::Tensor kept = at::empty({mebi}, at::kByte);
  EXPECT_GE(tensor_bytes().peak - before, 3 * mebi);
  EXPECT_LE(tensor_bytes().peak - before, 3 * mebi + rounding);
  reset_peak();
  EXPECT_EQ(tensor_bytes().peak, tensor_bytes().live);
}

TEST_F(TensorBytesTest, KeepValuesAndAlignment) {
  const at::Tensor tensor = at::arange(1000, at::kLong);
  const at::Tensor copy = tensor.clone();
  EXPECT_TRUE(copy.equal(tensor));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(copy.data_ptr()) % 64, 0u);
  EXPECT_EQ(at::empty({0}).numel(), 0);
}

TEST_F(TensorBytesTest, CountGrowingStorage) {
  const std::int64_t before = tensor_bytes().live;
  {
    at::Tensor tensor = at::empty({10}, at::kByte);
    tensor.resize_({2 * mebi});
    EXPECT_GE(tensor_bytes().live - before, 2 * mebi);
    EXPECT_LE(tensor_bytes().live - before, 2 * mebi + rounding);
  }
  EXPECT_EQ(tensor_bytes().live, before);
}

TEST_F(TensorBytesTest, CountOnSeveralThreads) {
  const std::int64_t before = tensor_bytes().live;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int k = 0; k < 200; ++k)
        at::empty({100 + k}, at::kFloat);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(tensor_bytes().live, before);
  EXPECT_GE(tensor_bytes().peak, before);
}

at::Tensor mebibytes_for(core::MemoryUse use, std::int64_t count) {
  const core::MemoryScope scope(use);
  return at::empty({count * mebi}, at::kByte);
}

TEST_F(TensorBytesTest, TellWhatThePeakWasFor) {
  using core::MemoryUse;
  tell_uses_apart();
  reset_peak();
  const core::BytesByUse before = peak_by_use();
  const at::Tensor kept = mebibytes_for(MemoryUse::weights, 3);
  at::Tensor sums = mebibytes_for(MemoryUse::gradients, 2);
  at::Tensor outside = at::empty({mebi}, at::kByte);
  sums.reset();
  outside.reset();
  // Less than at the peak, though more for states.
  const at::Tensor later = mebibytes_for(MemoryUse::states, 2);
  const auto at_peak = [&](MemoryUse use) {
    const auto i = static_cast<std::size_t>(use);
    return static_cast<double>(peak_by_use()[i] - before[i]);
  };
  EXPECT_NEAR(at_peak(MemoryUse::weights), 3 * mebi, rounding);
  EXPECT_NEAR(at_peak(MemoryUse::gradients), 2 * mebi, rounding);
  EXPECT_NEAR(at_peak(MemoryUse::activations), mebi, rounding);
  EXPECT_NEAR(at_peak(MemoryUse::states), 0, rounding);
}

TEST_F(TensorBytesTest, AreToldApartAnew) {
  using core::MemoryUse;
  tell_uses_apart();
  at::Tensor earlier = mebibytes_for(MemoryUse::weights, 2);
  tell_uses_together();
  EXPECT_EQ(peak_by_use(), core::BytesByUse{});
  tell_uses_apart();
  const auto weights_at_peak = [] {
    return static_cast<double>(peak_by_use()[static_cast<std::size_t>(MemoryUse::weights)]);
  };
  const at::Tensor sums = mebibytes_for(MemoryUse::gradients, 1);
  EXPECT_NEAR(weights_at_peak(), 0, rounding) << "tensors from before are activations";
  earlier.reset();
  const at::Tensor later = mebibytes_for(MemoryUse::weights, 3);
  EXPECT_NEAR(weights_at_peak(), 3 * mebi, rounding);
}

TEST_F(TensorBytesTest, CountOnceThoughAskedTwice) {
  count_tensor_bytes();
  const std::int64_t before = tensor_bytes().live;
  const at::Tensor tensor = at::empty({mebi}, at::kByte);
  EXPECT_LE(tensor_bytes().live - before, mebi + rounding);
}

}  // namespace
}  // namespace finetune::metrics::tensor_bytes_test
