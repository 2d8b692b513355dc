#pragma once
// SPDX-License-Identifier: Apache-2.0
// How shards are kept, and with whom they are gathered and reduced.

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "comm/group.hpp"
#include "model/part.hpp"
#include "plan/layout/axes.hpp"
#include "plan/layout/mesh.hpp"
#include "plan/layout/numbers.hpp"
#include "plan/layout/settings.hpp"
#include "plan/layout/shard_map.hpp"
#include "world/world.hpp"

namespace finetune::shard {

/// The ranks that hold one copy of the model together, and those that hold the same shard of other
/// copies.
struct Groups {
  std::shared_ptr<comm::Group> fsdp;
  std::shared_ptr<comm::Group> dp_replicate;
  /// Null or of one rank: that axis is 1.
  std::shared_ptr<comm::Group> tp = {};
  std::shared_ptr<comm::Group> cp = {};
  std::shared_ptr<comm::Group> ep = {};
  std::shared_ptr<comm::Group> expert_fsdp = {};  ///< null: fsdp
  plan::Alone alone = plan::Alone::keeps;

  /// Whether units are gathered, and their gradients reduced; else this rank has all of them.
  bool gathers() const { return communicates(*fsdp); }
  /// The same of one unit.
  bool gathers(const plan::UnitLayout& unit) const { return communicates(of(unit)); }
  /// The ranks that have shards of a unit: fsdp; of experts that ranks share out, those of them
  /// with the same experts.
  comm::Group& of(const plan::UnitLayout& unit) const {
    return unit.is_of_experts && expert_fsdp ? *expert_fsdp : *fsdp;
  }
  /// Whether sums go over other copies of the model.
  bool has_replicas() const { return communicates(*dp_replicate); }
  /// Who is told of flat buffers that go through fsdp; null: nobody.
  std::shared_ptr<comm::Group> told_of_buffers(bool registers_buffers) const {
    return registers_buffers && gathers() ? fsdp : nullptr;
  }

  struct Named {
    const char* name;
    comm::Group* group;
  };
  /// For what is done to each of them.
  std::vector<Named> all() const;

  /// This rank's place among those that share matrices and experts.
  model::PartPlace part_place() const;

 private:
  bool communicates(const comm::Group& group) const {
    return group.size() > 1 || alone == plan::Alone::communicates;
  }
};

/// The groups of a run's mesh: over NCCL where ranks compute on GPUs, else over MPI. Collective on
/// `world`.
Groups make_groups(const world::World& world, bool overlap, plan::Alone alone = plan::Alone::keeps);

/// Groups of host memory: every rank of `fsdp` has a shard of the only copy, or of its part of
/// every matrix, of which those of `tp` have the others. Collective on both.
Groups one_copy(const comm::Communicator& fsdp, const comm::Communicator& tp = {});

struct Options {
  plan::Numbers numbers;
  plan::Sharding sharding = plan::Sharding::full_shard;
  bool overlap = true;  ///< communicate behind the computation
  int prefetch = 1;     ///< and gather so many stages ahead
  plan::ContextMethod context = plan::ContextMethod::automatic;  ///< of the ranks of cp
  bool registers_buffers = false;  ///< the group is told of buffers that it uses again and again
  at::Device device = at::kCPU;    ///< of what is computed with
  at::Device state_device = at::kCPU;  ///< of master weights: the host's if the optimizer is there

  int prefetch_depth() const { return overlap ? prefetch : 0; }
};

/// at:: name of a dtype to compute in.
at::ScalarType to_aten(core::DType dtype);

}  // namespace finetune::shard
