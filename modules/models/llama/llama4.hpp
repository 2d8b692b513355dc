#pragma once
// SPDX-License-Identifier: Apache-2.0
// The text part of Llama 4 (Scout, Maverick): experts, layers without positions that see everything
// between layers that see a chunk.

#include "model/family.hpp"

namespace finetune::models::llama {

/// As published: a text part among others, whose tensors are neither read nor trained.
model::ModelFamily llama4();

/// The text part alone.
model::ModelFamily llama4_text();

}  // namespace finetune::models::llama
