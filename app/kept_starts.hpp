#pragma once
// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters that began with factors of the weights, as PEFT has them on weights that did
// not change: of twice the rank, with what they began with taken off.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"

namespace finetune::app {

/// Whether a checkpoint's adapter_config.json is of such an adapter.
bool keeps_starts(const core::Json& config);

/// Its options for PEFT. Source: subtract_mutated_init and save_mutated_as_lora in PEFT's
/// tuners/lora/model.py.
core::Json without_starts(core::Json config);

/// The tensor of the checkpoint that lies beside `name`; empty: there is none of its own.
std::string start_of(std::string_view name);
/// Whether it is one of those.
bool is_start(std::string_view name);

/// [2 r, in] or [out, 2 r] of A or B of such a shape.
std::vector<std::int64_t> doubled(std::string_view name, std::vector<std::int64_t> shape);

/// Reads elements of a tensor of the checkpoint.
using ReadStored =
    std::function<void(const std::string& name, std::int64_t first, std::span<float> values)>;
/// Elements [first, ...) of the doubled tensor, of which `name` has the shape `shape`.
void read_doubled(const std::string& name, const std::vector<std::int64_t>& shape,
                  std::int64_t first, std::span<float> values, const ReadStored& read);

}  // namespace finetune::app
