#pragma once
// SPDX-License-Identifier: Apache-2.0
// What CUDA has for an operation, according to the libtorch that the program is built with.

#include <map>
#include <set>
#include <string>

namespace finetune::tests {

/// What the library for CUDA says of itself (cuda_library.cpp).
struct CudaLibrary {
  std::string problem;                         ///< why it could not be asked; empty: it was
  std::map<std::string, std::string> kernels;  ///< "aten::mm.out" -> "cuda", "composite" or "none"
  std::set<std::string> alerts;                ///< words of kernels: "scatter_reduce_cuda_kernel"

  bool was_asked() const { return problem.empty(); }
};
/// Asked once.
const CudaLibrary& cuda_library();

/// Whether CUDA has a kernel, or composes it of others; by libtorch's headers if the library cannot
/// be asked.
bool has_cuda_kernel(const std::string& operation);

/// Whether a kernel of the operation computes in any order, so that libtorch refuses it under
/// deterministic algorithms; by a short list if the library cannot be asked.
bool alerts_as_nondeterministic(const std::string& operation);
/// By that list.
const std::set<std::string>& known_alerts();

}  // namespace finetune::tests
