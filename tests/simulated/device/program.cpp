// SPDX-License-Identifier: Apache-2.0
// The simulated device in the program's place of a GPU: the few functions through which everything
// about a GPU goes. Linked before the libraries, whose own are then never looked for.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "comm/device.hpp"
#include "comm/group_factory.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "comm/versions.hpp"
#include "core/error.hpp"
#include "core/host.hpp"
#include "model/device.hpp"
#include "shard/compute_stream.hpp"
#include "shard/device_memory.hpp"
#include "simulated/device/arena.hpp"
#include "simulated/device/communication.hpp"
#include "simulated/device/device.hpp"
#include "simulated/device/streams.hpp"

namespace finetune {
namespace {

using simulated::CommunicationStream;

[[maybe_unused]] const bool is_registered = (simulated::register_device(), true);

/// NCCL's place: device memory in, device memory out, moved by MPI. The host waits in it for the
/// other ranks; on the device it is as late as the stream of collectives has it.
class SimulatedGroup : public comm::Group {
 public:
  explicit SimulatedGroup(const comm::Communicator& comm)
      : group_(comm, std::make_shared<comm::Worker>(comm::Worker::Where::inline_)) {}

  const comm::Communicator& communicator() const override { return group_.communicator(); }

  comm::Ticket all_gather(core::DType dtype, const void* shard, void* full,
                          std::int64_t count) override {
    const std::size_t bytes = bytes_of(dtype, count);
    return start(
        "all_gather", {const_cast<void*>(shard), bytes}, {full, bytes * num_ranks()},
        [&](const void* from, void* to) { return group_.all_gather(dtype, from, to, count); });
  }
  comm::Ticket reduce_scatter(core::DType dtype, const void* full, void* shard,
                              std::int64_t count) override {
    const std::size_t bytes = bytes_of(dtype, count);
    return start(
        "reduce_scatter", {const_cast<void*>(full), bytes * num_ranks()}, {shard, bytes},
        [&](const void* from, void* to) { return group_.reduce_scatter(dtype, from, to, count); });
  }
  comm::Ticket all_reduce(core::DType dtype, void* values, std::int64_t count) override {
    const std::size_t bytes = bytes_of(dtype, count);
    return start("all_reduce", {values, bytes}, {values, bytes}, [&](const void* from, void* to) {
      std::memcpy(to, from, bytes);
      return group_.all_reduce(dtype, to, count);
    });
  }
  comm::Ticket all_to_all(const void* send, std::span<const std::int64_t> send_bytes, void* recv,
                          std::span<const std::int64_t> recv_bytes) override {
    return start("all_to_all", {const_cast<void*>(send), sum(send_bytes)}, {recv, sum(recv_bytes)},
                 [&](const void* from, void* to) {
                   return group_.all_to_all(from, send_bytes, to, recv_bytes);
                 });
  }
  comm::Ticket exchange(comm::Exchange) override {
    core::check(false, "an exchange is for host memory");
    return comm::nothing_started;
  }
  void wait(comm::Ticket ticket) override {
    if (ticket != comm::nothing_started) CommunicationStream::here().make_compute_wait(ticket);
  }
  void synchronize() override { CommunicationStream::here().synchronize(); }
  void abandon() override {
    group_.abandon();
    CommunicationStream::here().synchronize();
  }
  comm::Traffic traffic() const override { return group_.traffic(); }
  double take_exposed_s() override { return group_.take_exposed_s(); }

 private:
  static std::size_t bytes_of(core::DType dtype, std::int64_t count) {
    return static_cast<std::size_t>(count * core::size_bytes(dtype));
  }
  static std::size_t sum(std::span<const std::int64_t> bytes) {
    return static_cast<std::size_t>(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}));
  }
  std::size_t num_ranks() const { return static_cast<std::size_t>(size()); }

  template <typename Move>
  comm::Ticket start(const char* name, CommunicationStream::Part read,
                     CommunicationStream::Part written, const Move& move) {
    return CommunicationStream::here().start(
        name, read, written, [&](const void* from, void* to) { group_.wait(move(from, to)); });
  }

  comm::MpiGroup group_;
};

}  // namespace

namespace comm {

CudaState cuda_state() {
  const char* built_for = std::getenv("FINETUNE_SIMULATED_CUDA");
  return {.is_built = true,
          .usable = simulated::num_devices(),
          .problem = "there is none",
          .driver_for = "0.0",
          .built_for = built_for == nullptr ? "13.0" : built_for};
}

GpuName gpu_name(int device) {
  return {fmt::format("simulated-{}-{}", core::host_name(), device),
          fmt::format("simulated:{}", device)};
}

void use_gpu(int device) {
  const c10::Device chosen(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device));
  c10::impl::VirtualGuardImpl(c10::kPrivateUse1).setDevice(chosen);
}

std::int64_t free_gpu_bytes() {
  const simulated::Arena& arena = simulated::Arena::here();
  return static_cast<std::int64_t>(arena.size_bytes()) - arena.bytes();
}

std::string nccl_version() {
  return "simulated";
}

std::unique_ptr<Group> make_nccl_group(const Communicator& comm, std::shared_ptr<DeviceStream>) {
  return std::make_unique<SimulatedGroup>(comm);
}

}  // namespace comm

at::Device model::compute_device(int index) {
  if (index < 0) return at::kCPU;
  return {at::kPrivateUse1, static_cast<at::DeviceIndex>(index)};
}

int model::compute_capability(at::Device device) {
  return device.is_cpu() ? 0 : simulated::capability();
}

void* shard::compute_stream() {
  return nullptr;
}

void shard::wait_for_compute(at::Device device) {
  if (device.is_cpu() || simulated::is_dropped("stream")) return;
  simulated::host_waits_for("wait_for_compute", simulated::current_stream());
}

shard::PeakBytes shard::peak_device_bytes(at::Device device) {
  if (device.is_cpu()) return {};
  const std::int64_t peak = simulated::Arena::here().peak_bytes();
  return {peak, peak};
}

std::int64_t shard::live_device_bytes(at::Device device) {
  return device.is_cpu() ? 0 : simulated::Arena::here().bytes();
}

}  // namespace finetune
