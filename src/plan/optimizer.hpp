#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a plan must know of an optimizer: what it keeps, and how often it goes through memory.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/layout/numbers.hpp"

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

  core::DType dtype_in(const Numbers& numbers) const { return dtype.value_or(numbers.moments); }
  /// Values that `count` neighbouring elements need.
  std::int64_t num_values(std::int64_t count) const { return (count + block - 1) / block; }
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

  /// Elements that shards begin at multiples of.
  std::int64_t block() const;
  /// Whether there is an `ema_state` among them.
  bool keeps_ema() const;
  /// Of all states of `count` neighbouring elements that begin where a block does.
  std::int64_t state_bytes(std::int64_t count, const Numbers& numbers) const;
};

/// The same with a mean of the weights behind its states.
OptimizerFootprint with_ema(OptimizerFootprint footprint);

}  // namespace finetune::plan
