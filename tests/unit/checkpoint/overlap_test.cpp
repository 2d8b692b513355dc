// SPDX-License-Identifier: Apache-2.0
// Arithmetic of boxes against a look at every element.
#include "checkpoint/format/detail/overlap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "checkpoint/format/detail/tiling.hpp"

namespace finetune::checkpoint::overlap_test {
namespace {

using core::Box;
using Index = std::vector<std::int64_t>;

std::int64_t below(std::mt19937_64& random, std::int64_t end) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
}

Index random_shape(std::mt19937_64& random) {
  Index shape(static_cast<std::size_t>(below(random, 5)));
  for (std::int64_t& dim : shape)
    dim = 1 + below(random, 5);
  return shape;
}

Box random_box(std::mt19937_64& random, const Index& shape) {
  Box box = core::whole_box(shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (below(random, 2) == 0) continue;  // often whole, as boxes are
    box.begin[d] = below(random, shape[d] + 1);
    box.extent[d] = below(random, shape[d] - box.begin[d] + 1);
  }
  return box;
}

/// For every element of the tensor, its place in the box; -1 outside.
Index places(const Index& shape, const Box& box) {
  Index result;
  for (std::int64_t element = 0; element < core::num_elements(shape); ++element) {
    std::int64_t place = 0;
    std::int64_t rest = element;
    std::int64_t scale = 1;
    for (std::size_t d = shape.size(); d-- > 0 && place >= 0;) {
      const std::int64_t i = rest % shape[d] - box.begin[d];
      rest /= shape[d];
      place = i < 0 || i >= box.extent[d] ? -1 : place + i * scale;
      scale *= box.extent[d];
    }
    result.push_back(place);
  }
  return result;
}

struct Pair {
  std::int64_t stored, wanted;
  friend bool operator==(const Pair&, const Pair&) = default;
};

TEST(Overlap, HoldsTheCommonElementsInOrder) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const Index shape = random_shape(random);
    const Box a = random_box(random, shape);
    const Box b = random_box(random, shape);
    const Index in_a = places(shape, a);
    const Index in_b = places(shape, b);
    std::vector<Pair> expected;
    for (std::size_t i = 0; i < in_a.size(); ++i)
      if (in_a[i] >= 0 && in_b[i] >= 0) expected.push_back({in_a[i], in_b[i]});

    const Overlap overlap(a, b);
    ASSERT_EQ(overlap.count(), std::ssize(expected));
    const auto before = [&](std::int64_t place, std::int64_t Pair::*in) {
      return std::ranges::count_if(expected, [&](const Pair& p) { return p.*in < place; });
    };
    for (std::int64_t place = 0; place <= a.num_elements(); ++place)
      ASSERT_EQ(overlap.before_stored(place), before(place, &Pair::stored)) << place;
    for (std::int64_t place = 0; place <= b.num_elements(); ++place)
      ASSERT_EQ(overlap.before_wanted(place), before(place, &Pair::wanted)) << place;
    if (expected.empty()) continue;

    std::vector<Pair> one_by_one;
    for (std::int64_t i = 0; i < overlap.count(); ++i)
      one_by_one.push_back({overlap.stored(i), overlap.wanted(i)});
    ASSERT_EQ(one_by_one, expected);

    const std::int64_t first = below(random, overlap.count());
    const std::int64_t last = first + 1 + below(random, overlap.count() - first);
    std::vector<Pair> rows;
    overlap.for_each_rows(first, last, [&](const Rows& r) {
      for (std::int64_t i = 0; i < r.num; ++i)
        for (std::int64_t k = 0; k < r.length; ++k)
          rows.push_back({r.stored + i * r.stored_step + k, r.wanted + i * r.wanted_step + k});
    });
    ASSERT_EQ(rows, std::vector<Pair>(expected.begin() + first, expected.begin() + last));
    bool is_run = true;
    for (std::int64_t i = first; i < last; ++i) {
      is_run = is_run && expected[static_cast<std::size_t>(i)] ==
                             Pair{expected[static_cast<std::size_t>(first)].stored + i - first,
                                  expected[static_cast<std::size_t>(first)].wanted + i - first};
    }
    ASSERT_EQ(overlap.is_run(first, last), is_run);
  }
}

TEST(Overlap, IsOneRunWhereBothBoxesHoldWholeRows) {
  const Overlap rows({{2, 0}, {4, 7}}, {{3, 0}, {9, 7}});
  EXPECT_EQ(rows.count(), 21);
  EXPECT_TRUE(rows.is_run(0, 21));
  EXPECT_EQ(rows.stored(0), 7);
  EXPECT_EQ(rows.wanted(0), 0);
}

TEST(Overlap, ColumnsAreRowsOfEqualSteps) {
  const Overlap columns({{0, 0}, {100, 8}}, {{0, 2}, {100, 3}});
  EXPECT_TRUE(columns.is_run(3, 6));
  EXPECT_FALSE(columns.is_run(3, 7));
  std::vector<Rows> all;
  columns.for_each_rows(1, 299, [&](const Rows& rows) { all.push_back(rows); });
  ASSERT_EQ(all.size(), 3u);  // the rest of a row, 98 rows, the beginning of a row
  EXPECT_EQ(all[1].num, 98);
  EXPECT_EQ(all[1].length, 3);
  EXPECT_EQ(all[1].stored_step, 8);
  EXPECT_EQ(all[1].wanted_step, 3);
}

std::vector<BoxEntry> entries(const std::vector<Box>& boxes) {
  std::vector<BoxEntry> result;
  for (const Box& box : boxes)
    result.push_back({0, box});
  return result;
}

TEST(Tiling, NamesTheFirstElementThatIsNotHeldOnce) {
  std::mt19937_64 random(2);
  int num_wrong = 0;
  for (int round = 0; round < 5000; ++round) {
    const Index shape = random_shape(random);
    std::vector<Box> boxes;
    for (std::int64_t i = below(random, 4); i >= 0; --i) {
      const Box box = random_box(random, shape);
      if (box.num_elements() > 0) boxes.push_back(box);
    }
    Index times(static_cast<std::size_t>(core::num_elements(shape)));
    for (const Box& box : boxes) {
      const Index in_box = places(shape, box);
      for (std::size_t i = 0; i < times.size(); ++i)
        times[i] += in_box[i] >= 0 ? 1 : 0;
    }
    const auto wrong = std::ranges::find_if(times, [](std::int64_t n) { return n != 1; });
    const auto found = find_wrong_element(shape, entries(boxes));
    ASSERT_EQ(found.has_value(), wrong != times.end());
    if (!found) continue;
    ++num_wrong;
    ASSERT_EQ(found->element, wrong - times.begin());
    ASSERT_EQ(found->is_missing, *wrong == 0);
  }
  EXPECT_GT(num_wrong, 1000);
  EXPECT_LT(num_wrong, 4900);
}

TEST(Tiling, BoxesNeedNotBeAGrid) {
  // Five bricks around a middle one.
  const auto bricks = entries({{{0, 0}, {1, 2}},
                               {{0, 2}, {2, 1}},
                               {{1, 0}, {2, 1}},  //
                               {{1, 1}, {1, 1}},
                               {{2, 1}, {1, 2}}});
  EXPECT_FALSE(find_wrong_element({3, 3}, bricks));
}

}  // namespace
}  // namespace finetune::checkpoint::overlap_test
