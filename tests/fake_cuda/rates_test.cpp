// SPDX-License-Identifier: Apache-2.0
// Ranks know how fast their large collectives were, by the clock of the device.
#include <gtest/gtest.h>

#include <vector>

#include "comm/activity.hpp"
#include "core/clock.hpp"
#include "fake_cuda/fixture.hpp"

namespace finetune::fake_cuda::rates_test {
namespace {

using tests::DeviceArray;

class Rates : public tests::OnFakeGpus {};

TEST_F(Rates, AreThoseOfLargeCollectives) {
  const auto stream = make_stream();
  const auto group = comm::make_nccl_group(tests::world(), stream);
  comm::LinkRates& rates = tests::world().activity()->link_rates();
  rates.take();
  const auto sum = [&](std::size_t count) {
    const DeviceArray<float> values(std::vector<float>(count, 1));
    group->wait(
        group->all_reduce(core::DType::f32, values.get(), static_cast<std::int64_t>(count)));
    group->synchronize();
    return rates.take();
  };
  EXPECT_TRUE(sum(1 << 10).empty()) << "too small";
  const core::Stopwatch watch;
  const std::vector<comm::LinkRate> found = sum(1 << 19);
  const double longest_s = watch.seconds();
  ASSERT_EQ(found.size(), group->size() > 1 ? 1 : 0) << "alone nothing travels";
  if (found.empty()) return;
  EXPECT_EQ(found[0].axis, tests::world().name());
  EXPECT_EQ(found[0].first_rank, 0);
  EXPECT_EQ(found[0].num_ranks, group->size());
  // As many bytes in less time than passed here.
  const int others = group->size() - 1;
  const double bytes = 2.0 * 4 * (1 << 19) * others / group->size();
  EXPECT_GE(found[0].bytes_per_s * longest_s, bytes);
}

}  // namespace
}  // namespace finetune::fake_cuda::rates_test
