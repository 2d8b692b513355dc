#pragma once
// SPDX-License-Identifier: Apache-2.0
// Bytes of activations at the peak of a pass, from what the ops of src/model keep and hold.

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace finetune::plan {

struct ActivationBytes {
  std::int64_t kept = 0;  ///< on the device, by all blocks that do so, from forward to backward
  std::int64_t in_flight = 0;   ///< in addition, at the worst moment of a pass
  std::int64_t unpacked = 0;    ///< matrices that were packed, at the same moment
  std::int64_t least_kept = 0;  ///< by the block that keeps least; after its backward it is gone
  bool worst_is_head = false;   ///< that moment is the head with its loss, not a block's backward
  std::int64_t travelling = 0;  ///< of offloaded blocks on the device, at the same moment
  std::int64_t on_host = 0;     ///< host memory of all offloaded blocks
};

/// What each block keeps until its backward pass, on the device or on the host.
std::vector<std::int64_t> kept_by_blocks(const PlanInput& request,
                                         const model::ParameterTable& table);

/// Of one micro-batch with `request.micro_batch` sequences of `request.max_seq_length` tokens that
/// are all trained. `table` is a rank's own, and says what backward has to keep.
ActivationBytes plan_activations(const PlanInput& request, const model::ParameterTable& table);

}  // namespace finetune::plan
