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
  // Of what a stage keeps until its backward pass, where that goes to the host's memory meanwhile.
  offload,     ///< starts towards the host
  drop,        ///< the device's memory of it is given back, once it has arrived there
  bring_back,  ///< starts back towards the device, for `again` or `backward`
  // Of the step.
  finish,  ///< all gradients have arrived in the sums
  // Of a unit, in the optimizer's part of the step, or in backward.
  fetch,    ///< its gradient starts towards the host, where its master weights are
  update,   ///< its master weights and states change; waits for what was fetched
  publish,  ///< its new weights start towards where they are gathered from
};

/// Whether it computes with a stage.
bool is_of_stage(Action action);
/// Whether it moves what a stage keeps. All else is about a unit, or about the whole step.
bool moves_activations(Action action);

struct Event {
  Action action;
  int index = 0;  ///< unit or stage

  friend bool operator==(const Event&, const Event&) = default;
};

/// What happens to blocks' activations between forward and backward. The first blocks are those
/// that are computed again: by then, backward has freed what the others kept. Of the others so many
/// are offloaded, evenly spread, so that one's copies run behind the computation of several; if all
/// are computed again, so many of their inputs are.
struct Blocks {
  int num_recomputed = 0;  ///< the first so many; the others keep what their backward pass needs
  int num_offloaded = 0;   ///< keep it in the host's memory

  bool is_recomputed(int i_block) const { return i_block < num_recomputed; }
  bool is_offloaded(int i_block, int num_blocks) const;
  friend bool operator==(const Blocks&, const Blocks&) = default;

  static const Blocks kept;        ///< none is computed again
  static const Blocks recomputed;  ///< all are
};
inline constexpr Blocks Blocks::kept{};
inline constexpr Blocks Blocks::recomputed{std::numeric_limits<int>::max()};

struct Rules {
  bool keeps_gathered = false;  ///< units stay gathered until the step ends (SHARD_GRAD_OP)
  /// Units are gathered while the stage computes that is so many before theirs; 0: once they are
  /// needed, and nothing is behind the computation.
  int prefetch_depth = 1;
  Blocks blocks = Blocks::kept;
  /// Master weights and states are in the host's memory, everything else is a device's.
  bool offloads = false;
  /// A unit is updated as soon as its gradient is complete and nothing reads its weights, while
  /// backward goes on; of a step that is one pass. Not with `offloads`.
  bool updates_in_backward = false;

  bool overlaps() const { return prefetch_depth > 0; }
};

enum class Pass { more_follow, last };

/// Forward and backward of one micro-batch: units are gathered one stage ahead or more; the last
/// block's stay open, since backward begins with them; a gradient leaves as soon as no earlier
/// stage adds to it. What the next pass needs first stays gathered, or is gathered while the
/// embedding's gradient is computed; in the last pass only what is frozen, as the optimizer changes
/// the rest. Units that are updated in backward are so one stage later, while the next gradients
/// leave. Of offloaded blocks the device has memory for two at a time: in forward one's
/// activations leave while the next's are computed, in backward one's return while another's are
/// read. Every rank of fsdp has the same list, with or without a micro-batch of its own.
std::vector<Event> make_pass(const Stages& stages, const Rules& rules, Pass pass = Pass::last);

/// Forward alone.
std::vector<Event> make_forward(const Stages& stages, const Rules& rules);

/// What follows a step's passes: sums are complete, what stayed gathered is released.
std::vector<Event> make_end(const Stages& stages, const Rules& rules);

/// What a pass begins with: units of the embedding, of the blocks that are gathered while that
/// computes, and those that are open all along, without repetitions. Empty where nothing is
/// gathered ahead.
std::vector<int> first_units(const Stages& stages, const Rules& rules);

/// What the optimizer does with `trained_units`, those that were not updated in backward. Of
/// `next`, which are the next pass's first units, each is gathered as soon as it has its new
/// weights. Offloaded, one unit's gradient travels while the one before is updated, and its weights
/// travel back meanwhile: two units at most have memory of the host for either.
std::vector<Event> make_update(const std::vector<int>& trained_units, const Rules& rules,
                               const std::vector<int>& next = {});
/// Gradients, and weights on their way back, that are in the host's memory at once.
inline constexpr std::size_t units_on_their_way = 2;

/// The parts of a step that all follow each other: `pass` for each micro-batch but the last,
/// `last`, `end`, and `update`, after which the next step begins.
struct StepEvents {
  std::vector<Event> pass;
  std::vector<Event> last;
  std::vector<Event> end;
  std::vector<Event> update;
};
StepEvents make_step(const Stages& stages, const Rules& rules);

/// "open 3"; for messages and tests.
std::string to_string(const Event& event);

}  // namespace finetune::schedule
