// SPDX-License-Identifier: Apache-2.0
#include "model/factors.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "support/threads.hpp"

namespace finetune::model::factors_test {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors all(const SingularValues& of) {
  return {of.left, of.values, of.right};
}

/// The largest that a triple of factors is off its matrix by.
double rest(const at::Tensor& matrix, const SingularValues& of) {
  return (at::mm(of.left * of.values, of.right) - matrix).abs().max().item<double>();
}

/// Fewer rows than LAPACK takes in one panel, and more; numbers of rows per thread that products
/// treat otherwise than the rest.
const std::vector<std::pair<std::int64_t, std::int64_t>> shapes = {{9, 130}, {11, 41}, {64, 64},
                                                                   {96, 64}, {64, 96}, {257, 131}};

struct Kind {
  const char* name;
  std::function<Tensors(const at::Tensor&)> factors;
};

at::Tensor guesses(const at::Tensor& matrix) {
  return at::sin(at::arange(matrix.size(1) * 5, at::kFloat).square()).view({-1, 5});
}

const std::vector<Kind> kinds = {
    {"qr",
     [](const at::Tensor& matrix) {
       const auto [q, r] = model::qr(matrix);
       return Tensors{q, r};
     }},
    {"all", [](const at::Tensor& matrix) { return all(singular_values(matrix)); }},
    {"largest, at once",
     [](const at::Tensor& matrix) {
       return all(largest_singular_values(matrix, guesses(matrix), 0));
     }},
    {"largest, by iteration", [](const at::Tensor& matrix) {
       return all(largest_singular_values(matrix, guesses(matrix), 3));
     }}};

at::Tensor matrix_of(std::int64_t rows, std::int64_t columns) {
  return at::cos(at::arange(rows * columns, at::kFloat).square()).view({rows, columns});
}

TEST(Factors, AreTheSameBitsOnAnyThreads) {
  for (const auto& [rows, columns] : shapes)
    for (const Kind& kind : kinds) {
      SCOPED_TRACE(testing::Message() << kind.name << " of " << rows << " x " << columns);
      const at::Tensor matrix = matrix_of(rows, columns);
      tests::expect_same_on_any_threads([&] { return kind.factors(matrix); });
    }
}

/// A matrix may begin anywhere in the buffer of its unit.
TEST(Factors, AreTheSameBitsWhereverTheMatrixLies) {
  for (const auto& [rows, columns] : shapes)
    for (const Kind& kind : kinds) {
      const at::Tensor matrix = matrix_of(rows, columns);
      const Tensors expected = kind.factors(matrix);
      for (const std::int64_t offset : {1, 4, 8}) {
        const at::Tensor moved =
            at::empty({matrix.numel() + offset}).narrow(0, offset, matrix.numel());
        moved.copy_(matrix.view({-1}));
        const Tensors factors = kind.factors(moved.view({rows, columns}));
        for (std::size_t i = 0; i < factors.size(); ++i)
          EXPECT_TRUE(tests::same_floats(factors[i], expected[i]))
              << kind.name << " of " << rows << " x " << columns << ", " << offset;
      }
    }
}

/// Rounding of LAPACK's factors is a small multiple of eps times the norm.
TEST(Factors, MultiplyToTheMatrix) {
  for (const auto& [rows, columns] : shapes) {
    const at::Tensor matrix = matrix_of(rows, columns);
    const double bound =
        20 * std::numeric_limits<float>::epsilon() * at::linalg_vector_norm(matrix).item<double>();
    const auto [q, r] = model::qr(matrix);
    EXPECT_LE((at::mm(q, r) - matrix).abs().max().item<double>(), bound);
    EXPECT_LE(rest(matrix, singular_values(matrix)), bound);
    const at::Tensor of_rank_5 = at::mm(matrix.narrow(1, 0, 5), matrix.narrow(0, 0, 5));
    EXPECT_LE(rest(of_rank_5, largest_singular_values(of_rank_5, guesses(of_rank_5), 2)),
              20 * std::numeric_limits<float>::epsilon() *
                  at::linalg_vector_norm(of_rank_5).item<double>());
  }
}

}  // namespace
}  // namespace finetune::model::factors_test
