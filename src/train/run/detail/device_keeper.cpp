// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/device_keeper.hpp"

#include <fmt/format.h>

#include "core/log.hpp"

namespace finetune::train {

DeviceKeeper::DeviceKeeper(const world::World& world, double interval_s) : world_(world) {
  if (interval_s == 0) return;
  hosts_ = world.world.all_gather_text(world.host);
  sampler_.emplace(
      metrics::SampledDevice{.gpu_uuid = world.device.uuid, .tells_of_node = world.node.is_root()},
      interval_s);
}

std::optional<metrics::DeviceReport> DeviceKeeper::gather() {
  if (!sampler_) return std::nullopt;
  return metrics::gather_devices(world_.world, sampler_->take(), hosts_);
}

std::optional<metrics::DeviceReport> DeviceKeeper::report(Reporter& reporter) {
  auto report = gather();
  if (!report || !world_.world.is_root()) return std::nullopt;
  for (const metrics::SlowDevice& slow : report->slow) {
    // Numbers change, the trouble is the same.
    std::string kind = slow.why.substr(0, slow.why.find_first_of("0123456789"));
    if (told_.emplace(slow.rank, std::move(kind)).second) reporter.warn(text_of(slow));
  }
  return report;
}

std::string DeviceKeeper::text_of(const metrics::SlowDevice& slow) {
  return fmt::format(
      "the GPU of rank {} on {} is slow, and so is the whole run: {}. Ask nvidia-smi -q there; if "
      "it stays so, leave the node out (Slurm: --exclude={}).",
      slow.rank, slow.host, slow.why, slow.host);
}

void DeviceKeeper::log_energy(std::int64_t tokens) {
  const auto report = gather();
  if (!report) return;
  if (const std::string text = metrics::energy_text(*report, tokens); !text.empty())
    log::info(text);
}

}  // namespace finetune::train
