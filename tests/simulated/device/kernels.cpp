// SPDX-License-Identifier: Apache-2.0
// The kernels of src/kernels on the simulated device, cut as they are for GPUs, where
// FINETUNE_SIMULATED_KERNELS=1 gives the program a Kokkos with CUDA in this sense. Linked before
// the libraries, as program.cpp.
#include <c10/core/Allocator.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <typeinfo>

#include "core/error.hpp"
#include "kernels/detail/gpu_shapes.hpp"
#include "kernels/detail/scratch.hpp"
#include "kernels/gpu_kernels.hpp"
#include "simulated/device/arena.hpp"
#include "simulated/device/counters.hpp"
#include "simulated/device/order.hpp"

namespace finetune::kernels {
namespace {

bool are_wanted() {
  static const char* const setting = std::getenv("FINETUNE_SIMULATED_KERNELS");
  return setting != nullptr && std::string(setting) == "1";
}

/// "kernel RowOfTeam<ForwardRow<float>>": without the namespaces.
std::string name_of(const std::type_info& functor) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(functor.name(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? text.get() : functor.name();
  for (const std::string space :
       {"finetune::kernels::", "(anonymous namespace)::", "finetune::core::"})
    for (std::size_t at; (at = name.find(space)) != std::string::npos;)
      name.erase(at, space.size());
  // What counts is cut into words.
  std::erase(name, ' ');
  return "kernel:" + name;
}

}  // namespace

GpuKernels::GpuKernels(int) {}
GpuKernels::~GpuKernels() {}

bool compute_on(c10::Device device) {
  return device.is_cpu() || (device.is_privateuseone() && are_wanted());
}

bool has_kernels_for_gpus() {
  return are_wanted();
}

std::string who_computes_on_gpus() {
  return are_wanted() ? "kernels, simulated" : "libtorch's operations in place of kernels";
}

Place place_on(c10::Device device) {
  core::check(compute_on(device), "kernels: compute on the host and on this rank's GPU");
  return device.is_cpu() ? Place() : Place::gpu(nullptr);
}

std::shared_ptr<void> gpu_memory(std::size_t bytes) {
  auto memory =
      std::make_shared<c10::DataPtr>(c10::GetAllocator(c10::kPrivateUse1)->allocate(bytes));
  return {memory, memory->get()};
}

// A functor is a struct of sizes and addresses. No size is as large as an address of the device;
// what lies between a small member and the next may look like one, but hardly of memory in use. How
// many bytes a kernel touches, and whether it writes them, is not known: its first byte is read,
// which finds a collective that nobody waited for.
void before_kernel(const std::type_info& functor, void* arguments, std::size_t bytes) {
  const std::string name = name_of(functor);
  simulated::Counters::here().launch(name);
  const simulated::Operation operation(name);
  const simulated::Arena& arena = simulated::Arena::here();
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    void* word = nullptr;
    std::memcpy(&word, static_cast<char*>(arguments) + at, sizeof word);
    if (!arena.is_live_address(word)) continue;
    operation.touches(word, 1, simulated::Touch::reads, "its argument");
    word = arena.for_kernels(word);
    std::memcpy(static_cast<char*>(arguments) + at, &word, sizeof word);
  }
}

}  // namespace finetune::kernels
