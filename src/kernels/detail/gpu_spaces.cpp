// SPDX-License-Identifier: Apache-2.0
#include "kernels/detail/gpu_spaces.hpp"

#include <exception>
#include <map>
#include <mutex>
#include <string>

#include "core/error.hpp"
#include "kernels/detail/kokkos_runtime.hpp"

namespace finetune::kernels {
namespace {

struct Spaces {
  std::mutex mutex;
  std::map<void*, GpuSpace> by_stream;
};

Spaces& spaces() {
  // Never freed: where a run ends by an exception, Kokkos and CUDA may be gone before it.
  static auto* const all = new Spaces();
  return *all;
}

}  // namespace

GpuSpace gpu_space(const Place& place) {
  core::check(place.is_gpu() && is_kokkos_running(), "kernels: Kokkos runs on this rank's GPU");
  const std::lock_guard lock(spaces().mutex);
  auto& by_stream = spaces().by_stream;
  auto found = by_stream.find(place.stream());
  if (found == by_stream.end()) {
    const auto stream = static_cast<cudaStream_t>(place.stream());
    found = by_stream.emplace(place.stream(), GpuSpace(stream)).first;
  }
  return found->second;
}

bool is_kokkos_running() {
  return Kokkos::is_initialized() && !Kokkos::is_finalized();
}

bool start_kokkos(int gpu) {
  if (Kokkos::is_initialized() || Kokkos::is_finalized()) return false;
  try {
    Kokkos::initialize(Kokkos::InitializationSettings().set_device_id(gpu));
  } catch (const std::exception& error) {
    core::fail(
        core::ErrorKind::environment,
        {"GPU " + std::to_string(gpu), "Kokkos does not start on it", error.what(),
         "Look at the driver with nvidia-smi; a build without Kokkos' CUDA does not need it."});
  }
  return true;
}

void end_kokkos() {
  {
    const std::lock_guard lock(spaces().mutex);
    spaces().by_stream.clear();
  }
  Kokkos::finalize();
}

}  // namespace finetune::kernels
