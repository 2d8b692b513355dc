#pragma once
// SPDX-License-Identifier: Apache-2.0
// When what happens in a step: the computation, and the communication that runs behind it.

#include <cstdint>
#include <vector>

#include "plan/layout/settings.hpp"
#include "plan/layout/shard_map.hpp"
#include "schedule/pass.hpp"

namespace finetune::plan {

/// Seconds of one micro-batch.
struct StageSeconds {
  double forward = 0;
  double backward = 0;
  double again = 0;  ///< the forward pass, where blocks are recomputed
  /// In addition: the computation waits for activations of others.
  double forward_waits = 0;
  double backward_waits = 0;
  double again_waits = 0;
  double offload = 0;  ///< what it keeps, on the link to the host, in one direction
};

/// A collective: how long, and what a node sends to others meanwhile.
struct Transfer {
  double seconds = 0;
  double sent_bytes = 0;
  double processor_s = 0;  ///< of it on the cores that compute: this holds the computation up
};

struct UnitTimes {
  Transfer gather;
  double in_common_s = 0;  ///< sums of what several ranks of tp hold; the computation waits
  Transfer reduce;         ///< its gradient, within a copy of the model
  double add_s = 0;        ///< what arrived, to the sums; this holds the computation up
  Transfer over_replicas;  ///< the sums, over all copies of the model
};

/// Seconds of a trained unit in the optimizer's part of a step.
struct UpdateSeconds {
  double fetch = 0;  ///< on the link between device and host, as is `publish`
  double update = 0;
  double publish = 0;
};

struct PlannedTimes {
  std::vector<StageSeconds> stages;
  std::vector<UnitTimes> units;
  std::vector<UpdateSeconds> updates;  ///< by unit
};

struct TimelineRules {
  schedule::Rules schedule;
  std::int64_t accumulation = 1;
  Alone alone = Alone::keeps;  ///< of a single shard
  /// What a step begins with is gathered behind the optimizer of the step before, as on GPUs.
  bool gathers_ahead = true;
  /// Sums over copies of the model have a stream, and links, of their own.
  bool has_links_to_copies = false;
};

struct StepSeconds {
  double total = 0;
  double optimizer = 0;      ///< of it, with what it waits for the host's link
  double exposed = 0;        ///< of it: the computation waits for communication
  double communication = 0;  ///< how long links between ranks are busy
  double sent_bytes = 0;     ///< by a node to others
  double held_up = 0;        ///< of the total: the computation waits for copies to or from the host
  double copying = 0;        ///< how long the link to the host is busy with activations
};

/// A clock over the events of a step that follows others: a stage waits for its units; gradients
/// leave behind it, two at most; sums go over the copies of the model in the last pass; a unit is
/// updated when its gradient is there. One collective runs at a time, in the order of their start,
/// or one of those over copies of the model next to one of the others, and the link between device
/// and host carries one thing at a time. Of many passes the first, one in between and the last are
/// played.
StepSeconds play(const ShardMap& shards, const schedule::Stages& stages, const PlannedTimes& times,
                 const TimelineRules& rules);

}  // namespace finetune::plan
