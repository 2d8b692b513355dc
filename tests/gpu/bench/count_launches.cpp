// SPDX-License-Identifier: Apache-2.0
// A library that CUDA loads into a program by itself where CUDA_INJECTION64_PATH names it: counts
// what the program asks of the driver, kernels launched and waits of the host, whoever asks for
// them. At the end FINETUNE_LAUNCHES names a file that gets "launches N" and "syncs N", as the
// simulated device writes them.
#include <cupti.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

std::atomic<long> launches, syncs;

/// What the host waits in: for a stream, an event, the device, or a copy that returns when it is
/// done.
constexpr std::string_view waiting[] = {"cuStreamSynchronize", "cuEventSynchronize",
                                        "cuCtxSynchronize", "cuMemcpyDtoH", "cuMemcpyHtoD"};

/// Calls of several versions and kinds of streams have endings: _v2, _ptsz.
bool is_wait(std::string_view name) {
  if (name.find("Async") != std::string_view::npos) return false;
  for (const std::string_view known : waiting)
    if (name.starts_with(known)) return true;
  return false;
}

void CUPTIAPI on_call(void*, CUpti_CallbackDomain domain, CUpti_CallbackId, const void* data) {
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (call.callbackSite != CUPTI_API_ENTER) return;
  const std::string_view name = call.functionName;
  if (name.starts_with("cuLaunchKernel") || name.starts_with("cuLaunchCooperativeKernel")) {
    ++launches;
  } else if (is_wait(name)) {
    ++syncs;
  }
}

void write() {
  const char* path = std::getenv("FINETUNE_LAUNCHES");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return;
  std::fprintf(file, "launches %ld\nsyncs %ld\n", launches.load(), syncs.load());
  std::fclose(file);
}

}  // namespace

/// Called by CUDA once, before the program's first call of it.
extern "C" int InitializeInjection() {
  CUpti_SubscriberHandle subscriber = nullptr;
  if (cuptiSubscribe(&subscriber, on_call, nullptr) != CUPTI_SUCCESS) return 1;
  if (cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API) != CUPTI_SUCCESS) return 1;
  std::atexit(write);
  return 1;
}
