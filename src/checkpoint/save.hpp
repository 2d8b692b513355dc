#pragma once
// SPDX-License-Identifier: Apache-2.0
// Saving: slices in memory become a checkpoint folder, whole or not at all.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/layout.hpp"
#include "comm/communicator.hpp"
#include "core/json.hpp"
#include "core/tensor_slice.hpp"

namespace finetune::checkpoint {

/// Elements of a logical tensor in this rank's memory, to be saved.
struct StoredSlice {
  std::string kind;  ///< "param", "exp_avg", ...: tells states of one tensor apart
  core::TensorSlice slice;
  const std::byte* data = nullptr;  ///< slice.size_bytes() bytes
};

struct SaveOptions {
  Files files = Files::node;
  /// Bytes a checksum covers, and so the least a reader reads; a multiple of 8.
  std::int64_t block_bytes = std::int64_t{1} << 20;
};

struct SaveReport {
  std::filesystem::path folder;
  std::int64_t payload_bytes = 0;  ///< of all ranks
  double total_s = 0;
  double blocked_s = 0;  ///< during which the caller's data had to stay as they are

  double gb_per_s() const { return total_s > 0 ? 1e-9 * double(payload_bytes) / total_s : 0; }
};

/// Writes the checkpoint `root`/step-NNNNNNNNNN. Together the ranks pass every element of every
/// tensor exactly once (replicas divide a tensor among them, or one of them passes it); a slice of
/// no elements only says that the tensor exists. `state` is the root's; what the others pass is
/// ignored. `node` holds the ranks that share a file, `node_index` is that file's number.
///
/// When it returns, the checkpoint is on disk and will be found. When it throws, every rank throws,
/// the temporary folder is gone and older checkpoints are untouched.
///
/// Collective on `world`, on its main threads (HDF5).
/// Throws: AgreedError of kind create or io with the reason; bug for slices that overlap or leave
/// something out.
SaveReport save(const comm::Communicator& world, const comm::Communicator& node, int node_index,
                const std::filesystem::path& root, std::int64_t step, const core::Json& state,
                std::span<const StoredSlice> slices, const SaveOptions& options = {});

}  // namespace finetune::checkpoint
