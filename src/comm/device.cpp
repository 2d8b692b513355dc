// SPDX-License-Identifier: Apache-2.0
#include "comm/device.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "comm/agree.hpp"
#include "comm/detail/gpu_distance.hpp"
#include "comm/detail/gpu_placement.hpp"
#include "comm/detail/installed_gpus.hpp"
#include "core/cores.hpp"
#include "core/error.hpp"
#include "core/host.hpp"
#include "core/text.hpp"

namespace finetune::comm {

namespace {

constexpr const char* on_cpus =
    "to compute on CPUs, set train.device = \"cpu\" (generate: --device cpu)";

constexpr const char* ask_scheduler = "Ask the scheduler for GPUs (sbatch --gpus-per-node=4)";

[[noreturn]] void fail_here(const std::string& problem, const std::string& why,
                            const std::string& remedy) {
  core::fail(core::ErrorKind::environment, {"GPU on " + core::host_name(), problem, why,
                                            fmt::format("{}; {}.", remedy, on_cpus)});
}

[[noreturn]] void fail_without_gpu(const GpuFacts& facts) {
  const CudaState& cuda = facts.cuda;
  if (!cuda.is_built)
    fail_here("train.device = \"gpu\", but this program was built without CUDA",
              "it computes on CPUs only", "Build it with -DFINETUNE_WITH_CUDA=ON");
  if (facts.installed == 0 && facts.driver.empty())
    fail_here("train.device = \"gpu\", and this node has none",
              "there is no device and no driver of NVIDIA",
              "Ask the scheduler for nodes with GPUs");
  if (facts.are_hidden)
    fail_here(fmt::format("none of {} is visible", facts.installed),
              "CUDA_VISIBLE_DEVICES names none", std::string(ask_scheduler) + ", or unset it");
  if (facts.installed > 0 && facts.open_to_us() == 0)
    fail_here(fmt::format("none of {} is this job's", facts.installed),
              "the system lets it open none of their devices", ask_scheduler);
  if (!facts.broken.empty())
    fail_here(fmt::format("no answer from {} of {}", facts.broken.size(), facts.open_to_us()),
              core::one_line(fmt::format("{}", fmt::join(facts.broken, ", "))),
              fmt::format("Look at nvidia-smi and the kernel log (dmesg | grep 'NVRM: Xid'), have "
                          "{} drained and submit again without it",
                          core::host_name()));
  const std::string driver =
      facts.driver.empty() ? "no driver is loaded" : fmt::format("driver {}", facts.driver);
  const std::string serves =
      cuda.driver_for.empty() ? "" : fmt::format(" serves CUDA up to {},", cuda.driver_for);
  fail_here(
      fmt::format("CUDA cannot use it: {}", cuda.problem),
      fmt::format("{}{} and this program's libtorch was built for CUDA {}", driver, serves,
                  cuda.built_for),
      "Have the driver updated, or build with a libtorch for an older CUDA (LibTorch_ROOT); look "
      "at nvidia-smi");
}

/// What this rank sees, for place_ranks.
NodeRank look_around(int rank, UseOfGpus asked) {
  NodeRank seen{.rank = rank};
  const int num_visible = gpus_to_use(asked, gpu_facts(asked));
  const std::vector<int> cores = core::own_cores();
  seen.is_bound = are_some_of_all(cores);
  for (int device = 0; device < num_visible; ++device) {
    const GpuName name = gpu_name(device);
    seen.gpus.push_back({name.uuid, name.pci, gpu_distance(name.pci, cores)});
  }
  return seen;
}

/// Set once, before other threads use the device.
std::string& text_of_current() {
  static std::string text;
  return text;
}

void make_current(const Device& device) {
  if (device.index < 0) return;
  use_gpu(device.index);
  text_of_current() = fmt::format("GPU {} ({})", device.index, device.uuid);
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

int num_installed_gpus() {
  return static_cast<int>(installed_gpus().devices.size());
}

GpuFacts gpu_facts(UseOfGpus asked) {
  GpuFacts facts{.cuda = cuda_state()};
  InstalledGpus installed = installed_gpus();
  facts.installed = static_cast<int>(installed.devices.size());
  facts.driver = installed.driver;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  facts.are_hidden = visible != nullptr && names_no_gpu(visible);
  facts.are_chosen = visible != nullptr && !facts.are_hidden;
  // To open a device wakes it, which takes seconds: only where somebody wants to know.
  const bool is_asked = asked != UseOfGpus::never && facts.cuda.is_built && !facts.are_hidden &&
                        !(facts.cuda.usable > 0 && facts.are_chosen);
  if (!is_asked || facts.cuda.usable >= facts.installed) return facts;
  OpenGpus opened = open_gpus(installed.devices);
  facts.denied = opened.denied;
  facts.broken = std::move(opened.broken);
  return facts;
}

int gpus_to_use(UseOfGpus asked, const GpuFacts& facts) {
  if (asked == UseOfGpus::never) return 0;
  if (facts.cuda.usable > 0) return facts.cuda.usable;
  const bool is_expected = facts.cuda.is_built && facts.open_to_us() > 0 && !facts.are_hidden;
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
  if (facts.are_hidden) return "CUDA_VISIBLE_DEVICES names no GPU";
  if (facts.open_to_us() == 0)
    return fmt::format("this job may use none of this node's {} GPU{}", there,
                       there == 1 ? "" : "s");
  return "";
}

std::string missing_gpus(const GpuFacts& facts) {
  const int usable = facts.cuda.usable;
  if (usable == 0 || facts.are_chosen || usable >= facts.open_to_us()) return "";
  const std::string which = facts.broken.empty()
                                ? "is one broken, or in MIG mode?"
                                : core::one_line(fmt::format("{}", fmt::join(facts.broken, ", ")));
  return fmt::format("CUDA sees {} of the {} GPUs that this job may use: {}", usable,
                     facts.open_to_us(), which);
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
  const NodeRank own = agree(world, [&] { return look_around(world.rank(), asked); });
  std::vector<NodeRank> ranks;
  for (const std::string& text : node.all_gather_text(to_text(own)))
    ranks.push_back(node_rank_from_text(text));
  const Device device = agree(world, [&] {
    const Placement placement = place_ranks(ranks);
    Device mine;
    mine.index = placement.device[static_cast<std::size_t>(node.rank())];
    if (mine.index < 0) return mine;
    mine.uuid = own.gpus[static_cast<std::size_t>(mine.index)].uuid;
    mine.chosen = to_string(placement.by);
    return mine;
  });
  require_own_devices(world, device.uuid);
  // Only now: making a device current takes memory on it, which is not to be another rank's.
  agree_all(world, [&] { make_current(device); });
  return device;
}

Device choose_first_device(UseOfGpus asked) {
  Device device;
  if (gpus_to_use(asked, gpu_facts(asked)) == 0) return device;
  device = {.index = 0, .uuid = gpu_name(0).uuid, .chosen = "the first"};
  make_current(device);
  return device;
}

std::string current_gpu() {
  return text_of_current();
}

}  // namespace finetune::comm
