// SPDX-License-Identifier: Apache-2.0
#include "comm/device_stream.hpp"

#include <chrono>
#include <thread>

#include "comm/cuda.hpp"

namespace finetune::comm {
namespace {

// synchronize() looks for errors this often: seldom enough to cost nothing, often enough for
// people.
constexpr std::chrono::microseconds poll_interval{50};

cudaStream_t as_stream(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

cudaEvent_t as_event(void* event) {
  return static_cast<cudaEvent_t>(event);
}

/// Events that are used again: making one costs more than recording it.
class EventPool {
 public:
  explicit EventPool(unsigned int flags) : flags_(flags) {}
  ~EventPool() {
    for (cudaEvent_t event : all_)
      cudaEventDestroy(event);
  }
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// An event recorded on `stream`.
  cudaEvent_t record(cudaStream_t stream) {
    if (free_.empty()) {
      cudaEvent_t made = nullptr;
      check_cuda(cudaEventCreateWithFlags(&made, flags_), "cudaEventCreateWithFlags");
      all_.push_back(made);
      free_.push_back(made);
    }
    cudaEvent_t event = free_.back();
    check_cuda(cudaEventRecord(event, stream), "cudaEventRecord");
    free_.pop_back();
    return event;
  }

  /// A stream that was told to wait for the event does so even if it is recorded again.
  void put(cudaEvent_t event) { free_.push_back(event); }

 private:
  unsigned int flags_;
  std::vector<cudaEvent_t> all_;
  std::vector<cudaEvent_t> free_;
};

/// True if all work before the event, or on the stream, is done.
bool is_done(cudaError_t code, const char* call) {
  if (code == cudaErrorNotReady) {
    cudaGetLastError();  // forgets it, or torch's next check would report it
    return false;
  }
  check_cuda(code, call);
  return true;
}

}  // namespace

struct DeviceStream::Events {
  cudaStream_t stream = nullptr;
  EventPool plain{cudaEventDisableTiming};
  EventPool timed{cudaEventDefault};
  Ticket last = nothing_started;
  std::map<Ticket, cudaEvent_t> marks;  ///< of tickets nobody has waited for

  Events() {
    int lowest = 0;
    int highest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
               "cudaDeviceGetStreamPriorityRange");
    // Communication waits for others anyway; it must not wait for computation too.
    check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest),
               "cudaStreamCreateWithPriority");
  }
  ~Events() { cudaStreamDestroy(stream); }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
};

DeviceStream::DeviceStream(std::function<void*()> compute_stream)
    : compute_stream_(std::move(compute_stream)), events_(std::make_unique<Events>()) {}

DeviceStream::~DeviceStream() = default;

void* DeviceStream::stream() const {
  return events_->stream;
}

void DeviceStream::follow_compute() {
  cudaEvent_t event = events_->plain.record(as_stream(compute_stream_()));
  check_cuda(cudaStreamWaitEvent(events_->stream, event, 0), "cudaStreamWaitEvent");
  events_->plain.put(event);
}

Ticket DeviceStream::mark() {
  events_->marks[++events_->last] = events_->plain.record(events_->stream);
  return events_->last;
}

void DeviceStream::make_compute_wait(Ticket ticket, Stalls& stalls) {
  run_checks();
  const auto mark = events_->marks.find(ticket);
  if (mark == events_->marks.end()) return;  // waited for already
  cudaEvent_t event = mark->second;
  if (!is_done(cudaEventQuery(event), "cudaEventQuery")) {
    const cudaStream_t compute = as_stream(compute_stream_());
    cudaEvent_t begin = events_->timed.record(compute);
    check_cuda(cudaStreamWaitEvent(compute, event, 0), "cudaStreamWaitEvent");
    stalls.emplace_back(begin, events_->timed.record(compute));
  }
  events_->plain.put(event);
  events_->marks.erase(mark);
}

double DeviceStream::take_s(Stalls& stalls) {
  double seconds = 0;
  Stalls open;
  for (const auto& [begin, end] : stalls) {
    if (!is_done(cudaEventQuery(as_event(end)), "cudaEventQuery")) {
      open.emplace_back(begin, end);
      continue;
    }
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, as_event(begin), as_event(end)), "cudaEventElapsedTime");
    seconds += 1e-3 * static_cast<double>(ms);
    events_->timed.put(as_event(begin));
    events_->timed.put(as_event(end));
  }
  stalls = std::move(open);
  return seconds;
}

void DeviceStream::synchronize() {
  for (;;) {
    const cudaError_t code = cudaStreamQuery(events_->stream);
    // First: NCCL knows more about a broken collective than CUDA does.
    run_checks();
    if (is_done(code, "cudaStreamQuery")) break;
    std::this_thread::sleep_for(poll_interval);
  }
  for (const auto& [ticket, event] : events_->marks)
    events_->plain.put(event);
  events_->marks.clear();
}

void DeviceStream::add_check(const void* owner, std::function<void()> check) {
  checks_[owner] = std::move(check);
}

void DeviceStream::remove_check(const void* owner) {
  checks_.erase(owner);
}

void DeviceStream::run_checks() const {
  for (const auto& [owner, check] : checks_)
    check();
}

}  // namespace finetune::comm
