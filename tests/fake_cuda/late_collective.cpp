// SPDX-License-Identifier: Apache-2.0
// late_collective HOW RANK: all ranks gather and reduce on fake GPUs, then the rank named does not
// come to the next, in the way named. For watchdog_test.cpp.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "comm/device.hpp"
#include "comm/environment.hpp"
#include "comm/group_factory.hpp"
#include "comm/watch/watchdog.hpp"
#include "fake_cuda/fake.hpp"

namespace {

namespace comm = finetune::comm;
namespace fake = finetune::fake;

/// Until all are there a busy machine may keep any of them waiting.
constexpr double set_up_s = 200;
constexpr double timeout_s = 2;

void* compute_stream() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    return made;
  }();
  return stream;
}

void run(const comm::Environment& env, const std::string& how, bool is_late,
         std::optional<comm::Watchdog>& watchdog) {
  comm::choose_device(env.world(), env.node());
  const auto stream = std::make_shared<comm::DeviceStream>(compute_stream);
  const auto group =
      comm::make_nccl_group(env.world().split(0, env.world().rank(), "fsdp"), stream);
  void* memory = nullptr;
  cudaMalloc(&memory, 4096);
  auto* const floats = static_cast<float*>(memory);
  const auto reduce = [&] {
    return group->reduce_scatter(finetune::core::DType::f32, floats, floats + 512, 16);
  };
  const auto gather_and_reduce = [&] {
    group->together([&] {
      (void)group->all_gather(finetune::core::DType::f32, floats, floats + 512, 16);
      (void)reduce();
    });
  };
  gather_and_reduce();
  group->synchronize();
  watchdog.emplace(env, timeout_s);
  env.activity().set_step(7);
  // Kept open for ever: the end comes from elsewhere.
  static fake::Gate gate;
  if (is_late && how == "busy") ::pause();
  if (is_late && how == "computing") gate.hold(compute_stream());
  if (how == "hanging") fake::set({.hangs_at = 0});
  if (is_late && how == "losing") fake::set({.loses_a_rank_at = 0});
  if (how == "together") {
    if (is_late) ::pause();
    gather_and_reduce();
  } else {
    (void)reduce();
  }
  group->synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  comm::Environment env(argc, argv);
  fake::connect();
  // As in a run it also sees what becomes of errors.
  std::optional<comm::Watchdog> watchdog(std::in_place, env, set_up_s);
  try {
    run(env, argv[1], env.world().rank() == std::atoi(argv[2]), watchdog);
  } catch (const std::exception& error) {
    return env.report(error);
  }
  return 0;
}
