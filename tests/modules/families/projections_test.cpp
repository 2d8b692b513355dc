// SPDX-License-Identifier: Apache-2.0
// What stands for golden tensors: weights that are drawn have the bits that Python draws, and
// projections find what a comparison of all elements would.
#include <gtest/gtest.h>

#include <set>

#include "modules/families/planted.hpp"
#include "support/golden_models.hpp"
#include "support/projections.hpp"

namespace finetune::projections_test {
namespace {

using Numbers = std::vector<float>;

Numbers random_matrix(std::int64_t rows, std::int64_t columns, std::uint64_t stream = 0) {
  return tests::draw(
      {.key = 8, .stream = stream, .count = rows * columns, .centre = 0, .scale = 1816187});
}

Numbers project(const Numbers& values) {
  tests::Projection projection;
  for (std::size_t i = 0; i < values.size(); ++i)
    projection.add(static_cast<std::int64_t>(i), values[i]);
  const auto numbers = projection.numbers();
  return {numbers.begin(), numbers.begin() + tests::Projection::size};
}

TEST(DrawnWeights, AreThoseOfPython) {
  EXPECT_EQ(tests::draw({.key = 20261127, .stream = 5, .count = 6, .centre = 1, .scale = 363237}),
            (Numbers{0x1.00aa7p+0f, 0x1.208d94p+0f, 0x1.86e5b6p-1f, 0x1.1c9a6ap+0f, 0x1.092828p+0f,
                     0x1.d73b5ep-1f}));
  EXPECT_EQ(tests::draw({.key = (std::uint64_t{1} << 40) + 3,
                         .stream = 1,
                         .count = 3,
                         .centre = -0.25,
                         .scale = 1271331}),
            (Numbers{-0x1.63144cp+0f, -0x1.46b2aap-4f, -0x1.02cb7cp+0f}));
}

TEST(Projections, AreThoseOfPython) {
  Numbers values;
  for (int i = 0; i < 40; ++i)
    values.push_back(static_cast<float>(i * i - 300));
  EXPECT_EQ(project(values), (Numbers{620, 470, 288, 766, -1355, -535, 156, -1804, -142, -1039, 9,
                                      352, -482, -2350, -857, -417}));
}

TEST(Projections, FindMatricesThatAreArrangedOtherwise) {
  for (const auto& shape : {std::vector<std::int64_t>{64, 64}, {2, 2}, {512, 32}, {4, 32}}) {
    const Numbers right = random_matrix(shape[0], shape[1]);
    const auto planted = tests::plant(right, shape);
    EXPECT_EQ(std::ssize(planted), shape[0] == shape[1] ? 4 : 3);
    for (const auto& [what, wrong] : planted)
      EXPECT_GT(tests::excess(wrong, project(right), 2e-5 * 3.4), 10)
          << what << ", " << shape[0] << " x " << shape[1];
  }
}

/// Errors as large as the bound in every element, with any signs: those of rounding are smaller.
TEST(Projections, AllowWhatIsWithinTheBound) {
  constexpr double bound = 1e-3;
  const Numbers right = random_matrix(64, 64);
  double worst = 0;
  for (std::uint64_t trial = 1; trial <= 50; ++trial) {
    Numbers near = right;
    const Numbers signs = random_matrix(64, 64, trial);
    for (std::size_t i = 0; i < near.size(); ++i)
      near[i] += static_cast<float>(signs[i] < 0 ? -bound / 4 : bound / 4);
    worst = std::max(worst, tests::excess(near, project(right), bound));
  }
  EXPECT_LT(worst, 0.75) << "a quarter of it in each";
  EXPECT_GT(worst, 0.25) << "or the bound says nothing";
}

/// The root mean square of what is always found is five times the bound.
TEST(Projections, FindErrorsInAllElements) {
  constexpr double bound = 1e-3;
  const Numbers right = random_matrix(64, 64);
  for (std::uint64_t trial = 1; trial <= 50; ++trial) {
    Numbers wrong = right;
    const Numbers errors = random_matrix(64, 64, trial);
    for (std::size_t i = 0; i < wrong.size(); ++i)
      wrong[i] += static_cast<float>(5 * bound) * errors[i];
    EXPECT_GT(tests::excess(wrong, project(right), bound), 1);
  }
}

/// Of 4,096 elements about 512 share a sum: an error in one is found from 2 sqrt(512) bounds on.
TEST(Projections, FindAnErrorInOneElementFromSomeSizeOn) {
  constexpr double bound = 1e-3;
  const Numbers right = random_matrix(64, 64);
  for (const std::size_t i : {0UL, 63UL, 1000UL, 4095UL}) {
    Numbers wrong = right;
    wrong[i] += static_cast<float>(50 * bound);
    EXPECT_GT(tests::excess(wrong, project(right), bound), 1) << i;
    wrong[i] = right[i] + static_cast<float>(40 * bound);
    EXPECT_LT(tests::excess(wrong, project(right), bound), 1) << "this is what they cannot see";
  }
  // Of 32 elements about four do, in one of two sketches at most that many.
  const Numbers vector = random_matrix(1, 32);
  for (std::size_t i = 0; i < vector.size(); ++i) {
    Numbers wrong = vector;
    wrong[i] += static_cast<float>(6 * bound);
    EXPECT_GT(tests::excess(wrong, project(vector), bound), 1) << i;
  }
}

TEST(Projections, FindNumbersThatAreNone) {
  const Numbers right = random_matrix(4, 4);
  Numbers wrong = right;
  wrong[7] = std::nanf("");
  EXPECT_GT(tests::excess(wrong, project(right), 1), 1e9);
}

}  // namespace
}  // namespace finetune::projections_test
