#pragma once
// SPDX-License-Identifier: Apache-2.0
// What an error of CUDA and its libraries is to a user: whose fault, and what to do.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/detail/explained.hpp"

namespace finetune::comm {

/// Whose fault an error is.
enum class CudaFault {
  memory,   ///< the GPU's memory is used up
  device,   ///< the GPU failed, or what ran on it: the node's kernel log knows more
  node,     ///< the driver, a service of the node or the mode of the GPU
  foreign,  ///< libtorch has no code for this GPU
  program   ///< CUDA was called wrongly
};

/// An error of CUDA's runtime (cudaError_t) in its own words, or the name of a library's status.
struct CudaError {
  int code = 0;  ///< 0: of a library
  std::string_view words;
  CudaFault fault = CudaFault::program;
};
/// Those that are not the program's fault, and what of the libraries is.
std::span<const CudaError> cuda_errors();

/// Of an error code that CUDA's runtime returned.
CudaFault fault_of(int code);
/// Of what libtorch says; nothing if it does not speak of the GPU.
std::optional<CudaFault> fault_of(std::string_view text);

/// Where an error happened.
struct GpuPlace {
  std::string gpu;   ///< "GPU 2 (GPU-1b2c...)"; empty: not chosen yet
  std::string host;  ///< name of the node
};
/// That of this rank.
GpuPlace gpu_place();

/// For the user. `what`: the library's words, and in which call if that is known. For a lack of
/// memory, what `advise_on_gpu_memory` was given is asked.
Explained explain_cuda(CudaFault fault, const std::string& what, const GpuPlace& place);

/// Throws what CUDA's runtime returned from `call`, with `words` of its own, at gpu_place().
[[noreturn]] void fail_cuda(int code, std::string_view words, std::string_view call);

}  // namespace finetune::comm
