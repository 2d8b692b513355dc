#pragma once
// SPDX-License-Identifier: Apache-2.0
// HDF5 is called in this folder only: the bytes of a file with all its datasets but without their
// data. No file is touched, because HDF5 does not survive one that cannot be written.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/dtype.hpp"

namespace finetune::hdf5 {

struct Attribute {
  std::string name;
  std::variant<std::string, std::vector<std::int64_t>> value;
};

/// One dimension of `count` elements at `path`, "/group/name"; its groups are made too.
struct DatasetShape {
  std::string path;
  core::DType dtype = core::DType::f32;
  std::int64_t count = 0;  ///< at least 1
  std::vector<Attribute> attributes = {};

  std::int64_t size_bytes() const { return count * core::size_bytes(dtype); }
};

/// Lustre and GPFS like large data to start at a stripe or block boundary. Aligning only what is at
/// least four times as large keeps the padding below a quarter in the worst case.
inline constexpr std::int64_t alignment_bytes = std::int64_t{1} << 20;

struct Skeleton {
  std::vector<std::int64_t> positions;  ///< first byte of each dataset in the file
  std::int64_t size_bytes = 0;          ///< of the whole file
  /// All that is not zero, by position in the file.
  std::map<std::int64_t, std::vector<std::byte>> metadata;
};

/// Lays out a file with space for every dataset: contiguous, unfiltered, never filled; those of
/// 4 * alignment_bytes and more begin at a multiple of it. The result depends on `datasets` alone.
/// Whoever makes the file writes `metadata` and, at `positions`, the data, without HDF5.
///
/// Main thread only: HDF5 as distributions build it is not thread-safe.
/// Throws: ErrorKind::io with HDF5's reason; ErrorKind::bug off the main thread.
Skeleton make_skeleton(std::span<const DatasetShape> datasets);

}  // namespace finetune::hdf5
