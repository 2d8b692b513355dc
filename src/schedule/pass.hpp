#pragma once
// SPDX-License-Identifier: Apache-2.0
// The order of a step as lists of events: the run executes them with shards, ops and optimizer, the
// memory plan keeps a ledger over them, the time plan a clock. Nobody else knows this order.

#include <limits>
#include <string>
#include <vector>

#include "schedule/stages.hpp"

namespace finetune::schedule {

enum class Action {
  // Of a unit.
  gather,         ///< starts, unless its weights are here or on their way
  open,           ///< its weights may be read from now on; gathered first if they are not
  close,          ///< nobody reads them any more
  release,        ///< the memory of gathered weights is given back
  open_gradient,  ///< its gradient may be written from now on, and is added to
  reduce,         ///< its gradient leaves for the sums of the ranks that keep its shards
  reduce_last,    ///< the same, after which the sums go over the copies of the model
  // Of a stage.
  forward,       ///< keeps nothing but its input
  forward_kept,  ///< keeps what its backward pass needs
  again,         ///< forward_kept from the input that `forward` kept
  loss,          ///< of the head: norm, product and loss, with the gradient of its input
  backward,
  // Of the step.
  finish,  ///< all gradients have arrived in the sums
  // Of a unit, in the optimizer's part of the step.
  fetch,    ///< its gradient starts towards the host, where its master weights are
  update,   ///< its master weights and states change; waits for what was fetched
  publish,  ///< its new weights start towards where they are gathered from
};

/// Whether it computes with a stage; else it is about a unit, or about the whole step.
bool is_of_stage(Action action);

struct Event {
  Action action;
  int index = 0;  ///< unit or stage

  friend bool operator==(const Event&, const Event&) = default;
};

/// What happens to blocks' activations between forward and backward. The first blocks are those
/// that are computed again: by then, backward has freed what the others kept.
struct Blocks {
  int num_recomputed = 0;  ///< the first so many; the others keep what their backward pass needs

  bool is_recomputed(int i_block) const { return i_block < num_recomputed; }
  friend bool operator==(const Blocks&, const Blocks&) = default;

  static const Blocks kept;        ///< none is computed again
  static const Blocks recomputed;  ///< all are
};
inline constexpr Blocks Blocks::kept{};
inline constexpr Blocks Blocks::recomputed{std::numeric_limits<int>::max()};

struct Rules {
  bool keeps_gathered = false;  ///< units stay gathered until the step ends (SHARD_GRAD_OP)
  bool prefetches = true;       ///< a stage's units are gathered while the one before computes
  Blocks blocks = Blocks::kept;
  /// Master weights and states are in the host's memory, everything else is a device's.
  bool offloads = false;
};

enum class Pass { more_follow, last };

/// Forward and backward of one micro-batch: units are gathered one stage ahead; the last block's
/// stay open, since backward begins with them; a gradient leaves as soon as no earlier stage adds
/// to it. Every rank of fsdp has the same list, with or without a micro-batch of its own.
std::vector<Event> make_pass(const Stages& stages, const Rules& rules, Pass pass = Pass::last);

/// Forward alone.
std::vector<Event> make_forward(const Stages& stages, const Rules& rules);

/// What follows a step's passes: sums are complete, what stayed gathered is released.
std::vector<Event> make_end(const Stages& stages, const Rules& rules);

/// What the optimizer does with the units that are trained. Offloaded, one unit's gradient travels
/// while the one before is updated, and its weights travel back meanwhile: two units at most have
/// memory of the host for either.
std::vector<Event> make_update(const std::vector<int>& trained_units, const Rules& rules);
/// Gradients, and weights on their way back, that are in the host's memory at once.
inline constexpr std::size_t units_on_their_way = 2;

/// "open 3"; for messages and tests.
std::string to_string(const Event& event);

}  // namespace finetune::schedule
