#pragma once
// SPDX-License-Identifier: Apache-2.0
// A file driver for HDF5 that keeps in memory what is written, and nothing
// for the rest. A file of any size costs no more than its metadata.

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace finetune::hdf5 {

/// The content of a file; bytes in no page are zero.
struct SparseImage {
  static constexpr std::uint64_t page_bytes = 4096;

  std::map<std::uint64_t, std::vector<std::byte>> pages;  ///< by first byte
  std::uint64_t size_bytes = 0;                           ///< once HDF5 has closed the file

  /// Both throw std::bad_alloc only.
  void write(std::uint64_t position, const std::byte* source, std::size_t count);
  void read(std::uint64_t position, std::byte* target, std::size_t count) const;
};

/// Registers the driver; the id is given back with H5FDunregister. Negative if HDF5 refuses.
hid_t register_memory_driver();

/// Makes files that are opened with the access list write into `image`. Negative on failure.
herr_t use_memory_driver(hid_t access_list, hid_t driver, SparseImage* image);

}  // namespace finetune::hdf5
