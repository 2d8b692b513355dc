// SPDX-License-Identifier: Apache-2.0
#include "train/input/device.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <cstdlib>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "kernels/gpu_kernels.hpp"
#include "model/device.hpp"
#include "model/fp8_products.hpp"

namespace finetune::train {
namespace {

// Of a large job a few lines tell what is usual; the rest differs in its numbers only.
constexpr std::size_t listed = 16;

void log_devices(const comm::Environment& environment, const comm::Device& device) {
  const auto devices = environment.world().gather_text(
      fmt::format("GPU {} ({}), {}", device.index, device.uuid, device.chosen));
  const comm::Topology& topology = environment.topology();
  for (std::size_t rank = 0; rank < devices.size() && rank < listed; ++rank) {
    const auto node = static_cast<std::size_t>(topology.node_of_rank[rank]);
    log::info(fmt::format("rank {} on {}: {}", rank, topology.node_names[node], devices[rank]));
  }
  if (devices.size() > listed) log::info(fmt::format("and {} more", devices.size() - listed));
}

/// Of every node that lacks some, by its first rank.
void warn_of_missing(const comm::Environment& environment) {
  const bool is_first = environment.node().is_root();
  const auto missing = environment.world().gather_text(
      is_first ? comm::missing_gpus(comm::gpu_facts()) : std::string());
  const comm::Topology& topology = environment.topology();
  for (std::size_t rank = 0; rank < missing.size(); ++rank) {
    if (missing[rank].empty()) continue;
    const auto node = static_cast<std::size_t>(topology.node_of_rank[rank]);
    log::warn(fmt::format("{}: {}", topology.node_names[node], missing[rank]));
  }
}

/// cuBLAS, cuDNN and ATen have faster ways whose sums come in any order.
void compute_in_one_order() {
  // Read by cuBLAS when it starts; without it, deterministic algorithms are refused.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::globalContext().setBenchmarkCuDNN(false);
}

constexpr const char* growing_segments = "expandable_segments:True";

/// Lengths differ from pass to pass: without it libtorch's allocator keeps pieces that nobody fits.
/// Read when it first allocates. NCCL registers what cudaMalloc returned.
void allow_segments_to_grow(const NcclTable& nccl) {
  if (nccl.register_buffers || std::getenv("PYTORCH_ALLOC_CONF") != nullptr ||
      std::getenv("PYTORCH_CUDA_ALLOC_CONF") != nullptr)
    return;
  ::setenv("PYTORCH_CUDA_ALLOC_CONF", growing_segments, 1);
}

/// Older GPUs have no instructions for bf16, and libtorch's kernels of it are slow or missing
/// there; of 8 bits newer ones still have none.
void require_arithmetic(int capability, const plan::Numbers& numbers, int rank) {
  const bool has_bf16 = capability >= 80;
  if (has_bf16 && numbers.fp8 && !model::has_fp8_products(capability, numbers.fp8->scaling)) {
    const bool is_block = numbers.fp8->scaling == model::Fp8Scaling::block;
    core::fail(
        core::ErrorKind::environment,
        {fmt::format("rank {}", rank),
         fmt::format("its GPU has compute capability {}.{}", capability / 10, capability % 10),
         is_block ? "products of 8 bits with a scale per block need 9.x"
                  : "products of 8 bits need 8.9",
         is_block && model::has_fp8_products(capability, model::Fp8Scaling::rowwise)
             ? "Set precision.fp8_scaling = \"rowwise\"."
             : "Set precision.mode = \"bf16-mixed\"."});
  }
  const std::string cuda = comm::cuda_state().built_for;
  if (numbers.fp8 && numbers.fp8->scaling == model::Fp8Scaling::block &&
      !model::has_fp8_blocks(cuda))
    core::fail(core::ErrorKind::environment,
               {fmt::format("rank {}", rank), fmt::format("libtorch was built for CUDA {}", cuda),
                "products of 8 bits with a scale per block came with CUDA 12.9",
                "Set precision.fp8_scaling = \"rowwise\", or build with a newer libtorch."});
  if (numbers.compute != core::DType::bf16 || has_bf16) return;
  core::fail(core::ErrorKind::environment,
             {fmt::format("rank {}", rank),
              fmt::format("its GPU has compute capability {}.{}", capability / 10, capability % 10),
              "bf16 needs 8.0", "Set precision.mode = \"16-mixed\" or \"32-true\"."});
}

}  // namespace

comm::Device prepare_device(const comm::Environment& environment, const plan::Numbers& numbers,
                            comm::UseOfGpus asked, const NcclTable& nccl) {
  allow_segments_to_grow(nccl);
  const comm::Device device = comm::choose_device(environment.world(), environment.node(), asked);
  if (device.index < 0) {
    const std::string why = comm::why_on_cpu(asked, comm::gpu_facts(asked));
    log::info(why.empty() ? "computes on CPUs" : fmt::format("computes on CPUs: {}", why));
    return device;
  }
  const char* allocator = std::getenv("PYTORCH_ALLOC_CONF");
  if (allocator == nullptr) allocator = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  log::info(fmt::format("computes on GPUs, one per rank of {}; libtorch's allocator: {}",
                        environment.world().size(), allocator == nullptr ? "as it is" : allocator));
  log::info(fmt::format("memory-bound work on GPUs: {}", kernels::who_computes_on_gpus()));
  log_devices(environment, device);
  warn_of_missing(environment);
  comm::agree_all(environment.world(), [&] {
    require_arithmetic(model::compute_capability(model::compute_device(device.index)), numbers,
                       environment.world().rank());
  });
  if (numbers.determinism != plan::Determinism::off) compute_in_one_order();
  return device;
}

comm::NcclSettings nccl_settings(const Input& input) {
  return {.variables = input.nccl.variables,
          .overrides_environment = input.nccl.override_environment,
          // Sums of integers, which "topology" takes, have no order.
          .keeps_order_of_sums = input.train.determinism == plan::Determinism::run};
}

}  // namespace finetune::train
