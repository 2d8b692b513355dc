#pragma once
// SPDX-License-Identifier: Apache-2.0
// How shards are kept, and with whom they are gathered and reduced.

#include <ATen/ATen.h>

#include <array>
#include <memory>

#include "comm/group.hpp"
#include "plan/layout/axes.hpp"
#include "plan/layout/mesh.hpp"
#include "plan/layout/numbers.hpp"
#include "world/world.hpp"

namespace finetune::shard {

/// The ranks that hold one copy of the model together, and those that hold the same shard of other
/// copies.
struct Groups {
  std::shared_ptr<comm::Group> fsdp;
  std::shared_ptr<comm::Group> dp_replicate;

  struct Named {
    const char* name;
    comm::Group* group;
  };
  /// For what is done to each of them.
  std::array<Named, 2> all() const {
    return {{{plan::groups::fsdp.name, fsdp.get()},
             {plan::groups::dp_replicate.name, dp_replicate.get()}}};
  }
};

/// The groups of a run's mesh: over NCCL where ranks compute on GPUs, else over MPI. Collective on
/// `world`.
Groups make_groups(const world::World& world, bool overlap);

/// Groups of host memory: every rank of `fsdp` has a shard of the only copy. Collective on `fsdp`.
Groups one_copy(const comm::Communicator& fsdp);

struct Options {
  plan::Numbers numbers;
  plan::Sharding sharding = plan::Sharding::full_shard;
  bool overlap = true;                 ///< communicate behind the computation
  at::Device device = at::kCPU;        ///< of what is computed with
  at::Device state_device = at::kCPU;  ///< of master weights: the host's if the optimizer is there
};

/// at:: name of a dtype to compute in.
at::ScalarType to_aten(core::DType dtype);

}  // namespace finetune::shard
