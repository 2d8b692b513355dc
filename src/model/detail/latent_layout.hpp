#pragma once
// SPDX-License-Identifier: Apache-2.0
// Of attention with latents: its rows of the parameter table.

#include <vector>

#include "model/architecture.hpp"
#include "model/layout.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

/// In the order of memory: what gives the queries or their latent, what gives the latent of keys
/// and values; the norm of the queries' latent and what reads it, if there is one; the same of keys
/// and values; the product behind attention. What gives the latents is whole on every rank of tp,
/// what reads them is split by heads.
std::vector<Parameter> latent_rows(const Architecture& architecture, const TensorNames& names);

/// Where these are, from `first` on.
void place_latents(const Architecture& architecture, int first, BlockRows& rows);

}  // namespace finetune::model
