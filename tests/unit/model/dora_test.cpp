// SPDX-License-Identifier: Apache-2.0
// Magnitudes of rows (DoRA) beside rows that have no direction.
#include "support/weights.hpp"

#include "adapters/lora/math.hpp"
#include "model/projection.hpp"

namespace finetune::model::dora_test {
namespace {

/// A matrix, its low-rank part and its magnitudes: rows 0 to 3.
class OfDora : public tests::TinyWeights {
 public:
  using tests::TinyWeights::TinyWeights;

  std::vector<TrainedPart> trained(RowRange) const override { return {}; }
  std::vector<AdaptedPart> adapted(RowRange) const override { return {{0, &parts_, 0, 6}}; }

 private:
  Adapted parts_ = {.parts = {1, 2, 3}, .scale = 2, .math = &adapters::lora::math()};
};

TEST(Dora, ARowOfZerosStaysZeroAndItsGradientsAreFinite) {
  at::Tensor w_FD = tests::normal({6, 5}, 1);
  w_FD[4].zero_();
  const at::Tensor x_ND = tests::normal({7, 5}, 2), dy_NF = tests::normal({7, 6}, 3);
  OfDora weights(
      {w_FD, tests::normal({3, 5}, 4), at::zeros({6, 3}), at::linalg_vector_norm(w_FD, 2, 1)});
  const Projection projection{.weights = &weights, .rows = {0, 1}};

  const Projected made = project(projection, x_ND);
  tests::expect_within(made.y_NF, at::mm(x_ND, w_FD.t()), 1e-6);
  EXPECT_EQ(made.y_NF.select(1, 4).abs().max().item<float>(), 0);

  const at::Tensor dx_ND = project_backward(projection, dy_NF, x_ND, made.kept);
  tests::expect_within(dx_ND, at::mm(dy_NF, w_FD), 1e-6);
  for (const int row : {1, 2, 3})
    EXPECT_TRUE(at::isfinite(weights.gradient_of(row)).all().item<bool>()) << row;
  // The row may leave zero: B's gradient is that of a plain low-rank part.
  EXPECT_GT(weights.gradient_of(2)[4].abs().max().item<float>(), 0);
  EXPECT_EQ(weights.gradient_of(3)[4].item<float>(), 0);
}

}  // namespace
}  // namespace finetune::model::dora_test
