#pragma once
// SPDX-License-Identifier: Apache-2.0
// The one place where model code multiplies matrices: by libtorch, or, where a path says so, with
// narrow floats widened to fp32.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

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

/// For as long as it lives, products that this thread begins are computed so that a row does not
/// depend on rows of other texts: on a CPU, where there are few, by kernels::few_rows_product. Not
/// in training, where a block that is recomputed has to get the bits that it had.
class FewRows {
 public:
  struct Expected {
    bool of_all = false;  ///< each row is of a text of its own
    /// Else, of products with as many rows as these have together, rows of one text each.
    std::vector<std::int64_t> of_texts = {};
    std::int64_t total = 0;
  };

  FewRows();
  /// Rows of texts: a long one is computed by itself as usual, short ones as few rows.
  explicit FewRows(std::vector<std::int64_t> of_texts);
  ~FewRows();
  FewRows(const FewRows&) = delete;
  FewRows& operator=(const FewRows&) = delete;

 private:
  Expected before_;
};

/// Whether this thread is within the life of one.
bool expects_few_rows();

}  // namespace finetune::model
