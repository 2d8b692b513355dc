#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a plan must know of an optimizer: what it keeps, and how often it goes through memory.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/parameter_table.hpp"
#include "plan/layout/numbers.hpp"
#include "plan/layout/shard_map.hpp"

namespace finetune::plan {

/// A tensor that an optimizer keeps for each trained unit.
struct OptimizerState {
  /// "exp_avg", ...: the kind of its tensors in a checkpoint, so it never changes and means the
  /// same with every optimizer.
  std::string kind;
  std::optional<core::DType> dtype = {};  ///< nothing: Numbers::moments
  /// Neighbours in a unit's flat buffer that share a value. More than 1: blocks are counted from
  /// the start of the unit, and shards begin at multiples of it.
  std::int64_t block = 1;
  bool is_signed = true;  ///< else a negative value in a checkpoint is damage
  /// What a value is of. Factors, of rows and columns of matrices (the last two dims) and of
  /// elements of what is no matrix, are so few that every rank that shares a unit has all of them.
  enum class Of { elements, rows, columns, vectors } of = Of::elements;

  bool is_of_elements() const { return of == Of::elements; }
  core::DType dtype_in(const Numbers& numbers) const { return dtype.value_or(numbers.moments); }
  /// Values that `count` neighbouring elements need, besides factors.
  std::int64_t num_values(std::int64_t count) const {
    return is_of_elements() ? (count + block - 1) / block : 0;
  }
  /// Shape of a parameter's factors, which a tensor of a checkpoint has too; nothing: it has none.
  std::optional<std::vector<std::int64_t>> factor_shape(const model::Parameter& parameter) const;
  /// Values that a rank keeps of a trained unit, for its shard and the padding of it.
  std::int64_t num_values(const model::ParameterTable& table, const UnitLayout& unit) const;
};

/// The exponential mean of weights that training may keep (train.ema_decay): fp32.
inline constexpr const char* ema_state = "ema";

/// How often a step goes through what it reads and writes, each element once.
struct OptimizerPasses {
  double weights = 2;    ///< master weights: read, written
  double states = 2;     ///< the same
  double gradients = 1;  ///< read; their norm is not the optimizer's
  /// Bytes per element that ATen operations, one after the other, move in addition.
  double composed_bytes = 0;
  /// Unless all tensors are fp32: libtorch has the update as one operation of these.
  bool is_one_operation_in_fp32 = false;
};

/// An optimizer as its descriptor (optim::Kind) gives it.
struct OptimizerFootprint {
  std::string name;    ///< the value of optimizer.name
  std::string label;   ///< of its states, for people: "AdamW moments"
  std::string format;  ///< of its states; empty: the name of Numbers::moments
  std::vector<OptimizerState> states;
  OptimizerPasses passes = {};
  /// Other weights are evaluated than those that are trained: where the latter are gathered as they
  /// are, there is a copy for it.
  bool evaluates_others = false;
  /// An update needs matrices whole: each is gathered to one of the ranks that share its unit. Not
  /// with tp and ep, whose ranks have parts of them.
  bool needs_matrices = false;

  /// Whether it has factors, which are sums over all ranks of a unit: not with tp and ep either.
  bool has_factors() const;
  /// Elements that shards begin at multiples of.
  std::int64_t block() const;
  /// Whether there is an `ema_state` among them.
  bool keeps_ema() const;
  /// Of all states of `count` neighbouring elements that begin where a block does, besides factors.
  std::int64_t state_bytes(std::int64_t count, const Numbers& numbers) const;
  /// Of the factors of a trained unit.
  std::int64_t factor_bytes(const model::ParameterTable& table, const UnitLayout& unit,
                            const Numbers& numbers) const;
  /// Of all that a rank keeps of a trained unit.
  std::int64_t shard_bytes(const model::ParameterTable& table, const UnitLayout& unit,
                           const Numbers& numbers) const {
    return state_bytes(unit.shard_size, numbers) + factor_bytes(table, unit, numbers);
  }
};

/// The same with a mean of the weights behind its states.
OptimizerFootprint with_ema(OptimizerFootprint footprint);

}  // namespace finetune::plan
