// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime, as much of it as src/comm calls.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "fake_cuda/runtime.hpp"

using namespace finetune::fake;

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device_of_thread = 0;

cudaError_t failed(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

// Around each block of memory.
constexpr std::size_t guard_bytes = 64;
constexpr int guard = 0xC3;
constexpr int fresh = 0xA5;

bool is_event(cudaEvent_t event) {
  const std::lock_guard lock(device().mutex);
  if (device().events.contains(event)) return true;
  device().violations.push_back("an event is used that does not exist");
  return false;
}

std::shared_ptr<Moment> latest_of(cudaEvent_t event) {
  const std::lock_guard lock(event->mutex);
  return event->latest;
}

}  // namespace

int finetune::fake::current_device() {
  return device_of_thread;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = settings().num_devices;
  return failed(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* index) {
  *index = device_of_thread;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= settings().num_devices) return failed(cudaErrorInvalidDevice);
  device_of_thread = index;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  if (index < 0 || index >= settings().num_devices) return failed(cudaErrorInvalidDevice);
  *properties = {};
  properties->uuid.bytes[15] = static_cast<char>(index);
  properties->pciBusID = index + 1;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *total_bytes = std::size_t{80} << 30;
  const std::lock_guard lock(device().mutex);
  *free_bytes = *total_bytes;
  for (const auto& [first, bytes] : device().memory)
    *free_bytes -= bytes;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}
const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorNotReady ? "device not ready" : "an error of the fake device";
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  auto* const whole = static_cast<std::byte*>(std::malloc(bytes + 2 * guard_bytes));
  if (whole == nullptr) return failed(cudaErrorMemoryAllocation);
  std::memset(whole, guard, bytes + 2 * guard_bytes);
  std::memset(whole + guard_bytes, fresh, bytes);
  *data = whole + guard_bytes;
  const std::lock_guard lock(device().mutex);
  device().memory[whole + guard_bytes] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  // CUDA waits for the whole device.
  cudaDeviceSynchronize();
  auto* const first = static_cast<std::byte*>(data);
  const std::lock_guard lock(device().mutex);
  const auto block = device().memory.find(first);
  if (block == device().memory.end()) {
    device().violations.push_back("memory is freed that is none");
    return failed(cudaErrorInvalidValue);
  }
  const std::size_t bytes = block->second;
  const auto is_whole = [](const std::byte* from) {
    return std::all_of(from, from + guard_bytes,
                       [](std::byte value) { return value == std::byte{guard}; });
  };
  if (!is_whole(first - guard_bytes) || !is_whole(first + bytes))
    device().violations.push_back("memory next to a block was written");
  for (const auto& [known, length] : device().known)
    if (known < first + bytes && first < known + length)
      device().violations.push_back("memory is freed that a communicator still knows");
  device().memory.erase(block);
  std::free(first - guard_bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  check_device_memory(data, bytes, "cudaMemset");
  std::memset(data, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Queue* queue = queue_of(stream);
  if (queue == nullptr) return failed(cudaErrorInvalidResourceHandle);
  queue->put([=] {
    check_device_memory(kind == cudaMemcpyHostToDevice ? to : from, bytes, "cudaMemcpyAsync");
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  for (const auto& queue : all_queues())
    queue->wait_until_empty();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  *stream = make_stream(false);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int) {
  *stream = make_stream(true);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(device().mutex);
    if (device().streams.erase(stream) == 0) {
      device().violations.push_back("a stream is destroyed that does not exist");
      return failed(cudaErrorInvalidResourceHandle);
    }
  }
  stream->queue->close();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Queue* queue = queue_of(stream);
  if (queue == nullptr) return failed(cudaErrorInvalidResourceHandle);
  return failed(queue->is_empty() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Queue* queue = queue_of(stream);
  if (queue == nullptr) return failed(cudaErrorInvalidResourceHandle);
  queue->wait_until_empty();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  Queue* queue = queue_of(stream);
  if (queue == nullptr || !is_event(event)) return failed(cudaErrorInvalidResourceHandle);
  const Defect planted = queue->is_for_communication ? Defect::communication_waits_for_nothing
                                                     : Defect::computation_waits_for_nothing;
  if (settings().defect == planted) return cudaSuccess;
  // What the event stands for now; recorded anew it will stand for something else.
  if (const auto moment = latest_of(event)) queue->put([queue, moment] { queue->hold(*moment); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  *event = new CUevent_st();
  (*event)->has_timing = (flags & cudaEventDisableTiming) == 0;
  const std::lock_guard lock(device().mutex);
  device().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!is_event(event)) return failed(cudaErrorInvalidResourceHandle);
  {
    const std::lock_guard lock(device().mutex);
    device().events.erase(event);
  }
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Queue* queue = queue_of(stream);
  if (queue == nullptr || !is_event(event)) return failed(cudaErrorInvalidResourceHandle);
  const auto moment = std::make_shared<Moment>();
  {
    const std::lock_guard lock(event->mutex);
    event->latest = moment;
  }
  queue->put([moment] { moment->pass(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!is_event(event)) return failed(cudaErrorInvalidResourceHandle);
  if (settings().defect == Defect::done_at_once) return cudaSuccess;
  const auto moment = latest_of(event);
  return failed(moment == nullptr || moment->is_past() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  if (!is_event(begin) || !is_event(end) || !begin->has_timing || !end->has_timing)
    return failed(cudaErrorInvalidResourceHandle);
  const auto first = latest_of(begin), last = latest_of(end);
  if (first == nullptr || last == nullptr) return failed(cudaErrorInvalidResourceHandle);
  if (!first->is_past() || !last->is_past()) return failed(cudaErrorNotReady);
  *ms = static_cast<float>(1e3 * (last->at_s - first->at_s));
  return cudaSuccess;
}
