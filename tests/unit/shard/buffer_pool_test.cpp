// SPDX-License-Identifier: Apache-2.0
#include "shard/detail/buffer_pool.hpp"

#include <gtest/gtest.h>

namespace finetune::shard::buffer_pool_test {
namespace {

TEST(BufferPool, GivesMemoryOutAgain) {
  BufferPool pool(at::kFloat);
  const at::Tensor first = pool.take(10);
  const void* memory = first.data_ptr();
  pool.put(first);
  EXPECT_EQ(pool.take(10).data_ptr(), memory);
}

TEST(BufferPool, NeverGivesOneBufferOutTwice) {
  BufferPool pool(at::kFloat);
  pool.put(pool.take(10));
  const at::Tensor a = pool.take(4);
  const at::Tensor b = pool.take(4);
  EXPECT_NE(a.data_ptr(), b.data_ptr());
  EXPECT_EQ(a.numel(), 4);
}

TEST(BufferPool, RemembersTheWholeOfABufferThatWasTakenInPart) {
  BufferPool pool(at::kBFloat16);
  pool.put(pool.take(10));
  const at::Tensor part = pool.take(6);
  const void* memory = part.data_ptr();
  pool.put(part);
  const at::Tensor whole = pool.take(10);
  EXPECT_EQ(whole.data_ptr(), memory);
  EXPECT_EQ(whole.numel(), 10);
  EXPECT_EQ(whole.scalar_type(), at::kBFloat16);
}

TEST(BufferPool, TakesTheSmallestBufferThatFits) {
  BufferPool pool(at::kFloat);
  const at::Tensor large = pool.take(100);
  const at::Tensor small = pool.take(10);
  const void* of_small = small.data_ptr();
  pool.put(large);
  pool.put(small);
  EXPECT_EQ(pool.take(5).data_ptr(), of_small);
}

TEST(BufferPool, DoesNotSpendALargeBufferOnLittle) {
  BufferPool pool(at::kFloat);
  const at::Tensor large = pool.take(100);
  pool.put(large);
  EXPECT_NE(pool.take(40).data_ptr(), large.data_ptr());
  EXPECT_EQ(pool.take(90).data_ptr(), large.data_ptr());
}

TEST(BufferPool, GivesABufferForALittleMore) {
  BufferPool pool(at::kFloat);
  const at::Tensor embedding = pool.take(32000);
  pool.put(embedding);
  EXPECT_EQ(pool.take(32008).data_ptr(), embedding.data_ptr());
}

TEST(BufferPool, AllocatesWhereNothingFits) {
  BufferPool pool(at::kFloat);
  pool.put(pool.take(10));
  EXPECT_EQ(pool.take(11).numel(), 11);
}

}  // namespace
}  // namespace finetune::shard::buffer_pool_test
