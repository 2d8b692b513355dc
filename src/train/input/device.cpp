// SPDX-License-Identifier: Apache-2.0
#include "train/input/device.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <cstdlib>

#include "core/log.hpp"
#include "model/device.hpp"

namespace finetune::train {
namespace {

// Of a large job a few lines tell what is usual; the rest differs in its numbers only.
constexpr std::size_t listed = 16;

void log_devices(const comm::Environment& environment, const comm::Device& device) {
  const auto uuids = environment.world().all_gather_text(device.uuid);
  const comm::Topology& topology = environment.topology();
  for (std::size_t rank = 0; rank < uuids.size() && rank < listed; ++rank) {
    const auto node = static_cast<std::size_t>(topology.node_of_rank[rank]);
    log::info(fmt::format("rank {} on {}: {}", rank, topology.node_names[node], uuids[rank]));
  }
  if (uuids.size() > listed) log::info(fmt::format("and {} more", uuids.size() - listed));
}

/// cuBLAS, cuDNN and ATen have faster ways whose sums come in any order.
void compute_in_one_order() {
  // Read by cuBLAS when it starts; without it, deterministic algorithms are refused.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::globalContext().setBenchmarkCuDNN(false);
}

}  // namespace

comm::Device prepare_device(const comm::Environment& environment, const plan::Numbers& numbers) {
  const comm::Device device = comm::choose_device(environment.world(), environment.node());
  if (device.index < 0) return device;
  log_devices(environment, device);
  if (numbers.determinism != plan::Determinism::off) compute_in_one_order();
  return device;
}

at::Device to_aten(const comm::Device& device) {
  return model::compute_device(device.index);
}

}  // namespace finetune::train
