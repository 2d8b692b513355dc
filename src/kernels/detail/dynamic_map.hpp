#pragma once
// SPDX-License-Identifier: Apache-2.0
// The 256 levels of 8-bit dynamic quantisation.

#include <array>

namespace finetune::kernels {

/// Which numbers the levels are for: all in [-1, 1], or those in [0, 1] twice as finely.
enum class Sign { both, positive };

/// The levels in rising order, 0 and 1 among them; to the bit those that bitsandbytes writes into
/// files as `nested_quant_map` (Sign::both: from -0.993 to 1).
///
/// Seven decades, each twice as finely divided as the one below it.
/// Source: Dettmers et al. 2021, "8-bit optimizers via block-wise quantization" (arXiv 2110.02861).
std::array<float, 256> dynamic_map(Sign sign);

}  // namespace finetune::kernels
