#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which GPU a rank computes on, and that no two ranks share one.

#include <cstdint>
#include <string>
#include <string_view>

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
  std::string built_for = {};  ///< "13.0"
};
CudaState cuda_state();

/// GPUs this process can see; 0 without CUDA, without a driver and without a device.
int num_gpus();

/// What this machine shows of GPUs.
struct GpuFacts {
  CudaState cuda = {};
  int installed = 0;        ///< devices of NVIDIA's driver
  std::string driver = {};  ///< its version; empty: none is loaded
  bool are_hidden = false;  ///< CUDA_VISIBLE_DEVICES names none of them
};
GpuFacts gpu_facts();
/// Whether this value of CUDA_VISIBLE_DEVICES hides all.
bool names_no_gpu(std::string_view visible_devices);

/// GPUs to choose from; 0: compute on the CPU, and only where nobody expects a GPU.
/// Throws: ErrorKind::environment if GPUs are there (or asked for) and cannot be used.
int gpus_to_use(UseOfGpus asked, const GpuFacts& facts);

/// Why the CPU computes, for the log: a clause; empty where there is nothing to explain.
std::string why_on_cpu(UseOfGpus asked, const GpuFacts& facts);

/// "GPU-1b2c...", as nvidia-smi prints it; it distinguishes what several nodes call device 0.
/// Throws: ErrorKind::environment if there is no such device.
std::string gpu_uuid(int device);

/// Makes `device` the current one of this process.
/// Throws: ErrorKind::environment if it cannot be used.
void use_gpu(int device);

/// Free memory of the current GPU; 0 without CUDA.
std::int64_t free_gpu_bytes();

/// The device of a rank that sees `num_visible` of them: its own if the launcher gave it one, else
/// that of its rank within the node.
/// Throws: ErrorKind::environment if the node has more ranks than devices.
int device_of(int num_visible, int local_rank);

/// Refuses a launch in which ranks share a GPU, or in which only some have one. `uuid` is that of
/// this rank's GPU, empty without one. Collective on `world`.
/// Throws: AgreedError of ErrorKind::environment naming the ranks.
void require_own_devices(const Communicator& world, const std::string& uuid);

struct Device {
  int index = -1;    ///< -1: this rank computes on the CPU
  std::string uuid;  ///< empty on the CPU
};

/// Chooses this rank's device by its rank in `node`, makes it current, and makes sure that no other
/// rank of `world` has it too. Without GPUs all ranks compute on the CPU. Collective on `world`.
/// Throws: AgreedError of ErrorKind::environment, also as gpus_to_use.
Device choose_device(const Communicator& world, const Communicator& node,
                     UseOfGpus asked = UseOfGpus::automatic);

}  // namespace finetune::comm
