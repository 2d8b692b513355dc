#pragma once
// SPDX-License-Identifier: Apache-2.0
// HDF5 is called here and in hdf5_memory.cpp only: the bytes of a file with all its datasets but
// without their data. No file is touched, because HDF5 does not survive one that cannot be written.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/tensor_slice.hpp"

namespace finetune::checkpoint {

/// Becomes the dataset /<kind>/<tensor name>/<offset> of `count` elements.
struct Dataset {
  std::string kind;
  core::TensorSlice slice;  ///< count >= 1
};

struct Skeleton {
  std::vector<std::int64_t> positions;  ///< first byte of each dataset in the file
  std::int64_t size_bytes = 0;          ///< of the whole file
  /// All that is not zero, by position in the file.
  std::map<std::int64_t, std::vector<std::byte>> metadata;
};

/// Lays out a file with space for every dataset: contiguous, unfiltered, never filled. The result
/// depends on `datasets` alone. Whoever makes the file writes `metadata` and, at `positions`, the
/// data, without HDF5.
///
/// Main thread only: HDF5 as distributions build it is not thread-safe.
/// Throws: ErrorKind::io with HDF5's reason; ErrorKind::bug off the main thread.
Skeleton make_skeleton(std::span<const Dataset> datasets);

}  // namespace finetune::checkpoint
