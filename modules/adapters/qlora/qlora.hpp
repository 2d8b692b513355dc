#pragma once
// SPDX-License-Identifier: Apache-2.0
// Low-rank matrices on top of matrices in 4-bit normal floats (Dettmers et al. 2023, arXiv
// 2305.14314).

#include "model/adapter.hpp"

namespace finetune::adapters::qlora {

/// `math`: as of lora::adapter.
model::Adapter adapter(const model::AdapterMath* math = nullptr);

}  // namespace finetune::adapters::qlora
