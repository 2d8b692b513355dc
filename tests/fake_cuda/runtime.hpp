#pragma once
// SPDX-License-Identifier: Apache-2.0
// What the fake's NCCL needs of its CUDA.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fake_cuda/fake.hpp"

struct CUstream_st;

namespace finetune::fake {

/// Done once; whoever waits is let go then.
struct Moment {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  double at_s = 0;

  void pass();
  bool is_past();
  void wait();
};

/// A thread that does one thing after the other.
class Queue {
 public:
  Queue(bool is_for_communication, int number)
      : is_for_communication(is_for_communication), random_(settings().seed + 977u * number) {}

  /// Waits while there is no room.
  void put(std::function<void()> work);
  /// Does not wait: false where there is none.
  bool put_if_room(const std::function<std::function<void()>()>& make);
  bool is_empty();
  void wait_until_empty();
  /// Work that waits for a moment; and whether it does, once nothing else is to be done.
  void hold(Moment& moment);
  bool is_held();
  /// The thread ends once it has done everything.
  void close();
  void run();

  const bool is_for_communication;

 private:
  void delay();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool is_busy_ = false;
  bool is_held_ = false;
  bool is_closing_ = false;
  std::minstd_rand random_;
};

/// Never destroyed: threads of streams may outlive everything else.
struct Device {
  std::mutex mutex;
  Settings settings;
  std::vector<std::string> violations;
  std::set<const void*> events;
  std::set<CUstream_st*> streams;
  std::map<const std::byte*, std::size_t> memory;      ///< blocks by their beginning
  std::multimap<const std::byte*, std::size_t> known;  ///< registered with communicators
  int ever_known = 0;
  int num_threads = 0;
  std::condition_variable threads_changed;
  std::atomic<double> clock_s = 0;
  std::atomic<bool> clock_stands = false;
};

Device& device();

CUstream_st* make_stream(bool is_for_communication);
/// Null, and a violation, where the handle is none.
Queue* queue_of(CUstream_st* stream);
std::vector<std::shared_ptr<Queue>> all_queues();

/// Reports work that touches what is not device memory now. No bytes are none.
void check_device_memory(const void* data, std::size_t bytes, const std::string& who);

/// Memory that communicators know about.
void note_registered(const void* data, std::size_t bytes, bool is_registered);

int current_device();

/// Of NCCL's calls.
void count_anew();

}  // namespace finetune::fake

// What CUDA's handles point at.
struct CUstream_st {
  std::shared_ptr<finetune::fake::Queue> queue;
};
struct CUevent_st {
  bool has_timing = false;
  std::mutex mutex;
  std::shared_ptr<finetune::fake::Moment> latest;  ///< of the last record
};
