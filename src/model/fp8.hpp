#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which products of a model have operands of 8 bits, and how these are scaled: precision.mode =
// "fp8-mixed". What they compute: model/fp8_products.hpp.

#include <cstdint>
#include <string>
#include <vector>

#include "model/parameter_table.hpp"

namespace finetune::model {

/// What shares a scale, along the dim over which a product sums.
enum class Fp8Scaling {
  rowwise,  ///< a row: a token of activations, an output of a matrix
  block,    ///< 128 elements of activations, 128 x 128 of a matrix (DeepSeek-V3, arXiv 2412.19437)
};

/// Formats of gradients. Source: Micikevicius et al. 2022 (arXiv 2209.05433).
enum class Fp8Gradients {
  e5m2,  ///< two bits behind the point, 32 powers of two
  e4m3,  ///< three, and 18 powers, as activations and weights have it
};

struct Fp8Recipe {
  Fp8Scaling scaling = Fp8Scaling::rowwise;
  Fp8Gradients gradients = Fp8Gradients::e5m2;
  bool weight_gradients = false;  ///< their products have operands of 8 bits too

  friend bool operator==(const Fp8Recipe&, const Fp8Recipe&) = default;
};

/// Elements that share a scale with `block`.
inline constexpr std::int64_t fp8_block = 128;

/// Elements that a CPU quantises at once, so many bytes of the computation's dtype on the way.
inline constexpr std::int64_t fp8_piece = std::int64_t{1} << 24;

/// What the sizes of a matrix [out, in] must be multiples of: libtorch's product takes 16, and
/// cuBLAS reads the scales of 128 x 128 elements in fours.
std::int64_t fp8_multiple(Fp8Scaling scaling);

/// Tokens that the gradient of such a matrix is a sum over, with zeros up to what GPUs multiply.
std::int64_t fp8_padded_tokens(std::int64_t tokens, Fp8Scaling scaling);

/// Whether a matrix [outputs, inputs] is of such sizes.
bool fits_fp8(std::int64_t outputs, std::int64_t inputs, Fp8Scaling scaling);

/// Whether a row is of the matrices that may have such products: those of blocks, and those of
/// experts that are tensors of their own. Experts in one tensor [E, in, out] keep the computation's
/// dtype: rows of that tensor are inputs, and a scale is that of an output.
bool may_have_fp8(const Parameter& row);

/// Whether the product with rows that are read as one matrix has operands of 8 bits. Routers, head
/// and embedding keep the computation's dtype, and so does what adapters add.
bool has_fp8_product(const ParameterTable& table, RowRange rows, const Fp8Recipe& recipe);

/// Marks matrices that are to have such products, as far as nothing else packs them: frozen ones as
/// kept in 8 bits (Packing::Kind::fp8), quantised once and gathered as they are kept; trained ones
/// as published in 8 bits (Parameter::published), quantised once a step by their shards.
void keep_in_fp8(const Fp8Recipe& recipe, ParameterTable& table);

/// Units that travel in 8 bits have next to nothing else: rows that do not are on every rank.
/// So many elements at least are of matrices, one that is not among so many.
inline constexpr std::int64_t fp8_unit_share = 16;

/// Takes Parameter::published back from rows of units that have too much else, and from parts of
/// matrices (model/part.hpp) whose sizes do not fit. For tables whose units are those that are
/// gathered.
void settle_published(ParameterTable& table);

/// How matrices are kept for `recipe`.
Packing fp8_packing(const Fp8Recipe& recipe);
/// The scaling of one that is kept or published like this.
Fp8Scaling scaling_of(const Packing& packing);

/// Names and shapes of the matrices of blocks whose sizes do not fit.
std::vector<std::string> without_fp8_product(const ParameterTable& table, const Fp8Recipe& recipe);

}  // namespace finetune::model
