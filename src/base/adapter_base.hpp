#pragma once
// SPDX-License-Identifier: Apache-2.0
// Beside which weights an adapter was trained: a small file in its folder, and what PEFT says.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/run_state.hpp"
#include "comm/communicator.hpp"
#include "core/dtype.hpp"
#include "model/fp8.hpp"
#include "model/parameter_table.hpp"

namespace finetune::base {

/// Beside PEFT's files, which refuses keys of others in its own.
inline constexpr const char* adapter_base_name = "finetune_base.json";

/// What the frozen weights of a run are known by: `hash` (see frozen_hash) can be compared only
/// with that of weights kept in the same way.
checkpoint::FrozenBase describe_base(const std::string& hash, core::DType compute,
                                     const model::ParameterTable& table);

/// How the frozen matrices of such a run were scaled, if it kept them in 8 bits.
std::optional<model::Fp8Recipe> kept_in_fp8(const checkpoint::FrozenBase& base);

/// The model that an adapter is to be used with.
struct AdaptedBase {
  std::filesystem::path folder;
  const model::ParameterTable& table;
  core::DType compute = core::DType::f32;
  /// frozen_hash of its weights for a run that computes in another dtype, the same on every rank.
  /// Called only where there is one to compare with, then on every rank.
  std::function<std::string(core::DType)> hash;
};

/// Compares the base of the adapter in the folder `adapter` by its hash. Where that says nothing
/// (PEFT's own adapters, weights kept in another way) by its name: another one is warned of.
/// Collective on `world`. Throws, on every rank: ErrorKind::input for other weights.
void require_adapter_base(const comm::Communicator& world, const std::filesystem::path& adapter,
                          const AdaptedBase& base);

}  // namespace finetune::base
