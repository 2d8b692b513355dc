#pragma once
// SPDX-License-Identifier: Apache-2.0
// Qwen 1, 2 and 2.5, 3, 3 with experts, Next, the text parts of 3 VL and 3.5; and MiMo.

#include "model/family.hpp"

namespace finetune::models::qwen {

/// Of 2023, with names of its own. Up to `seq_length` tokens, where neither its dynamic positions
/// nor its logarithmic attention act.
model::ModelFamily qwen1();

/// Qwen 2 with more heads, which are left as they are.
model::ModelFamily mimo();
model::ModelFamily qwen2();
model::ModelFamily qwen2_moe();
model::ModelFamily qwen3();
model::ModelFamily qwen3_moe();
/// The text part of 3.5; alone; and Next, with experts.
model::ModelFamily qwen3_5();
model::ModelFamily qwen3_5_moe();
model::ModelFamily qwen3_5_text();
model::ModelFamily qwen3_next();
model::ModelFamily qwen3_vl();
model::ModelFamily qwen3_vl_moe();

}  // namespace finetune::models::qwen
