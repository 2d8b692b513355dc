// SPDX-License-Identifier: Apache-2.0
#include "base/initial_weights.hpp"

#include <gtest/gtest.h>

#include <map>

#include "unit/train/tiny_model.hpp"

namespace finetune::base::initial_weights_test {
namespace {

using tests::TinyKind;
using tests::TinyModel;

using Elements = std::map<std::pair<int, std::int64_t>, float>;

Elements masters(TinyModel& tiny) {
  Elements all;
  tiny.for_each([&](int row, std::int64_t i, float master, float) { all[{row, i}] = master; });
  return all;
}
Elements masters(TinyModel&& tiny) {
  return masters(tiny);
}

TEST(Randomize, DoesNotDependOnTheRanks) {
  const Elements whole = masters(TinyModel(comm::Communicator()));
  const Elements mine = masters(TinyModel(tests::world()));
  for (const auto& [place, value] : mine)
    EXPECT_EQ(value, whole.at(place));
  const std::int64_t all =
      tests::world().all_reduce(static_cast<std::int64_t>(mine.size()), comm::Reduce::sum);
  EXPECT_EQ(all, std::ssize(whole));
}

TEST(Randomize, GivesOtherWeightsForOtherSeedsRowsAndElements) {
  TinyModel tiny{comm::Communicator()};
  const Elements first = masters(tiny);
  const Elements other = masters(TinyModel(comm::Communicator(), TinyKind::own_head, 2));
  std::map<float, int> times;
  for (const auto& [place, value] : first) {
    if (tiny.table.rows[static_cast<std::size_t>(place.first)].init == model::Init::ones) {
      EXPECT_EQ(value, 1);
    } else {
      EXPECT_NE(value, other.at(place));
      EXPECT_EQ(++times[value], 1) << value << " comes twice";
    }
  }
}

TEST(Randomize, SpreadsAsTheArchitectureSays) {
  double squares = 0, sum = 0, count = 0;
  TinyModel tiny{comm::Communicator()};
  tiny.for_each([&](int row, std::int64_t, float value, float) {
    if (tiny.table.rows[static_cast<std::size_t>(row)].init == model::Init::ones) return;
    squares += value * value;
    sum += value;
    count += 1;
  });
  // About 850 numbers: five standard errors of their spread and mean.
  EXPECT_NEAR(std::sqrt(squares / count), tiny.architecture.init_std, 0.09);
  EXPECT_NEAR(sum / count, 0, 0.13);
}

TEST(TensorSlice, NamesTheElementsOfAShard) {
  const model::Parameter row{.name = "w", .shape = {4, 5}};
  const core::TensorSlice slice =
      tensor_slice(row, {.row = 3, .tensor_offset = 7, .shard_offset = 2, .count = 6});
  EXPECT_EQ(slice.name, "w");
  EXPECT_EQ(slice.shape, (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(slice.dtype, core::DType::f32);
  EXPECT_EQ(slice.offset, 7);
  EXPECT_EQ(slice.count, 6);
}

}  // namespace
}  // namespace finetune::base::initial_weights_test
