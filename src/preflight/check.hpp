#pragma once
// SPDX-License-Identifier: Apache-2.0
// The check of a job before it trains: what is looked at, in which order, and what is made of it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/device.hpp"
#include "comm/environment.hpp"
#include "comm/group.hpp"
#include "comm/nccl/nccl_settings.hpp"
#include "model/path.hpp"
#include "plan/machine/machine.hpp"
#include "preflight/detail/gpus.hpp"
#include "preflight/judge.hpp"
#include "preflight/machine.hpp"

namespace finetune::preflight {

/// quick: what costs well below a second. full: all, with links and rates measured.
enum class CheckDepth { quick, full };

/// What is known before the deck is read.
struct FirstLook {
  Finding program;  ///< rank 0's: the same binary everywhere
  bool is_same_program = true;
  Finding gpus;     ///< rank 0's, if the level is full: before this job uses them, for ranks that
                    ///< cannot continue
  NvmlAnswer nvml;  ///< of this rank's node, if it is its first rank and the level is full
};

/// Compares what the ranks run. Ranks of different programs might call different collectives, so
/// this comes first, and a check that finds some ends here. Collective on the environment's world.
FirstLook begin(const comm::Environment& environment, CheckDepth level);

struct MeasuredGroup {
  std::string name;  ///< of plan::groups or `levels`
  comm::Group* group = nullptr;
};

/// What the check has to know of the run.
struct CheckInput {
  CheckDepth level = CheckDepth::quick;
  std::string deck;
  std::vector<std::filesystem::path> files;  ///< model and data: files or folders
  std::filesystem::path output;
  Expected expected;
  double least_gbit_per_s = 0;
  MemoryNeed memory;
  DiskNeed disk;
  std::int64_t memory_bytes = 0;       ///< this rank may take where it computes
  std::int64_t host_memory_bytes = 0;  ///< its share of the node's
  int threads = 1;
  comm::Device device;
  comm::NcclSettings nccl;
  /// How products of bf16 are computed; if not those of the run, then as this processor needs it.
  model::Path bf16_path = model::Path::kernels;
  bool saves_rates = false;  ///< as a machine file: then what a plan needs is measured as well
  /// To measure: the run's, and maybe those of `levels`.
  std::vector<MeasuredGroup> groups = {};
};

struct CheckResult {
  Report report;          ///< rank 0's; empty elsewhere
  plan::Machine machine;  ///< measured, if the level is full; rank 0's
  int exit_code = 0;      ///< on every rank
};

/// Collective on the environment's world. A rank that cannot find out something says so in its
/// facts: no rank waits for it. Memory and messages grow with the ranks, not with their square.
CheckResult check(const comm::Environment& environment, const FirstLook& beginning,
                  const CheckInput& request);

/// Prints the table, the warnings, the errors and the verdict, on the root.
void print(const Report& report, const std::string& title);

}  // namespace finetune::preflight
