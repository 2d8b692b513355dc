#pragma once
// SPDX-License-Identifier: Apache-2.0
// The tables [parallel] and [precision].

#include <cstdint>
#include <optional>
#include <string>

#include "core/dtype.hpp"
#include "deck/deck.hpp"
#include "plan/layout/numbers.hpp"

namespace finetune::plan {

/// What of the model is split over ranks.
enum class Sharding { full_shard, shard_grad_op, hybrid_shard, no_shard };
/// What is gathered and reduced together: a block, its halves, or the whole model.
enum class Bucket { block, layer, whole };
/// What a rank that shares a unit with no other does with it: nothing, or gather and reduce it all
/// the same, so that a test with one GPU communicates.
enum class Alone { keeps, communicates };
/// How ranks that share a sequence get at each other's keys and values.
enum class ContextMethod { automatic, ring, gather };
/// Which number format holds what: precision.mode.
enum class PrecisionMode { bf16_mixed, bf16_true, fp16_mixed, fp8_mixed, fp32_true };

/// As the deck writes them.
std::string to_string(Sharding sharding);
std::string name_of(Bucket bucket);
std::string name_of(PrecisionMode mode);
std::string name_of(CpuProducts products);
std::string name_of(model::Fp8Scaling scaling);
/// "rowwise, e5m2".
std::string describe(const model::Fp8Recipe& recipe);
/// What such a name means; nothing for "AUTO". Throws: ErrorKind::bug if it is none.
std::optional<Sharding> sharding_named(const std::string& name);
Bucket bucket_named(const std::string& name);
/// Of parallel.reduce_dtype.
std::string name_of_reduce(core::DType dtype);

struct ParallelSettings {
  std::optional<Sharding> sharding;  ///< none: AUTO
  std::int64_t dp_shard = 0;         ///< 0: follows from sharding, ranks and nodes
  std::int64_t dp_replicate = 0;     ///< 0: follows
  std::int64_t tp = 0;               ///< ranks that share every matrix; 0: left to the plan
  std::int64_t cp = 0;               ///< ranks that share every sequence; 0: likewise
  std::int64_t ep = 0;               ///< ranks that share the experts of a layer; 0: likewise
  ContextMethod cp_method = ContextMethod::automatic;
  std::string machine;  ///< whose rates AUTO compares with; empty: usual ones
  Bucket bucket = Bucket::block;
  core::DType reduce_dtype = core::DType::f32;
  bool overlap = true;
  std::int64_t prefetch = 0;               ///< blocks; 0: one, or what the plan chooses
  Alone alone = Alone::keeps;              ///< of the environment, not of the deck
  double memory_gib = 0;                   ///< 0: what the node or the GPU has
  std::int64_t expect_nodes = 0;           ///< 0: any
  std::int64_t expect_ranks_per_node = 0;  ///< 0: any
  double min_link_gbit_per_s = 0;

  /// What nobody has chosen is not shared.
  std::int64_t num_tp() const { return tp > 0 ? tp : 1; }
  std::int64_t num_cp() const { return cp > 0 ? cp : 1; }
  std::int64_t num_ep() const { return ep > 0 ? ep : 1; }
  int num_prefetched() const { return prefetch > 0 ? static_cast<int>(prefetch) : 1; }
  /// schedule::Rules::prefetch_depth.
  int prefetch_depth() const { return overlap ? num_prefetched() : 0; }

  void bind(deck::Table& table);
};

struct PrecisionSettings {
  PrecisionMode mode = PrecisionMode::bf16_mixed;
  CpuProducts cpu_products = CpuProducts::automatic;
  model::Fp8Recipe fp8;

  void bind(deck::Table& table);

  /// Number formats of the mode, with `reduce_dtype` of ParallelSettings.
  Numbers numbers(core::DType reduce_dtype, Determinism determinism) const;
};

}  // namespace finetune::plan
