// SPDX-License-Identifier: Apache-2.0
// The fake device without CUDA's names: threads, moments, memory, mistakes.
#include "fake_cuda/runtime.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

namespace finetune::fake {
namespace {

double now_s() {
  if (device().clock_stands) return device().clock_s;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

Device& device() {
  static auto* const one = new Device();
  return *one;
}

CUstream_st* make_stream(bool is_for_communication) {
  static std::atomic<int> number = 0;
  auto* const stream = new CUstream_st{std::make_shared<Queue>(is_for_communication, ++number)};
  {
    const std::lock_guard lock(device().mutex);
    device().streams.insert(stream);
    ++device().num_threads;
  }
  std::thread([queue = stream->queue] {
    queue->run();
    const std::lock_guard lock(device().mutex);
    --device().num_threads;
    device().threads_changed.notify_all();
  }).detach();
  return stream;
}

std::vector<std::shared_ptr<Queue>> all_queues() {
  const std::lock_guard lock(device().mutex);
  std::vector<std::shared_ptr<Queue>> queues;
  for (const CUstream_st* stream : device().streams)
    queues.push_back(stream->queue);
  return queues;
}

Queue* queue_of(cudaStream_t stream) {
  const std::lock_guard lock(device().mutex);
  if (device().streams.contains(stream)) return stream->queue.get();
  device().violations.push_back("a stream is used that does not exist");
  return nullptr;
}

void Moment::pass() {
  const std::lock_guard lock(mutex);
  is_done = true;
  at_s = now_s();
  changed.notify_all();
}
bool Moment::is_past() {
  const std::lock_guard lock(mutex);
  return is_done;
}
void Moment::wait() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return is_done; });
}

void Queue::put(std::function<void()> work) {
  const std::size_t most = settings().most_in_queue;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_.size() < most; });
  work_.push_back(std::move(work));
  changed_.notify_all();
}
bool Queue::put_if_room(const std::function<std::function<void()>()>& make) {
  const std::size_t most = settings().most_in_queue;
  const std::lock_guard lock(mutex_);
  if (work_.size() >= most) return false;
  work_.push_back(make());
  changed_.notify_all();
  return true;
}
bool Queue::is_empty() {
  const std::lock_guard lock(mutex_);
  return work_.empty() && !is_busy_;
}
void Queue::wait_until_empty() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_.empty() && !is_busy_; });
}
void Queue::hold(Moment& moment) {
  if (moment.is_past()) return;
  {
    const std::lock_guard lock(mutex_);
    is_held_ = true;
    changed_.notify_all();
  }
  moment.wait();
  const std::lock_guard lock(mutex_);
  is_held_ = false;
}
bool Queue::is_held() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_held_ || (work_.empty() && !is_busy_); });
  return is_held_;
}
void Queue::close() {
  const std::lock_guard lock(mutex_);
  is_closing_ = true;
  changed_.notify_all();
}
void Queue::delay() {
  const int longest = settings().longest_delay_us;
  if (longest == 0) return;
  std::this_thread::sleep_for(
      std::chrono::microseconds(std::uniform_int_distribution<int>(0, longest)(random_)));
}
void Queue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !work_.empty() || is_closing_; });
    if (work_.empty()) return;
    const auto work = std::move(work_.front());
    work_.pop_front();
    is_busy_ = true;
    changed_.notify_all();
    lock.unlock();
    delay();
    work();
    lock.lock();
    is_busy_ = false;
    changed_.notify_all();
  }
}

void set(const Settings& settings) {
  const std::lock_guard lock(device().mutex);
  device().settings = settings;
  device().clock_stands = settings.clock_stands;
  device().ever_known = 0;
  count_anew();
}
Settings settings() {
  const std::lock_guard lock(device().mutex);
  return device().settings;
}
void advance_clock(double seconds) {
  device().clock_s = device().clock_s + seconds;
}

void report_violation(std::string text) {
  const std::lock_guard lock(device().mutex);
  device().violations.push_back(std::move(text));
}
std::vector<std::string> take_violations() {
  const std::lock_guard lock(device().mutex);
  return std::exchange(device().violations, {});
}

void check_device_memory(const void* data, std::size_t bytes, const std::string& who) {
  if (bytes == 0) return;
  const auto* first = static_cast<const std::byte*>(data);
  const std::lock_guard lock(device().mutex);
  auto block = device().memory.upper_bound(first);
  const bool is_inside = block != device().memory.begin() &&
                         first + bytes <= std::prev(block)->first + std::prev(block)->second;
  if (!is_inside) device().violations.push_back(who + " touches what is no device memory");
}

void note_registered(const void* data, std::size_t bytes, bool is_registered) {
  const auto* first = static_cast<const std::byte*>(data);
  const std::lock_guard lock(device().mutex);
  if (is_registered) {
    device().known.emplace(first, bytes);
    ++device().ever_known;
    return;
  }
  const auto [begin, end] = device().known.equal_range(first);
  const auto found = std::find_if(begin, end, [&](const auto& at) { return at.second == bytes; });
  if (found != end) device().known.erase(found);
}
int num_registered() {
  const std::lock_guard lock(device().mutex);
  return static_cast<int>(device().known.size());
}
int num_ever_registered() {
  const std::lock_guard lock(device().mutex);
  return device().ever_known;
}

void wait_until_idle() {
  for (const auto& queue : all_queues())
    queue->wait_until_empty();
  std::unique_lock lock(device().mutex);
  device().threads_changed.wait(
      lock, [&] { return device().num_threads == static_cast<int>(device().streams.size()); });
}

int num_events() {
  const std::lock_guard lock(device().mutex);
  return static_cast<int>(device().events.size());
}

void put(void* stream, std::function<void()> work) {
  if (Queue* queue = queue_of(static_cast<cudaStream_t>(stream))) queue->put(std::move(work));
}
bool is_held(void* stream) {
  Queue* queue = queue_of(static_cast<cudaStream_t>(stream));
  return queue != nullptr && queue->is_held();
}

void Gate::hold(void* stream) {
  put(stream, [state = state_] {
    std::unique_lock lock(state->mutex);
    state->is_reached = true;
    state->changed.notify_all();
    state->changed.wait(lock, [&] { return state->is_open; });
  });
}
void Gate::open() {
  const std::lock_guard lock(state_->mutex);
  state_->is_open = true;
  state_->changed.notify_all();
}
void Gate::wait_until_reached() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->is_reached; });
}

}  // namespace finetune::fake
