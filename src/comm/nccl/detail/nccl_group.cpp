// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/detail/nccl_group.hpp"

#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "comm/agree.hpp"
#include "comm/group_factory.hpp"
#include "comm/nccl/detail/cuda.hpp"
#include "comm/versions.hpp"
#include "core/clock.hpp"

namespace finetune::comm {
namespace {

// How long NCCL may take to connect the ranks, to put a collective on its way, and to part them.
// Thousands of ranks take a minute; a wrong network interface takes for ever.
constexpr double connect_timeout_s = 300;
constexpr std::chrono::microseconds poll_interval{100};
// A collective is under way within this time, mostly; the thread that computes is not to sleep over
// it for longer than it takes.
constexpr double spin_s = 60e-6;
// As much as training moves at once: NCCL connects the ranks for an algorithm when a collective
// first uses it, and chooses by size.
constexpr std::int64_t warm_up_floats = (std::int64_t{8} << 20) / sizeof(float);

ncclDataType_t nccl_type(core::DType dtype) {
  switch (dtype) {
    case core::DType::f32:
      return ncclFloat32;
    case core::DType::bf16:
      return ncclBfloat16;
    case core::DType::f16:
      return ncclFloat16;
    case core::DType::i64:
      return ncclInt64;
    default:
      core::check(false, "a group sums f32, bf16, f16 and i64");
      return ncclInt8;
  }
}

std::int64_t part_of_warm_up(int num_ranks) {
  return std::max<std::int64_t>(1, warm_up_floats / num_ranks);
}

std::size_t nccl_count(std::int64_t count) {
  core::check(count >= 0, "a collective moves no negative number of elements");
  return static_cast<std::size_t>(count);
}

/// Zeros on the device: a part for each rank.
class WarmUpMemory {
 public:
  explicit WarmUpMemory(std::int64_t floats) {
    const auto bytes = static_cast<std::size_t>(floats) * sizeof(float);
    check_cuda(cudaMalloc(&floats_, bytes), "cudaMalloc");
    check_cuda(cudaMemset(floats_, 0, bytes), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  ~WarmUpMemory() { cudaFree(floats_); }
  WarmUpMemory(const WarmUpMemory&) = delete;
  WarmUpMemory& operator=(const WarmUpMemory&) = delete;

  float* get() const { return static_cast<float*>(floats_); }

 private:
  void* floats_ = nullptr;
};

}  // namespace

/// Owns the NCCL communicator. It never blocks the host: what a call does not finish at once is
/// polled for. Calls may come from several threads; NCCL gets one at a time.
class NcclGroup::Handle {
 public:
  explicit Handle(const Communicator& comm)
      : where_(fmt::format("\"{}\", rank {} of {}", comm.name(), comm.rank(), comm.size())) {}
  ~Handle() {
    // A destructor has nobody to tell, and the job is ending in either case.
    if (std::uncaught_exceptions() > exceptions_before_ || !finalize()) {
      abort();
    } else if (comm_ != nullptr) {
      ncclCommDestroy(comm_);
    }
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void connect(const Communicator& comm, const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const std::string_view call = "ncclCommInitRankConfig";
    ncclResult_t code = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      code = ncclCommInitRankConfig(&comm_, comm.size(), id, comm.rank(), &config);
    }
    finish(code, call);
  }

  /// Puts on a stream what `enqueue` makes of the communicator; returns once it is under way.
  template <typename Enqueue>
  void call(std::string_view name, const Enqueue& enqueue) {
    ncclResult_t code = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      if (comm_ != nullptr) code = enqueue(comm_);
    }
    finish(code, name);
  }

  /// Returns when the stream is empty.
  void drain(cudaStream_t stream, std::string_view call) {
    const core::Stopwatch watch;
    for (cudaError_t code = cudaStreamQuery(stream);; code = cudaStreamQuery(stream)) {
      check();
      if (code != cudaErrorNotReady) {
        check_cuda(code, "cudaStreamQuery");
        return;
      }
      cudaGetLastError();  // forgets it, or torch's next check would report it
      rest(watch, call);
    }
  }

  /// Throws if NCCL met an error since the last call, for example because another rank died.
  void check() {
    const ncclResult_t code = state("ncclCommGetAsyncError");
    if (code != ncclSuccess && code != ncclInProgress) fail("a collective", code);
  }

  /// Ends the kernels that wait for others: whoever synchronises with the device gets out. Nothing
  /// can be started after it.
  void abort() noexcept {
    const std::lock_guard lock(mutex_);
    if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
  }

  [[noreturn]] void fail(std::string_view call, ncclResult_t code) {
    std::string why = ncclGetErrorString(code);
    {
      const std::lock_guard lock(mutex_);
      const char* details = ncclGetLastError(comm_);
      if (details != nullptr && *details != '\0') why += fmt::format(": {}", details);
    }
    fail(call, why);
  }

 private:
  [[noreturn]] void fail(std::string_view call, const std::string& why) const {
    core::fail(core::ErrorKind::environment,
               {fmt::format("{} on {}", call, where_), "NCCL reports an error", why,
                "Look at the other ranks' output; NCCL_DEBUG=WARN says more."});
  }

  /// Returns once what `call` began is under way. Throws if it failed.
  void finish(ncclResult_t code, std::string_view call) {
    const core::Stopwatch watch;
    for (; code == ncclInProgress; code = state(call))
      rest(watch, call);
    if (code != ncclSuccess) fail(call, code);
    // Not before: another thread may have aborted it meanwhile.
    state(call);
  }

  void rest(const core::Stopwatch& watch, std::string_view call) const {
    if (watch.seconds() > connect_timeout_s)
      fail(call, fmt::format("it has not begun on all ranks within {} s", connect_timeout_s));
    if (watch.seconds() < spin_s) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(poll_interval);
    }
  }

  ncclResult_t state(std::string_view call) {
    ncclResult_t code = ncclSuccess;
    ncclResult_t asked = ncclSuccess;
    bool is_aborted = false;
    {
      const std::lock_guard lock(mutex_);
      is_aborted = comm_ == nullptr;
      if (!is_aborted) asked = ncclCommGetAsyncError(comm_, &code);
    }
    if (is_aborted) fail(call, std::string("its communicator was aborted"));
    if (asked != ncclSuccess) fail(call, asked);
    return code;
  }

  /// True if what was started is done and the communicator may be destroyed.
  bool finalize() {
    if (comm_ == nullptr) return true;
    const core::Stopwatch watch;
    ncclResult_t code = ncclCommFinalize(comm_);
    while (code == ncclInProgress && watch.seconds() < connect_timeout_s) {
      std::this_thread::sleep_for(poll_interval);
      if (ncclCommGetAsyncError(comm_, &code) != ncclSuccess) return false;
    }
    return code == ncclSuccess;
  }

  std::mutex mutex_;  ///< of comm_
  ncclComm_t comm_ = nullptr;
  std::string where_;
  int exceptions_before_ = std::uncaught_exceptions();
};

NcclGroup::NcclGroup(const Communicator& comm, std::shared_ptr<DeviceStream> stream)
    : comm_(comm), stream_(std::move(stream)), handle_(std::make_shared<Handle>(comm)) {
  ncclUniqueId id{};
  std::optional<WarmUpMemory> memory;
  agree_all(comm, [&] {
    memory.emplace(part_of_warm_up(comm.size()) * comm.size());
    if (!comm.is_root()) return;
    const ncclResult_t code = ncclGetUniqueId(&id);
    if (code != ncclSuccess) handle_->fail("ncclGetUniqueId", code);
  });
  comm.broadcast(std::as_writable_bytes(std::span(&id, 1)));
  agree_all(comm, [&] { handle_->connect(comm, id); });
  try {
    agree_all(comm, [&] { warm_up(memory->get()); });
  } catch (...) {
    // Before the memory goes, which waits for the device.
    handle_->abort();
    throw;
  }
  stream_->add_group(
      this, [handle = handle_] { handle->check(); }, [handle = handle_] { handle->abort(); });
}

NcclGroup::~NcclGroup() {
  stream_->remove_group(this);
}

void NcclGroup::abandon() {
  stream_->abandon();
}

/// NCCL connects the ranks in their first collectives; whoever cannot be reached is told of now.
/// `floats`: a part for each rank.
void NcclGroup::warm_up(float* floats) {
  const auto stream = static_cast<cudaStream_t>(stream_->stream());
  const std::size_t part = nccl_count(part_of_warm_up(size()));
  const std::size_t all = part * nccl_count(size());
  float* own = floats + part * nccl_count(rank());
  handle_->call("ncclAllReduce", [&](ncclComm_t comm) {
    return ncclAllReduce(floats, floats, all, ncclFloat32, ncclSum, comm, stream);
  });
  handle_->call("ncclAllGather", [&](ncclComm_t comm) {
    return ncclAllGather(own, floats, part, ncclFloat32, comm, stream);
  });
  handle_->call("ncclReduceScatter", [&](ncclComm_t comm) {
    return ncclReduceScatter(floats, own, part, ncclFloat32, ncclSum, comm, stream);
  });
  handle_->drain(stream, "the first collectives");
}

/// `call`: its name in NCCL, after the collective's.
template <typename Enqueue>
Ticket NcclGroup::start(const char* collective, const char* call, std::int64_t sent_bytes,
                        const Enqueue& enqueue) {
  Ticket ticket = nothing_started;
  stream_->run([&] {
    stream_->follow_compute();
    const auto stream = static_cast<cudaStream_t>(stream_->stream());
    handle_->call(call, [&](ncclComm_t comm) { return enqueue(comm, stream); });
    ticket = stream_->mark(collective, comm_);
  });
  ++traffic_.collectives;
  traffic_.sent_bytes += sent_bytes;
  return ticket;
}

Ticket NcclGroup::all_gather(core::DType dtype, const void* shard, void* full, std::int64_t count) {
  // Nothing is added up, so bytes will do for every dtype.
  const std::int64_t bytes = count * core::size_bytes(dtype);
  return start("all_gather", "ncclAllGather", bytes * (size() - 1),
               [&](ncclComm_t comm, cudaStream_t stream) {
                 return ncclAllGather(shard, full, nccl_count(bytes), ncclUint8, comm, stream);
               });
}

Ticket NcclGroup::reduce_scatter(core::DType dtype, const void* full, void* shard,
                                 std::int64_t count) {
  const ncclDataType_t type = nccl_type(dtype);
  const std::int64_t sent = count * core::size_bytes(dtype) * (size() - 1);
  return start(
      "reduce_scatter", "ncclReduceScatter", sent, [&](ncclComm_t comm, cudaStream_t stream) {
        return ncclReduceScatter(full, shard, nccl_count(count), type, ncclSum, comm, stream);
      });
}

Ticket NcclGroup::all_reduce(core::DType dtype, void* values, std::int64_t count) {
  const ncclDataType_t type = nccl_type(dtype);
  const std::int64_t sent = 2 * count * core::size_bytes(dtype) * (size() - 1) / size();
  return start("all_reduce", "ncclAllReduce", sent, [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(values, values, nccl_count(count), type, ncclSum, comm, stream);
  });
}

Ticket NcclGroup::exchange(Exchange) {
  core::check(false, "an exchange packs and adds in host memory, NCCL moves device memory");
  return nothing_started;
}

void NcclGroup::wait(Ticket ticket) {
  if (ticket != nothing_started) stream_->make_compute_wait(ticket, stalls_);
}

void NcclGroup::synchronize() {
  stream_->synchronize();
}

double NcclGroup::take_exposed_s() {
  return stream_->take_s(stalls_);
}

std::string nccl_version() {
  int version = 0;
  // 22803 is 2.28.3.
  if (ncclGetVersion(&version) != ncclSuccess) return {};
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::unique_ptr<Group> make_nccl_group(const Communicator& comm,
                                       std::shared_ptr<DeviceStream> stream) {
  return std::make_unique<NcclGroup>(comm, std::move(stream));
}

}  // namespace finetune::comm
