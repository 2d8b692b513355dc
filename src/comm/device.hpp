#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which GPU a rank computes on, and that no two ranks share one.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace finetune::comm {

/// What train.device asks for.
enum class UseOfGpus {
  automatic,  ///< GPUs where there are any
  always,
  never
};

/// What CUDA says of this process.
struct CudaState {
  bool is_built = false;     ///< this program was built with CUDA
  int usable = 0;            ///< GPUs it can see
  std::string problem = {};  ///< CUDA's words where it can use none, though it should
  std::string driver_for =
      {};                      ///< "12.4": the newest CUDA that the driver serves; empty: no driver
  std::string built_for = {};  ///< "13.0": the CUDA that libtorch was built for
};
CudaState cuda_state();

/// GPUs this process can see; 0 without CUDA, without a driver and without a device.
int num_gpus();

/// Devices of NVIDIA's driver on this machine, whoever may use them. Asks no driver.
int num_installed_gpus();

/// What this machine shows of GPUs.
struct GpuFacts {
  CudaState cuda = {};
  int installed = 0;  ///< devices of NVIDIA's driver
  int denied = 0;     ///< of them, those that this job may not open; they are others'
  std::vector<std::string> broken = {};  ///< and those that do not answer: "/dev/nvidia2: ..."
  std::string driver = {};               ///< its version; empty: none is loaded
  bool are_hidden = false;               ///< CUDA_VISIBLE_DEVICES names none of them
  bool are_chosen = false;               ///< CUDA_VISIBLE_DEVICES names some

  int open_to_us() const { return installed - denied; }
};
/// Devices are opened, which wakes them, to see who may, and only where GPUs are asked for and CUDA
/// sees less than are installed.
GpuFacts gpu_facts(UseOfGpus asked = UseOfGpus::automatic);
/// Whether this value of CUDA_VISIBLE_DEVICES hides all.
bool names_no_gpu(std::string_view visible_devices);

/// GPUs to choose from; 0: compute on the CPU, and only where nobody expects a GPU.
/// Throws: ErrorKind::environment if GPUs are there (or asked for) and cannot be used.
int gpus_to_use(UseOfGpus asked, const GpuFacts& facts);

/// Why the CPU computes, for the log: a clause; empty where there is nothing to explain.
std::string why_on_cpu(UseOfGpus asked, const GpuFacts& facts);

/// What CUDA does not see of the GPUs that this job may use, for a warning: a clause; empty if
/// nothing is missing.
std::string missing_gpus(const GpuFacts& facts);

struct GpuName {
  std::string uuid;  ///< "GPU-1b2c...", as nvidia-smi prints it; it distinguishes what several
                     ///< nodes call device 0
  std::string pci;   ///< "0000:c1:00.0", as the system calls it
};
/// Throws: ErrorKind::environment if there is no such device.
GpuName gpu_name(int device);

/// Makes `device` the current one of this process.
/// Throws: ErrorKind::environment if it cannot be used.
void use_gpu(int device);

/// Free memory of the current GPU; 0 without CUDA.
std::int64_t free_gpu_bytes();

/// Refuses a launch in which ranks share a GPU, or in which only some have one. `uuid` is that of
/// this rank's GPU, empty without one. Collective on `world`.
/// Throws: AgreedError of ErrorKind::environment naming the ranks.
void require_own_devices(const Communicator& world, const std::string& uuid);

struct Device {
  int index = -1;           ///< -1: this rank computes on the CPU
  std::string uuid;         ///< empty on the CPU
  std::string chosen = {};  ///< why this one, for the log: "near its cores"
};

/// Chooses this rank's device among those that it sees: the GPUs of a node go to its ranks so that
/// they are near their cores, and none to two of them. Makes it current, and makes sure that no
/// other rank of `world` has it too. Without GPUs all ranks compute on the CPU. Collective on
/// `world`. Throws: AgreedError of ErrorKind::environment, also as gpus_to_use.
Device choose_device(const Communicator& world, const Communicator& node,
                     UseOfGpus asked = UseOfGpus::automatic);

/// The first GPU that this process sees, made current, or the CPU, for a program without other
/// ranks. Throws: as gpus_to_use.
Device choose_first_device(UseOfGpus asked);

/// "GPU 2 (GPU-1b2c...)": the one that was chosen; empty before, and on the CPU. For messages.
std::string current_gpu();

}  // namespace finetune::comm
