#pragma once
// SPDX-License-Identifier: Apache-2.0
// A transformer block, put together from rows of a parameter table.

#include <ATen/ATen.h>

#include <cstdint>

#include "model/architecture.hpp"
#include "model/decoder.hpp"
#include "model/ops.hpp"
#include "model/sequence.hpp"

namespace finetune::model {

/// What block `i_layer` attends with.
AttentionShape attention_shape(const Architecture& architecture, std::int64_t i_layer);

/// h = x + attention(norm(x)); y = h + feed_forward(norm(h)). x_ND -> y_ND.
/// Source: Touvron et al. 2023 (arXiv 2302.13971).
at::Tensor pre_norm_block(Ops& ops, const Architecture& architecture, const BlockRows& rows,
                          const at::Tensor& x_ND, const Sequence& sequence, std::int64_t i_layer);

}  // namespace finetune::model
