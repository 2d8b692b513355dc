// SPDX-License-Identifier: Apache-2.0
#include "comm/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "comm/agree.hpp"
#include "comm/detail/installed_gpus.hpp"
#include "core/error.hpp"
#include "core/host.hpp"

namespace finetune::comm {

namespace {

constexpr const char* on_cpus =
    "to compute on CPUs, set train.device = \"cpu\" (generate: --device cpu)";

[[noreturn]] void fail_without_gpu(const GpuFacts& facts) {
  const CudaState& cuda = facts.cuda;
  const std::string where = fmt::format("GPU on {}", core::host_name());
  if (!cuda.is_built) {
    core::fail(core::ErrorKind::environment,
               {where, "train.device = \"gpu\", but this program was built without CUDA",
                "it computes on CPUs only",
                fmt::format("Build it with -DFINETUNE_WITH_CUDA=ON; {}.", on_cpus)});
  }
  if (facts.installed == 0 && facts.driver.empty()) {
    core::fail(core::ErrorKind::environment,
               {where, "train.device = \"gpu\", and this node has none",
                "there is no device and no driver of NVIDIA",
                fmt::format("Ask the scheduler for nodes with GPUs; {}.", on_cpus)});
  }
  if (facts.are_hidden) {
    core::fail(core::ErrorKind::environment,
               {where, fmt::format("none of {} is visible", facts.installed),
                "CUDA_VISIBLE_DEVICES names none",
                fmt::format("Ask the scheduler for GPUs, or unset it; {}.", on_cpus)});
  }
  const std::string driver =
      facts.driver.empty() ? "no driver is loaded" : fmt::format("driver {}", facts.driver);
  const std::string serves =
      cuda.driver_for.empty() ? "" : fmt::format(" serves CUDA up to {},", cuda.driver_for);
  core::fail(
      core::ErrorKind::environment,
      {where, fmt::format("CUDA cannot use it: {}", cuda.problem),
       fmt::format("{}{} and this program was built for CUDA {}", driver, serves, cuda.built_for),
       fmt::format("Have the driver updated, or build with a libtorch for an older CUDA "
                   "(LibTorch_ROOT); look at nvidia-smi; {}.",
                   on_cpus)});
}

}  // namespace

bool names_no_gpu(std::string_view visible_devices) {
  // CUDA stops at the first that is none. Slurm names a device that does not exist.
  return visible_devices.empty() || visible_devices.front() == '-' ||
         visible_devices.starts_with("NoDevFiles");
}

int num_gpus() {
  return cuda_state().usable;
}

GpuFacts gpu_facts() {
  GpuFacts facts{.cuda = cuda_state()};
  const InstalledGpus installed = installed_gpus();
  facts.installed = installed.count;
  facts.driver = installed.driver;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  facts.are_hidden = visible != nullptr && names_no_gpu(visible);
  return facts;
}

int gpus_to_use(UseOfGpus asked, const GpuFacts& facts) {
  if (asked == UseOfGpus::never) return 0;
  if (facts.cuda.usable > 0) return facts.cuda.usable;
  const bool is_expected = facts.cuda.is_built && facts.installed > 0 && !facts.are_hidden;
  if (asked == UseOfGpus::always || is_expected) fail_without_gpu(facts);
  return 0;
}

std::string why_on_cpu(UseOfGpus asked, const GpuFacts& facts) {
  const int there = std::max(facts.installed, facts.cuda.usable);
  if (asked == UseOfGpus::never) return there > 0 ? "as train.device says" : "";
  if (there == 0 && !facts.driver.empty())
    return fmt::format(
        "driver {} is loaded, but there is no /dev/nvidia* here; a container may "
        "have to be started with its GPUs",
        facts.driver);
  if (there == 0) return "";
  if (!facts.cuda.is_built)
    return fmt::format("this program was built without CUDA; this node has {} GPU{}", there,
                       there == 1 ? "" : "s");
  return facts.are_hidden ? "CUDA_VISIBLE_DEVICES names no GPU" : "";
}

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

Device choose_device(const Communicator& world, const Communicator& node, UseOfGpus asked) {
  const Device device = agree(world, [&] {
    Device mine;
    const int num_visible = gpus_to_use(asked, gpu_facts());
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
