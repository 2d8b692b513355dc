#pragma once
// SPDX-License-Identifier: Apache-2.0
// What ranks send each other during a save.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/detail/manifest.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/communicator.hpp"
#include "core/tensor_slice.hpp"

namespace finetune::checkpoint {

/// Becomes the HDF5 dataset /<kind>/<tensor name>/<offset>; of a box, <begin>+<offset>.
struct DatasetSlice {
  std::string kind;
  core::TensorSlice slice;  ///< count >= 1
};

/// Datasets of all ranks of a group, by rank, in the order each rank passed its slices.
struct GroupDatasets {
  std::vector<DatasetSlice> datasets;
  std::size_t first_own = 0;  ///< index of this rank's first
};

/// Slices without elements are left out. Collective on `group`.
GroupDatasets gather_datasets(const comm::Communicator& group, std::span<const StoredSlice> slices);

/// A slice of this rank once it is written.
struct SliceRecord {
  std::string kind;
  core::TensorSlice slice;
  std::int64_t position = 0;
  std::vector<std::uint32_t> crc32c;
};

/// What one rank has to say for the manifest: the file it made, if it made one, and its slices.
std::string to_record(const std::optional<FileEntry>& file, const std::string& file_name,
                      const std::vector<SliceRecord>& slices);

/// Fills in the files, tensors, boxes and extents of `manifest` from the records of all ranks.
/// Throws: ErrorKind::bug if ranks disagree about a tensor.
void add_records(Manifest& manifest, const std::vector<std::string>& records);

}  // namespace finetune::checkpoint
