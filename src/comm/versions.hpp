#pragma once
// SPDX-License-Identifier: Apache-2.0
// Which MPI and NCCL this process talks through.

#include <string>

namespace finetune::comm {

/// The first line of the MPI library's version text.
std::string mpi_version();

/// "2.28.3"; empty in a build without CUDA.
std::string nccl_version();

}  // namespace finetune::comm
