#pragma once
// SPDX-License-Identifier: Apache-2.0
// Learned factors of activations: of the outputs of some frozen matrices, of the inputs of others.
// Source: Liu et al. 2022 (IA3, arXiv 2205.05638).

#include "model/adapter.hpp"

namespace finetune::adapters::ia3 {

/// `math`: `ia3::math()`, or nullptr where nothing is computed.
model::Adapter adapter(const model::AdapterMath* math = nullptr);

}  // namespace finetune::adapters::ia3
