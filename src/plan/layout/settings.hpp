#pragma once
// SPDX-License-Identifier: Apache-2.0
// The tables [parallel] and [precision].

#include <cstdint>
#include <string>

#include "deck/deck.hpp"
#include "plan/layout/numbers.hpp"

namespace finetune::plan {

struct ParallelSettings {
  std::string sharding = "AUTO";
  std::int64_t dp_shard = 0;      ///< 0: follows from sharding, ranks and nodes
  std::int64_t dp_replicate = 0;  ///< 0: follows
  std::string machine;            ///< whose rates AUTO compares with; empty: usual ones
  std::string bucket = "BLOCK";
  std::string reduce_dtype = "fp32";
  bool overlap = true;
  double memory_gib = 0;                   ///< 0: what the node or the GPU has
  std::int64_t expect_nodes = 0;           ///< 0: any
  std::int64_t expect_ranks_per_node = 0;  ///< 0: any
  double min_link_gbit_per_s = 0;

  void bind(deck::Table& table);
};

struct PrecisionSettings {
  std::string mode = "bf16-mixed";
  std::string cpu_products = "auto";

  void bind(deck::Table& table);

  /// Number formats of the mode, with `reduce_dtype` of ParallelSettings.
  Numbers numbers(const std::string& reduce_dtype, Determinism determinism) const;
};

}  // namespace finetune::plan
