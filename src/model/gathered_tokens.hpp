#pragma once
// SPDX-License-Identifier: Apache-2.0
// Activations of own tokens, where an op between products needs those of all.

#include <ATen/ATen.h>

#include <memory>

#include "model/token_travel.hpp"

namespace finetune::model {

/// Own tokens -> all of them; the gradient is the sum over the ranks, of own tokens. Collective on
/// the ranks that share the tokens, forward and backward. Shapes: [n, D] -> [N, D].
at::Tensor gathered_tokens(const at::Tensor& own_nD, std::shared_ptr<const TokenTravel> travel);

}  // namespace finetune::model
