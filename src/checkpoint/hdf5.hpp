#pragma once
// SPDX-License-Identifier: Apache-2.0
// The only caller of HDF5: makes a file with all its datasets but without their data.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
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
  std::int64_t size_bytes = 0;
};

/// Creates `file`, which must not exist, with space for every dataset: contiguous, unfiltered,
/// never filled. The bytes of the file depend on `datasets` alone. Whoever fills in the data writes
/// at the positions returned, without HDF5.
///
/// Main thread only: HDF5 as distributions build it is not thread-safe.
/// Throws: ErrorKind::create or io with HDF5's reason; ErrorKind::bug off the main thread.
Skeleton create_skeleton(const std::filesystem::path& file, std::span<const Dataset> datasets);

}  // namespace finetune::checkpoint
