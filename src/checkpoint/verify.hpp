#pragma once
// SPDX-License-Identifier: Apache-2.0
// Reads a whole checkpoint and compares every byte with its checksum.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace finetune::checkpoint {

struct Verification {
  std::vector<std::string> problems;  ///< one sentence each; empty if all is well
  std::int64_t num_checkpoints = 0;
  std::int64_t num_tensors = 0;  ///< (kind, name) pairs
  std::int64_t bytes = 0;        ///< read and compared
};

/// Verifies the checkpoint folder `path`, or all checkpoints in `path`: manifest and state, sizes,
/// every element of every tensor exactly once, every byte of every file. Goes on after a problem.
/// Without MPI and HDF5. A path without checkpoints is a problem.
Verification verify(const std::filesystem::path& path);

}  // namespace finetune::checkpoint
