// SPDX-License-Identifier: Apache-2.0
#include "comm/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "comm/agree.hpp"
#include "core/error.hpp"

namespace finetune::comm {

int device_of(int num_visible, int local_rank) {
  if (num_visible == 1) return 0;
  if (local_rank >= num_visible) {
    core::fail(core::ErrorKind::environment,
               {"devices", fmt::format("this node has more ranks than its {} GPUs", num_visible),
                "each rank needs one of its own", "Start as many ranks per node as it has GPUs."});
  }
  return local_rank;
}

void require_own_devices(const Communicator& world, const std::string& uuid) {
  const auto uuids = world.all_gather_text(uuid);
  agree_all(world, [&] {
    const auto first = std::find(uuids.begin(), uuids.end(), uuid);
    const auto other = first - uuids.begin();
    if (!uuid.empty() && other != world.rank()) {
      core::fail(core::ErrorKind::environment,
                 {fmt::format("rank {}", world.rank()),
                  fmt::format("it computes on GPU {}, and so does rank {}", uuid, other),
                  "two ranks on one GPU wait for each other in NCCL",
                  "Start as many ranks per node as it has GPUs, or give each rank its own."});
    }
    if (uuid.empty() != uuids.front().empty()) {
      core::fail(core::ErrorKind::environment,
                 {fmt::format("rank {}", world.rank()),
                  fmt::format("it has {} GPU, rank 0 has {}", uuid.empty() ? "no" : "a",
                              uuid.empty() ? "one" : "none"),
                  "ranks on CPUs and GPUs cannot work together",
                  "Look at CUDA_VISIBLE_DEVICES and at the driver of each node (nvidia-smi)."});
    }
  });
}

Device choose_device(const Communicator& world, const Communicator& node) {
  const Device device = agree(world, [&] {
    Device mine;
    const int num_visible = num_gpus();
    if (num_visible == 0) return mine;
    mine.index = device_of(num_visible, node.rank());
    mine.uuid = gpu_uuid(mine.index);
    return mine;
  });
  require_own_devices(world, device.uuid);
  // Only now: making a device current takes memory on it, which is not to be another rank's.
  agree_all(world, [&] {
    if (device.index >= 0) use_gpu(device.index);
  });
  return device;
}

}  // namespace finetune::comm
