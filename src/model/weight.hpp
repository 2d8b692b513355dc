#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a product reads: a matrix as it is kept, dense or packed, with its scales.

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "model/fp8_products.hpp"
#include "model/parameter_table.hpp"
#include "model/path.hpp"

namespace finetune::model {

/// One matrix by its planes (model/packing.hpp): views of what was gathered.
struct MatrixPlanes {
  const Parameter* row = nullptr;
  std::vector<at::Tensor> planes;
};

/// Neighbouring matrices, one below the other: [F, D]. A packing with a product of its own is a
/// branch of `matmul` and nobody else's business.
struct Weight {
  at::Tensor dense = {};                    ///< [F, D]; undefined: `packed` or `quantised`
                                            ///< says it
  std::vector<MatrixPlanes> packed = {};    ///< some may be dense
  std::optional<Quantised> quantised = {};  ///< [F, D] as products of 8 bits read it: nothing else
  at::ScalarType compute = at::kFloat;      ///< what it is unpacked to
  std::optional<Fp8Recipe> fp8 = {};        ///< its products have operands of 8 bits
};

/// [F, D]: `dense`, or in fresh memory what is packed or quantised.
at::Tensor unpacked(const Weight& weight);

/// F.
std::int64_t num_outputs(const Weight& weight);

/// x W^T. Shapes: [N, D] -> [N, F].
at::Tensor matmul(const at::Tensor& x_ND, const Weight& weight, Path path);
void matmul_out(at::Tensor& y_NF, const at::Tensor& x_ND, const Weight& weight, Path path);

/// The gradient of x: dy W. Shapes: [N, F] -> [N, D].
at::Tensor matmul_backward(const at::Tensor& dy_NF, const Weight& weight, Path path);
void matmul_backward_out(at::Tensor& dx_ND, const at::Tensor& dy_NF, const Weight& weight,
                         Path path);

}  // namespace finetune::model
