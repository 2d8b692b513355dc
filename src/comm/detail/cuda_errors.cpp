// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/cuda_errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <utility>

#include "comm/device.hpp"
#include "comm/gpu_memory.hpp"
#include "core/error.hpp"
#include "core/host.hpp"
#include "core/text.hpp"

namespace finetune::comm {
namespace {

// Codes and words as in CUDA 12 and 13 (CUDA Runtime API, "Data types used by CUDA Runtime"). Of
// two whose words begin alike the longer one comes first.
constexpr auto errors = [] {
  using enum CudaFault;
  return std::to_array<CudaError>({
      {2, "out of memory", memory},
      {3, "initialization error", node},
      {34, "CUDA driver is a stub library", node},
      {35, "CUDA driver version is insufficient for CUDA runtime version", node},
      {36, "API call is not supported in the installed CUDA driver", node},
      {46, "CUDA-capable device(s) is/are busy or unavailable", node},
      {53, "unspecified launch failure in prior launch", device},
      {100, "no CUDA-capable device is detected", node},
      {102, "device doesn't have valid Grid license", node},
      {103, "integrity checks failed", device},
      {127, "startup failure in cuda runtime", node},
      {209, "no kernel image is available for execution on the device", foreign},
      {214, "uncorrectable ECC error encountered", device},
      {216, "exclusive-thread device already in use by a different thread", node},
      {220, "uncorrectable NVLink error detected during the execution", device},
      {222, "the provided PTX was compiled with an unsupported toolchain.", foreign},
      {226, "Invalid access of peer GPU memory over nvlink or a hardware error", device},
      {304, "OS call failed or operation not supported on this OS", node},
      {700, "an illegal memory access was encountered", device},
      {702, "the launch timed out and was terminated", device},
      {714, "hardware stack error", device},
      {715, "an illegal instruction was encountered", device},
      {716, "misaligned address", device},
      {717, "operation not supported on global/shared address space", device},
      {718, "invalid program counter", device},
      {719, "unspecified launch failure", device},
      {802, "system not yet initialized", node},
      {803, "system has unsupported display driver / cuda driver combination", node},
      {804, "forward compatibility was attempted on non supported HW", node},
      {805, "MPS client failed to connect to the MPS control daemon or the MPS server", node},
      {806, "the remote procedural call between the MPS server and the MPS client failed", node},
      {807, "MPS server is not ready to accept new MPS client requests", node},
      {808, "the hardware resources required to create MPS client have been exhausted", node},
      {809, "the hardware resources required to support device connections have been exhausted",
       node},
      {810, "the MPS client has been terminated by the server", node},
      {909, "wait operation timed out", device},
      {911, "an async error has occured in external entity outside of CUDA", device},
      {999, "unknown error", device},
      {0, "CUBLAS_STATUS_ALLOC_FAILED", memory},
      {0, "CUDNN_STATUS_ALLOC_FAILED", memory},
      {0, "CUBLAS_STATUS_ARCH_MISMATCH", foreign},
      {0, "CUDNN_STATUS_ARCH_MISMATCH", foreign},
      {0, "CUBLAS_STATUS_INVALID_VALUE", program},
      {0, "CUBLAS_STATUS_NOT_SUPPORTED", program},
      {0, "CUDNN_STATUS_BAD_PARAM", program},
      {0, "CUDNN_STATUS_NOT_SUPPORTED", program},
      {0, "CUBLAS_STATUS_", device},
      {0, "CUDNN_STATUS_", device},
      {0, "cuDNN error", device},
  });
}();

/// What follows libtorch's announcement of an error of the runtime or the driver.
std::optional<std::string_view> words_in(std::string_view text) {
  for (const std::string_view prefix : {"CUDA error: ", "CUDA driver error: "})
    if (const auto at = text.find(prefix); at != std::string_view::npos)
      return text.substr(at + prefix.size());
  return std::nullopt;
}

std::string log_of(const GpuPlace& place) {
  return fmt::format("the kernel log of {} (dmesg | grep 'NVRM: Xid') and at nvidia-smi",
                     place.host);
}

std::string remedy_of(CudaFault fault, const GpuPlace& place) {
  using enum CudaFault;
  switch (fault) {
    case memory:
      return "Use more GPUs, a smaller train.micro_batch, a shorter data.max_seq_length or "
             "train.activation_checkpointing = \"full\"; `finetune plan` says how much is needed, "
             "and nvidia-smi who else uses this GPU.";
    case device:
      return fmt::format(
          "Look at {} there. If they report errors, have the node drained and submit again without "
          "it (sbatch --exclude={}); if it happens on other nodes too, please report it.",
          log_of(place), place.host);
    case node:
      return fmt::format(
          "Look at nvidia-smi on {}: at its driver, the mode of its GPUs (exclusive, MIG, MPS) and "
          "its services (fabric manager). If another node works, submit again without this one "
          "(sbatch --exclude={}) and tell the administrator.",
          place.host, place.host);
    case foreign:
      return "Build with a libtorch that was made for this GPU (LibTorch_ROOT), or compute on "
             "CPUs: train.device = \"cpu\".";
    case program:
      break;
  }
  return "Please report it, with the log and `finetune --version`.";
}

/// Set before anything is allocated, by the thread that starts all others.
std::function<GpuMemoryAdvice()>& memory_advisor() {
  static std::function<GpuMemoryAdvice()> advisor;
  return advisor;
}

std::optional<GpuMemoryAdvice> ask_memory_advisor() {
  if (!memory_advisor()) return std::nullopt;
  try {
    return memory_advisor()();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

const char* problem_of(CudaFault fault) {
  using enum CudaFault;
  switch (fault) {
    case memory:
      return "there is not enough";
    case device:
      return "it failed";
    case node:
      return "CUDA cannot use it";
    case foreign:
      return "this libtorch has no code for it";
    case program:
      break;
  }
  return "CUDA was called wrongly";
}

}  // namespace

std::span<const CudaError> cuda_errors() {
  return errors;
}

CudaFault fault_of(int code) {
  const auto* found = std::ranges::find(errors, code, &CudaError::code);
  return code == 0 || found == errors.end() ? CudaFault::program : found->fault;
}

std::optional<CudaFault> fault_of(std::string_view text) {
  if (text.find("CUDA out of memory") != std::string_view::npos) return CudaFault::memory;
  const auto words = words_in(text);
  for (const CudaError& error : errors) {
    const bool is_it = error.code == 0 ? text.find(error.words) != std::string_view::npos
                                       : words && words->starts_with(error.words);
    if (is_it) return error.fault;
  }
  return words ? std::optional(CudaFault::program) : std::nullopt;
}

GpuPlace gpu_place() {
  return {current_gpu(), core::host_name()};
}

void advise_on_gpu_memory(std::function<GpuMemoryAdvice()> advice) {
  memory_advisor() = std::move(advice);
}

Explained explain_cuda(CudaFault fault, const std::string& what, const GpuPlace& place) {
  const std::string gpu =
      fmt::format("{} on {}", place.gpu.empty() ? "GPU" : place.gpu, place.host);
  std::string words = core::one_line(what);
  if (words.ends_with('.')) words.pop_back();
  if (const auto advice = fault == CudaFault::memory ? ask_memory_advisor() : std::nullopt)
    return {core::ErrorKind::environment,
            core::to_string({"memory of " + gpu, problem_of(fault),
                             fmt::format("{}; {}", words, advice->figures), advice->remedy})};
  return {fault == CudaFault::program ? core::ErrorKind::bug : core::ErrorKind::environment,
          core::to_string({fault == CudaFault::memory ? "memory of " + gpu : gpu, problem_of(fault),
                           words, remedy_of(fault, place)})};
}

void fail_cuda(int code, std::string_view words, std::string_view call) {
  const Explained explained =
      explain_cuda(fault_of(code), fmt::format("{}: {}", call, words), gpu_place());
  throw core::Error(explained.kind, explained.message);
}

}  // namespace finetune::comm
