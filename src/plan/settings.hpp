#pragma once
// SPDX-License-Identifier: Apache-2.0
// The tables [parallel] and [precision].

#include <string>

#include "core/dtype.hpp"
#include "deck/deck.hpp"

namespace finetune::plan {

struct ParallelSettings {
  std::string sharding = "FULL_SHARD";

  void bind(deck::Table& table);
};

struct PrecisionSettings {
  std::string mode = "bf16-mixed";

  void bind(deck::Table& table);

  /// Dtype of activations and gathered weights; master weights and moments are fp32 in both modes.
  core::DType compute_dtype() const {
    return mode == "32-true" ? core::DType::f32 : core::DType::bf16;
  }
};

}  // namespace finetune::plan
