// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/operator_profile.hpp"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <set>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"

namespace finetune::train {
namespace {

using torch::profiler::impl::ActivityType;

constexpr std::int64_t largest_file = std::int64_t{1} << 32;

std::set<ActivityType> activities(bool on_gpu) {
  std::set<ActivityType> all = {ActivityType::CPU};
  if (on_gpu) all.insert(ActivityType::CUDA);
  return all;
}

/// However this ends.
struct Removed {
  const std::filesystem::path& file;
  ~Removed() {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
  }
};

}  // namespace

OperatorProfile::OperatorProfile(bool on_gpu) {
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                     /*report_input_shapes=*/true);
  torch::autograd::profiler::prepareProfiler(config, activities(on_gpu));
  torch::autograd::profiler::enableProfiler(config, activities(on_gpu));
}

OperatorProfile::~OperatorProfile() {
  if (!is_running_) return;
  try {
    torch::autograd::profiler::disableProfiler();
  } catch (...) {
    // Nobody is left to ask for what it recorded.
  }
}

std::vector<core::Json> OperatorProfile::finish(std::int64_t base_ns,
                                                const std::filesystem::path& scratch) {
  is_running_ = false;
  const Removed removed{scratch};
  torch::autograd::profiler::disableProfiler()->save(scratch.string());
  core::Json file = core::Json::parse(core::read_text(scratch, largest_file, core::ErrorKind::io));
  const std::int64_t own_base_ns = file.value("baseTimeNanoseconds", std::int64_t{0});
  const double shift_us = static_cast<double>(own_base_ns - base_ns) * 1e-3;
  std::vector<core::Json> events;
  for (core::Json& each : file.at("traceEvents")) {
    if (each.contains("ts")) each["ts"] = each["ts"].get<double>() + shift_us;
    events.push_back(std::move(each));
  }
  return events;
}

}  // namespace finetune::train
