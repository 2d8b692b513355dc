// SPDX-License-Identifier: Apache-2.0
#include "train/run/memory_advice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "core/text.hpp"
#include "model/device.hpp"
#include "plan/fits.hpp"
#include "shard/device_memory.hpp"

namespace finetune::train {
namespace {

// The plan says that it fits, and it does not: what helps has to save more than the plan may be
// off.
constexpr std::int64_t least_part = 20;

std::string planned_by_category(const plan::Plan& plan) {
  using enum plan::Category;
  std::vector<std::string> parts;
  for (const plan::Category category :
       {weights, gathered, gradients, states, activations, communication, other})
    if (const std::int64_t bytes = plan.bytes_of(category); bytes > 0)
      parts.push_back(fmt::format("{} {}", plan::to_string(category), core::human_bytes(bytes)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string remedy_of(const PlannedRun& planned, const model::ParameterTable& table) {
  const std::int64_t now = planned.plan.memory_bytes();
  std::vector<std::string> parts;
  for (const plan::Remedy& remedy : plan::remedies(planned.request, table, now - now / least_part))
    parts.push_back(
        fmt::format("{} saves {}", remedy.change, core::human_bytes(remedy.saved_bytes)));
  const std::string changes = parts.empty()
                                  ? "Use more GPUs or a smaller model"
                                  : fmt::format("By the plan, {}", fmt::join(parts, "; "));
  return changes + ". nvidia-smi shows who else uses this GPU.";
}

}  // namespace

comm::GpuMemoryAdvice memory_advice(const PlannedRun& planned, const model::ParameterTable& table,
                                    at::Device device) {
  const shard::PeakBytes peak = shard::peak_device_bytes(device);
  return {
      fmt::format("planned were {} per rank: {}; tensors had up to {}, and libtorch's "
                  "allocator held up to {}",
                  core::human_bytes(planned.plan.memory_bytes()), planned_by_category(planned.plan),
                  core::human_bytes(peak.tensors), core::human_bytes(peak.reserved)),
      remedy_of(planned, table)};
}

void advise_on_memory(const PlannedRun& planned, const Input& input, const comm::Device& device) {
  if (device.index < 0) return;
  // Copies: the error may come when what this was called with is gone.
  comm::advise_on_gpu_memory(
      [planned, table = input.parameters, where = model::compute_device(device.index)] {
        return memory_advice(planned, table, where);
      });
}

}  // namespace finetune::train
