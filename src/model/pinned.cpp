// SPDX-License-Identifier: Apache-2.0
#include "model/pinned.hpp"

#include <fmt/format.h>

#include <new>
#include <string_view>

#include "core/error.hpp"
#include "core/host.hpp"
#include "core/text.hpp"

namespace finetune::model {
namespace {

/// Whether it is memory that was missing, in the words of CUDA or of the host.
bool is_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         std::string_view(error.what()).find("out of memory") != std::string_view::npos ||
         std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos;
}

}  // namespace

at::Tensor pinned_empty(at::IntArrayRef shape, at::ScalarType dtype) {
  try {
    return at::empty(shape, at::TensorOptions().dtype(dtype).device(at::kCPU).pinned_memory(true));
  } catch (const std::exception& error) {
    if (!is_of_memory(error)) throw;
    const std::int64_t bytes =
        c10::multiply_integers(shape) * static_cast<std::int64_t>(c10::elementSize(dtype));
    core::fail(
        core::ErrorKind::environment,
        {"host memory of " + core::host_name(),
         fmt::format("{} of it could not be pinned for copies to and from the GPU",
                     core::human_bytes(bytes)),
         "it is the host that lacks memory, not the GPU",
         "Ask for more memory per node or start fewer ranks on each, leave "
         "optimizer.offload = false and train.offloaded_blocks = 0 where the GPUs have room, "
         "and look at ulimit -l; "
         "`finetune plan` says how much host memory is needed."});
  }
}

}  // namespace finetune::model
