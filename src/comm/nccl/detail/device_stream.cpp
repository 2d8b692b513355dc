// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/detail/device_stream.hpp"

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/detail/worker.hpp"
#include "comm/nccl/detail/cuda.hpp"
#include "comm/nccl/detail/stream_watch.hpp"

namespace finetune::comm {
namespace {

// synchronize() looks for errors this often: seldom enough to cost nothing, often enough for
// people.
constexpr std::chrono::microseconds event_poll_interval{50};

cudaStream_t as_stream(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

cudaEvent_t as_event(void* event) {
  return static_cast<cudaEvent_t>(event);
}

/// Events that are used again: making one costs more than recording it. Two threads record, which
/// may block while the device is full; any gives back.
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
    cudaEvent_t event = take();
    check_cuda(cudaEventRecord(event, stream), "cudaEventRecord");
    return event;
  }

  /// A stream that was told to wait for the event does so even if it is recorded again.
  void put(cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    (is_kept_ ? kept_ : free_).push_back(event);
  }

  /// While this lives, what is given back is not recorded anew.
  class Keep {
   public:
    explicit Keep(EventPool& pool) : pool_(pool) {
      const std::lock_guard lock(pool_.mutex_);
      pool_.is_kept_ = true;
    }
    ~Keep() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.is_kept_ = false;
      pool_.free_.insert(pool_.free_.end(), pool_.kept_.begin(), pool_.kept_.end());
      pool_.kept_.clear();
    }
    Keep(const Keep&) = delete;
    Keep& operator=(const Keep&) = delete;

   private:
    EventPool& pool_;
  };

 private:
  cudaEvent_t take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      cudaEvent_t made = nullptr;
      check_cuda(cudaEventCreateWithFlags(&made, flags_), "cudaEventCreateWithFlags");
      all_.push_back(made);
      free_.push_back(made);
    }
    cudaEvent_t event = free_.back();
    free_.pop_back();
    return event;
  }

  unsigned int flags_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> all_;
  std::vector<cudaEvent_t> free_;
  bool is_kept_ = false;
  std::vector<cudaEvent_t> kept_;
};

double seconds_between(void* begin, void* end) {
  float ms = 0;
  check_cuda(cudaEventElapsedTime(&ms, as_event(begin), as_event(end)), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(ms);
}

}  // namespace

struct DeviceStream::Events {
  cudaStream_t stream = nullptr;
  EventPool plain{cudaEventDisableTiming};
  EventPool timed{cudaEventDefault};
  std::unique_ptr<StreamWatch> watch;
  Ticket last = nothing_started;
  Worker launcher{Worker::Where::behind};  ///< its tickets are those of the stream

  Events() {
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    int lowest = 0;
    int highest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
               "cudaDeviceGetStreamPriorityRange");
    // Communication waits for others anyway; it must not wait for computation too.
    check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest),
               "cudaStreamCreateWithPriority");
    watch = std::make_unique<StreamWatch>(StreamWatch::Device{
        .use = [device] { check_cuda(cudaSetDevice(device), "cudaSetDevice"); },
        .is_done =
            [](void* event) {
              return comm::is_done(cudaEventQuery(as_event(event)), "cudaEventQuery");
            },
        .time_s =
            [](const StreamWatch::Mark& mark) { return seconds_between(mark.begin, mark.end); },
        .give_back =
            [this](const StreamWatch::Mark& mark) {
              for (void* event : {mark.begin, mark.end})
                pool(mark.is_timed).put(as_event(event));
            }});
    launcher.post([device] { check_cuda(cudaSetDevice(device), "cudaSetDevice"); });
    launcher.wait(++last);
  }
  ~Events() {
    launcher.abandon();
    watch.reset();
    cudaStreamDestroy(stream);
  }
  EventPool& pool(bool is_timed) { return is_timed ? timed : plain; }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
};

DeviceStream::DeviceStream(std::function<void*()> compute_stream)
    : compute_stream_(std::move(compute_stream)), events_(std::make_unique<Events>()) {}

DeviceStream::~DeviceStream() = default;

void* DeviceStream::stream() const {
  return events_->stream;
}

Ticket DeviceStream::start(const char* collective, const Communicator& comm, std::int64_t bytes,
                           std::function<void()> enqueue) {
  release();
  events_->watch->throw_if_failed();
  cudaEvent_t ready = events_->plain.record(as_stream(compute_stream_()));
  Details details = comm.details(bytes);
  details.posted_ns = now_ns();
  events_->launcher.post(
      [=, this, axis = comm.name(), activity = comm.activity(), ticket = ++events_->last] {
        try {
          events_->watch->throw_if_failed();
          check_cuda(cudaStreamWaitEvent(events_->stream, ready, 0), "cudaStreamWaitEvent");
          events_->plain.put(ready);
          // Timed events cost a little more: those that are too small for a rate do without.
          const bool is_timed = details.bytes >= LinkRates::least_bytes;
          EventPool& pool = events_->pool(is_timed);
          cudaEvent_t begin = pool.record(events_->stream);
          enqueue();
          events_->watch->add({.ticket = ticket,
                               .begin = begin,
                               .end = pool.record(events_->stream),
                               .activity = activity,
                               .collective = collective,
                               .axis = axis,
                               .details = details,
                               .is_timed = is_timed});
        } catch (...) {
          events_->watch->give_up(std::current_exception());
        }
      });
  return events_->last;
}

Ticket DeviceStream::hold_back(std::function<void()> release) {
  this->release();
  held_back_ = std::move(release);
  return events_->last + 1;
}

void DeviceStream::release() {
  if (held_back_) std::exchange(held_back_, nullptr)();
}

void DeviceStream::drop() {
  held_back_ = nullptr;
}

void DeviceStream::settle() noexcept {
  if (!events_->launcher.is_abandoned()) events_->launcher.wait_all();
}

void DeviceStream::make_compute_wait(Ticket ticket, Stalls& stalls) {
  release();
  events_->watch->throw_if_failed();
  events_->launcher.wait(ticket);
  events_->watch->look();
  // The watch may find it done and give it back meanwhile.
  const EventPool::Keep keep(events_->plain);
  const EventPool::Keep keep_timed(events_->timed);
  const auto pending = events_->watch->pending(ticket);
  if (!pending) return;
  const cudaStream_t compute = as_stream(compute_stream_());
  cudaEvent_t begin = events_->timed.record(compute);
  check_cuda(cudaStreamWaitEvent(compute, as_event(*pending), 0), "cudaStreamWaitEvent");
  stalls.emplace_back(begin, events_->timed.record(compute));
}

double DeviceStream::take_s(Stalls& stalls) {
  double seconds = 0;
  Stalls open;
  for (const auto& [begin, end] : stalls) {
    if (!is_done(cudaEventQuery(as_event(end)), "cudaEventQuery")) {
      open.emplace_back(begin, end);
      continue;
    }
    seconds += seconds_between(begin, end);
    events_->timed.put(as_event(begin));
    events_->timed.put(as_event(end));
  }
  stalls = std::move(open);
  return seconds;
}

void DeviceStream::synchronize() {
  release();
  events_->watch->throw_if_failed();
  settle();
  for (;;) {
    const cudaError_t code = cudaStreamQuery(events_->stream);
    // First: NCCL knows more about a broken collective than CUDA does.
    events_->watch->look();
    if (is_done(code, "cudaStreamQuery")) return;
    std::this_thread::sleep_for(event_poll_interval);
  }
}

void DeviceStream::add_group(const void* owner, std::function<void()> check,
                             std::function<void()> abort) {
  events_->watch->add_group(owner, std::move(check), std::move(abort));
}

void DeviceStream::remove_group(const void* owner) {
  events_->watch->remove_group(owner);
}

void DeviceStream::abandon() {
  drop();
  events_->watch->give_up(std::make_exception_ptr(
      core::Error(core::ErrorKind::bug, "nothing is started on a stream that was abandoned")));
  events_->launcher.abandon();
  // Whatever this returns, the run ends by an error that is known already.
  cudaStreamSynchronize(events_->stream);
  cudaGetLastError();
  events_->watch->stop();
}

}  // namespace finetune::comm
