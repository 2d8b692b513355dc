#pragma once
// SPDX-License-Identifier: Apache-2.0
// The one place where model code multiplies matrices: by libtorch, or, where a path says so, with
// narrow floats widened to fp32.

#include <ATen/ATen.h>

#include "core/dtype.hpp"
#include "model/path.hpp"

namespace finetune::model {

/// The fastest path for activations of `compute` on this processor. Without instructions for
/// products of a narrow float libtorch's are slower than those of fp32, backward by a factor of a
/// hundred.
Path path_for(core::DType compute);

/// That of a run whose ranks agreed on whether to widen.
constexpr Path path_of(bool widens) {
  return widens ? Path::widened : Path::kernels;
}

/// Whether `path` widens the products of such a tensor.
bool is_widened(const at::Tensor& tensor, Path path);

/// a b. Shapes: [M, K], [K, N] -> [M, N], with any strides.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, Path path);

/// out = a b.
void product_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Path path);

/// out += a b, rounded once.
void product_add(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Path path);

/// For as long as it lives, products that this thread begins expect few rows: those of up to
/// kernels::most_few_rows on a CPU are computed by kernels::few_rows_product, where a row does not
/// depend on the others. Not in training, where a block that is recomputed has to get the bits that
/// it had; nor for prompts, which have many rows.
class FewRows {
 public:
  struct Expected {
    bool of_all = false;                ///< all products have few rows
    std::int64_t count = 0, total = 0;  ///< else the first so many rows of so many are few
  };

  FewRows();
  /// Of the first `count` rows of products with `total` rows; the others are computed as usual.
  FewRows(std::int64_t count, std::int64_t total);
  ~FewRows();
  FewRows(const FewRows&) = delete;
  FewRows& operator=(const FewRows&) = delete;

 private:
  Expected before_;
};

}  // namespace finetune::model
