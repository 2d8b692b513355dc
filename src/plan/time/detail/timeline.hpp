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

struct PlannedTimes {
  std::vector<StageSeconds> stages;
  std::vector<UnitTimes> units;
};

struct TimelineRules {
  schedule::Rules schedule;
  std::int64_t accumulation = 1;
  Alone alone = Alone::keeps;  ///< of a single shard
};

struct StepSeconds {
  double total = 0;          ///< without the optimizer
  double exposed = 0;        ///< of it: the computation waits for communication
  double communication = 0;  ///< how long links are busy
  double sent_bytes = 0;     ///< by a node to others
};

/// Seconds of a trained unit in the optimizer's part of a step.
struct UpdateSeconds {
  double fetch = 0;  ///< on the link between device and host, as is `publish`
  double update = 0;
  double publish = 0;
};

/// A clock over the events of the optimizer's part: a unit is updated when its gradient is there;
/// the link carries one thing at a time, in the order of their start. `times`: of the trained
/// units.
double play_update(const std::vector<UpdateSeconds>& times, const schedule::Rules& rules);

/// A clock over the events of a step: a stage waits for its units; gradients leave behind it, two
/// at most; sums go over the copies of the model in the last pass. One collective runs at a time,
/// in the order of their start. Of many passes the first, one in between and the last are played.
StepSeconds play(const ShardMap& shards, const schedule::Stages& stages, const PlannedTimes& times,
                 const TimelineRules& rules);

}  // namespace finetune::plan
