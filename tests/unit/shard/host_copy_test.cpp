// SPDX-License-Identifier: Apache-2.0
#include "shard/host_copy.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace finetune::shard::host_copy_test {
namespace {

at::Tensor numbers(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return at::tensor(at::ArrayRef<float>(values));
}

std::vector<float> floats(const HostCopy& copy) {
  std::vector<float> values(copy.bytes().size() / sizeof(float));
  std::memcpy(values.data(), copy.bytes().data(), copy.bytes().size());
  return values;
}

TEST(HostCopy, OfAContiguousHostTensorIsItsOwnMemory) {
  at::Tensor whole = numbers(6);
  HostCopy copy(whole.narrow(0, 2, 3));
  EXPECT_TRUE(copy.is_own_memory());
  EXPECT_EQ(static_cast<void*>(copy.bytes().data()), whole.data_ptr<float>() + 2);
  EXPECT_EQ(copy.bytes().size(), 3 * sizeof(float));
}

// A strided tensor takes the way that a GPU's takes, without one.
TEST(HostCopy, OfAnythingElseIsABufferThatGoesBackWhenAsked) {
  at::Tensor whole = numbers(6);
  HostCopy copy(whole.slice(0, 1, 6, 2));
  ASSERT_FALSE(copy.is_own_memory());
  EXPECT_EQ(floats(copy), (std::vector<float>{1, 3, 5}));
  const std::vector<float> written = {-1, -3, -5};
  std::memcpy(copy.bytes().data(), written.data(), copy.bytes().size());
  EXPECT_TRUE(at::equal(whole, numbers(6)));
  copy.write_back();
  EXPECT_TRUE(at::equal(whole, at::tensor({0.0f, -1.0f, 2.0f, -3.0f, 4.0f, -5.0f})));
}

TEST(HostCopy, MayBeginWithoutTheContents) {
  at::Tensor whole = numbers(4);
  HostCopy copy(whole.slice(0, 0, 4, 2), HostCopy::Contents::undefined);
  std::memset(copy.bytes().data(), 0, copy.bytes().size());
  copy.write_back();
  EXPECT_TRUE(at::equal(whole, at::tensor({0.0f, 1.0f, 0.0f, 3.0f})));
}

TEST(HostCopy, GoesBackInPartAndLeavesTheRest) {
  at::Tensor whole = numbers(8);
  HostCopy copy(whole.slice(0, 0, 8, 2), HostCopy::Contents::undefined);
  std::memset(copy.bytes().data(), 0, copy.bytes().size());
  copy.write_back(1, 2);
  EXPECT_TRUE(at::equal(whole, at::tensor({0.0f, 1.0f, 0.0f, 3.0f, 0.0f, 5.0f, 6.0f, 7.0f})));
}

TEST(HostCopy, OfAGpuTensorIsPinned) {
  if (!at::hasCUDA()) GTEST_SKIP() << "needs a GPU";
  at::Tensor device = numbers(5).to(at::kCUDA);
  HostCopy copy(device);
  EXPECT_TRUE(copy.host().is_pinned());
  EXPECT_EQ(floats(copy), (std::vector<float>{0, 1, 2, 3, 4}));
  std::memset(copy.bytes().data(), 0, copy.bytes().size());
  copy.write_back();
  EXPECT_EQ(device.abs().sum().item<float>(), 0.0f);
}

}  // namespace
}  // namespace finetune::shard::host_copy_test
