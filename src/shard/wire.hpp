#pragma once
// SPDX-License-Identifier: Apache-2.0
// Gradients on their way to other ranks: as they leave, and as they are added where they arrive.

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>

#include "plan/layout/numbers.hpp"

namespace finetune::shard {

/// Fixed point holds gradients as multiples of 2^-fixed_point_bits: 5.7e-14, far below what changes
/// a weight, and up to 2^19 = 524,288.
inline constexpr int fixed_point_bits = 44;

/// No term may exceed 2^62 / terms, so that no sum can leave 64 bits.
double largest_term(std::int64_t num_terms);

/// Packs elements [offset, offset + n) of host tensor `gradient` (of the computation's dtype) for
/// the wire: numbers.reduce, or 64-bit fixed point.
/// Returns the first element that fixed point cannot hold (not finite, or beyond `limit`), or -1.
std::int64_t pack(const at::Tensor& gradient, std::int64_t offset, std::int64_t n,
                  const plan::Numbers& numbers, double limit, std::byte* wire);

/// Adds n packed elements to n sums (fp32 or, in fixed point, int64).
void add(const std::byte* wire, std::int64_t n, const plan::Numbers& numbers, std::byte* sums);

/// The same from a whole host tensor, without a wire between, by all threads. `is_first`: what the
/// sums hold counts as zeros. Returns what `pack` does.
std::int64_t add(const at::Tensor& gradient, const plan::Numbers& numbers, double limit,
                 bool is_first, at::Tensor sum);

/// On a device where kernels compute: `gradient` [N] as 64-bit fixed point to `wire`, or added to
/// `sum`, by one launch. `found`, int64 [1] there, is kernels::FirstOutOfRange's.
void pack_on_device(const at::Tensor& gradient, double limit, at::Tensor wire, at::Tensor found);
void add_on_device(const at::Tensor& gradient, double limit, at::Tensor sum, at::Tensor found);

/// The first element that fixed point cannot hold, if there is one: tensors [1] on the gradient's
/// device, since asking for their values would stop it.
struct FirstBad {
  at::Tensor is_good;  ///< bool: there is none
  at::Tensor element;  ///< int64
  at::Tensor value;    ///< of the gradient's dtype
};

/// `scaled` [N]: `gradient` [N] as multiples of fixed point's unit, fp64; good below `limit`, in
/// the same multiples.
FirstBad find_bad(const at::Tensor& gradient, const at::Tensor& scaled, double limit);

}  // namespace finetune::shard
