// SPDX-License-Identifier: Apache-2.0
#include "hdf5/detail/memory.hpp"

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include <algorithm>
#include <cstring>
#include <new>

namespace finetune::hdf5 {
namespace {

/// What HDF5 holds a pointer to; its own part comes first.
struct MemoryFile {
  H5FD_t hdf5 = {};
  SparseImage* image = nullptr;
  haddr_t allocated = 0;  ///< HDF5's "end of allocation"
};

// A file address is signed in HDF5's own drivers; one bit less leaves room for sums.
constexpr haddr_t largest_address = (haddr_t{1} << 62) - 1;

MemoryFile& file_of(H5FD_t* file) {
  return *reinterpret_cast<MemoryFile*>(file);
}

const MemoryFile& file_of(const H5FD_t* file) {
  return *reinterpret_cast<const MemoryFile*>(file);
}

H5FD_t* open_file(const char*, unsigned, hid_t access_list, haddr_t) {
  const void* info = H5Pget_driver_info(access_list);
  if (info == nullptr) return nullptr;
  auto* file = new (std::nothrow) MemoryFile;
  if (file == nullptr) return nullptr;
  std::memcpy(&file->image, info, sizeof(file->image));
  return &file->hdf5;
}

herr_t close_file(H5FD_t* file) {
  delete &file_of(file);
  return 0;
}

herr_t query(const H5FD_t*, unsigned long* flags) {
  *flags =
      H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA;
#ifdef H5FD_FEAT_DEFAULT_VFD_COMPATIBLE
  *flags |= H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
#endif
  return 0;
}

haddr_t get_allocated(const H5FD_t* file, H5FD_mem_t) {
  return file_of(file).allocated;
}

herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  file_of(file).allocated = address;
  return 0;
}

haddr_t get_end(const H5FD_t* file, H5FD_mem_t) {
  return file_of(file).image->size_bytes;
}

herr_t read_bytes(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t position, size_t count, void* target) {
  file_of(file).image->read(position, static_cast<std::byte*>(target), count);
  return 0;
}

herr_t write_bytes(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t position, size_t count,
                   const void* source) {
  try {
    file_of(file).image->write(position, static_cast<const std::byte*>(source), count);
    return 0;
  } catch (const std::bad_alloc&) {
    return -1;  // no exception may pass through C
  }
}

/// HDF5 calls this last, when it knows how long the file is.
herr_t truncate_file(H5FD_t* file, hid_t, hbool_t) {
  file_of(file).image->size_bytes = file_of(file).allocated;
  return 0;
}

/// The table of functions; those left out do nothing or are never asked for.
H5FD_class_t driver_class() {
  H5FD_class_t driver = {};
#if H5_VERSION_GE(1, 13, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value =
      static_cast<H5FD_class_value_t>(511);  // 256 to 511 are not registered; never stored
#endif
  driver.name = "finetune_memory";
  driver.maxaddr = largest_address;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(SparseImage*);
  driver.open = open_file;
  driver.close = close_file;
  driver.query = query;
  driver.get_eoa = get_allocated;
  driver.set_eoa = set_allocated;
  driver.get_eof = get_end;
  driver.read = read_bytes;
  driver.write = write_bytes;
  driver.truncate = truncate_file;
  const H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(map), std::end(map), std::begin(driver.fl_map));
  return driver;
}

}  // namespace

void SparseImage::write(std::uint64_t position, const std::byte* source, std::size_t count) {
  size_bytes = std::max(size_bytes, position + count);
  while (count > 0) {
    const std::uint64_t offset = position % page_bytes;
    const std::size_t n = std::min<std::size_t>(count, page_bytes - offset);
    auto& page = pages[position - offset];
    page.resize(page_bytes);
    std::memcpy(page.data() + offset, source, n);
    position += n;
    source += n;
    count -= n;
  }
}

void SparseImage::read(std::uint64_t position, std::byte* target, std::size_t count) const {
  while (count > 0) {
    const std::uint64_t offset = position % page_bytes;
    const std::size_t n = std::min<std::size_t>(count, page_bytes - offset);
    const auto page = pages.find(position - offset);
    if (page == pages.end()) {
      std::memset(target, 0, n);
    } else {
      std::memcpy(target, page->second.data() + offset, n);
    }
    position += n;
    target += n;
    count -= n;
  }
}

hid_t register_memory_driver() {
  // HDF5 1.10 keeps a copy, later ones as well.
  const H5FD_class_t driver = driver_class();
  return H5FDregister(&driver);
}

herr_t use_memory_driver(hid_t access_list, hid_t driver, SparseImage* image) {
  return H5Pset_driver(access_list, driver, static_cast<const void*>(&image));
}

}  // namespace finetune::hdf5
