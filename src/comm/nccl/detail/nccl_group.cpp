// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/detail/nccl_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "comm/agree.hpp"
#include "comm/group_factory.hpp"
#include "comm/nccl/detail/cuda.hpp"
#include "comm/nccl/detail/nccl_handle.hpp"
#include "comm/versions.hpp"
#include "core/clock.hpp"

namespace finetune::comm {
namespace {

constexpr std::chrono::microseconds poll_interval{100};
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

/// Calls that NCCL begins together. `end` always follows: this thread would be among them for ever.
class CallsAsOne {
 public:
  void add(ncclResult_t code) {
    if (first_ == ncclSuccess) first_ = code;
  }
  ncclResult_t end() const {
    const ncclResult_t last = ncclGroupEnd();
    return first_ == ncclSuccess || first_ == ncclInProgress ? last : first_;
  }

 private:
  ncclResult_t first_ = ncclGroupStart();
};

/// A message of an all_to_all: bytes at an offset of what is sent or received.
struct Message {
  int peer;
  std::size_t begin, bytes;
};

/// Those of some bytes: NCCL would wait for others, too.
std::vector<Message> messages_of(std::span<const std::int64_t> bytes) {
  std::vector<Message> messages;
  std::size_t begin = 0;
  for (std::size_t peer = 0; peer < bytes.size(); ++peer) {
    const std::size_t count = nccl_count(bytes[peer]);
    if (count > 0) messages.push_back({static_cast<int>(peer), begin, count});
    begin += count;
  }
  return messages;
}

/// Calls `begin` and then `is_done`, again and again, until it is true on every rank of `comm`. A
/// rank that fails would leave the others waiting for ever, so they ask each other meanwhile.
/// Throws on all ranks if one does: AgreedError. Collective on `comm`.
template <typename Begin, typename IsDone>
void poll_together(const Communicator& comm, const Begin& begin, const IsDone& is_done) {
  std::exception_ptr error;
  bool is_ready = false;
  const auto try_to = [&](const auto& f) {
    try {
      if (!error) f();
    } catch (...) {
      error = std::current_exception();
    }
  };
  try_to(begin);
  enum State : std::int64_t { ready, waiting, failed };
  std::int64_t all = waiting;
  for (double turn_s = 1e-3; all == waiting; turn_s = std::min(2 * turn_s, 0.1)) {
    const core::Stopwatch watch;
    while (!error && !is_ready && watch.seconds() < turn_s) {
      try_to([&] { is_ready = is_done(); });
      if (!is_ready) std::this_thread::sleep_for(poll_interval);
    }
    all = comm.all_reduce(std::int64_t{error ? failed : is_ready ? ready : waiting}, Reduce::max);
  }
  if (all == failed) {
    agree_all(comm, [&] {
      if (error) std::rethrow_exception(error);
    });
  }
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

/// A collective that is to be put on the stream.
struct NcclGroup::Started {
  const char* collective;  ///< its name, and that of NCCL's call
  const char* call;
  std::int64_t sent_bytes;
  std::function<ncclResult_t(ncclComm_t, cudaStream_t)> enqueue;
};

NcclGroup::NcclGroup(const Communicator& comm, std::shared_ptr<DeviceStream> stream)
    : comm_(comm),
      stream_(std::move(stream)),
      handle_(std::make_shared<NcclHandle>(comm)),
      exceptions_before_(std::uncaught_exceptions()) {
  std::optional<WarmUpMemory> memory;
  agree_all(comm, [&] { memory.emplace(part_of_warm_up(comm.size()) * comm.size()); });
  // How often they ask depends on the group, and the watchdog counts what all ranks have done.
  const Communicator unwatched = comm.split(0, comm.rank(), comm.name(), Communicator::Watched::no);
  try {
    connect(unwatched);
    warm_up(unwatched, memory->get());
  } catch (...) {
    // Before the memory goes, which waits for the device.
    handle_->abort();
    throw;
  }
  stream_->add_group(
      this, [handle = handle_] { handle->check(); }, [handle = handle_] { handle->abort(); });
}

NcclGroup::~NcclGroup() {
  if (!together_.empty()) stream_->drop();
  // Nobody may come to what is being started, by this group or by one that goes after it.
  if (std::uncaught_exceptions() > exceptions_before_) stream_->abandon();
  stream_->settle();
  stream_->remove_group(this);
}

void NcclGroup::connect(const Communicator& unwatched) {
  ncclUniqueId id{};
  agree_all(comm_, [&] {
    if (!comm_.is_root()) return;
    const ncclResult_t code = ncclGetUniqueId(&id);
    if (code != ncclSuccess) handle_->fail("ncclGetUniqueId", code);
  });
  comm_.broadcast(std::as_writable_bytes(std::span(&id, 1)));
  poll_together(
      unwatched, [&] { handle_->connect(comm_, id); },
      [&] { return handle_->is_under_way("ncclCommInitRankConfig"); });
}

void NcclGroup::abandon() {
  together_.clear();
  stream_->abandon();
}

/// NCCL connects the ranks in their first collectives; whoever cannot be reached is told of now.
/// `floats`: a part for each rank.
void NcclGroup::warm_up(const Communicator& unwatched, float* floats) {
  const auto stream = static_cast<cudaStream_t>(stream_->stream());
  const std::size_t part = nccl_count(part_of_warm_up(size()));
  const std::size_t all = part * nccl_count(size());
  float* own = floats + part * nccl_count(rank());
  const std::array<std::function<ncclResult_t(ncclComm_t)>, 3> calls = {
      [=](ncclComm_t comm) {
        return ncclAllReduce(floats, floats, all, ncclFloat32, ncclSum, comm, stream);
      },
      [=](ncclComm_t comm) { return ncclAllGather(own, floats, part, ncclFloat32, comm, stream); },
      [=](ncclComm_t comm) {
        return ncclReduceScatter(floats, own, part, ncclFloat32, ncclSum, comm, stream);
      }};
  const std::string_view what = "the first collectives";
  for (const auto& call : calls) {
    bool is_under_way = false;
    poll_together(
        unwatched, [&] { handle_->begin(what, call); },
        [&] {
          is_under_way = is_under_way || handle_->is_under_way(what);
          handle_->check();
          handle_->require_in_time(what);
          return is_under_way && is_done(cudaStreamQuery(stream), "cudaStreamQuery");
        });
  }
}

Ticket NcclGroup::start(Started what) {
  ++traffic_.collectives;
  traffic_.sent_bytes += what.sent_bytes;
  if (!is_together_) return launch({std::move(what)});
  if (together_.empty()) {
    ticket_of_together_ = stream_->hold_back([this] { launch(std::exchange(together_, {})); });
  }
  together_.push_back(std::move(what));
  return ticket_of_together_;
}

Ticket NcclGroup::launch(std::vector<Started> parts) {
  const char* name = parts.front().collective;
  std::int64_t bytes = 0;
  for (const Started& part : parts) {
    if (std::string_view(part.collective) != name) name = "gather with reduce";
    bytes += part.sent_bytes;
  }
  const auto stream = static_cast<cudaStream_t>(stream_->stream());
  return stream_->start(name, comm_, bytes, [handle = handle_, stream, parts = std::move(parts)] {
    if (parts.size() == 1) {
      return handle->call(parts.front().call,
                          [&](ncclComm_t comm) { return parts.front().enqueue(comm, stream); });
    }
    handle->call("ncclGroupEnd", [&](ncclComm_t comm) {
      CallsAsOne calls;
      for (const Started& part : parts)
        calls.add(part.enqueue(comm, stream));
      return calls.end();
    });
  });
}

void NcclGroup::together(const std::function<void()>& f) {
  core::check(!is_together_, "what belongs together is not nested");
  is_together_ = true;
  try {
    f();
  } catch (...) {
    is_together_ = false;
    together_.clear();
    stream_->drop();
    throw;
  }
  is_together_ = false;
  stream_->release();
}

Ticket NcclGroup::all_gather(core::DType dtype, const void* shard, void* full, std::int64_t count) {
  // Nothing is added up, so bytes will do for every dtype.
  const std::int64_t bytes = count * core::size_bytes(dtype);
  const std::size_t elements = nccl_count(bytes);
  return start({"all_gather", "ncclAllGather", bytes * (size() - 1),
                [=](ncclComm_t comm, cudaStream_t stream) {
                  return ncclAllGather(shard, full, elements, ncclUint8, comm, stream);
                }});
}

Ticket NcclGroup::reduce_scatter(core::DType dtype, const void* full, void* shard,
                                 std::int64_t count) {
  const ncclDataType_t type = nccl_type(dtype);
  const std::size_t elements = nccl_count(count);
  return start({"reduce_scatter", "ncclReduceScatter",
                count * core::size_bytes(dtype) * (size() - 1),
                [=](ncclComm_t comm, cudaStream_t stream) {
                  return ncclReduceScatter(full, shard, elements, type, ncclSum, comm, stream);
                }});
}

Ticket NcclGroup::all_reduce(core::DType dtype, void* values, std::int64_t count) {
  const ncclDataType_t type = nccl_type(dtype);
  const std::size_t elements = nccl_count(count);
  return start({"all_reduce", "ncclAllReduce",
                2 * count * core::size_bytes(dtype) * (size() - 1) / size(),
                [=](ncclComm_t comm, cudaStream_t stream) {
                  return ncclAllReduce(values, values, elements, type, ncclSum, comm, stream);
                }});
}

Ticket NcclGroup::all_to_all(const void* send, std::span<const std::int64_t> send_bytes, void* recv,
                             std::span<const std::int64_t> recv_bytes) {
  core::check(std::ssize(send_bytes) == size() && std::ssize(recv_bytes) == size(),
              "an all_to_all has a number of bytes for each rank");
  const auto own = static_cast<std::size_t>(rank());
  const std::int64_t sent_bytes =
      std::accumulate(send_bytes.begin(), send_bytes.end(), std::int64_t{0}) - send_bytes[own];
  return start({"all_to_all", "ncclSend and ncclRecv", sent_bytes,
                [from = static_cast<const std::byte*>(send), out = messages_of(send_bytes),
                 to = static_cast<std::byte*>(recv),
                 in = messages_of(recv_bytes)](ncclComm_t comm, cudaStream_t stream) {
                  CallsAsOne calls;
                  for (const Message& message : out)
                    calls.add(ncclSend(from + message.begin, message.bytes, ncclUint8, message.peer,
                                       comm, stream));
                  for (const Message& message : in)
                    calls.add(ncclRecv(to + message.begin, message.bytes, ncclUint8, message.peer,
                                       comm, stream));
                  return calls.end();
                }});
}

Ticket NcclGroup::exchange(Exchange) {
  core::check(false, "an exchange packs and adds in host memory, NCCL moves device memory");
  return nothing_started;
}

void NcclGroup::remember(void* memory, std::int64_t bytes) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
  stream_->settle();
  handle_->when_idle([&](ncclComm_t comm) {
    void* registration = nullptr;
    const ncclResult_t code = ncclCommRegister(comm, memory, nccl_count(bytes), &registration);
    if (code != ncclSuccess) handle_->warn_unregistered(code);
    if (registration != nullptr) registrations_[memory] = registration;
  });
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

void NcclGroup::forget(void* memory) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
  const auto found = registrations_.find(memory);
  if (found == registrations_.end()) return;
  stream_->settle();
  handle_->when_idle([&](ncclComm_t comm) { ncclCommDeregister(comm, found->second); });
  registrations_.erase(found);
#else
  static_cast<void>(memory);
#endif
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
