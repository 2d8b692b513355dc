#pragma once
// SPDX-License-Identifier: Apache-2.0
// MANIFEST.json: which elements of which tensors lie where, with a checksum of every byte. It is
// written last, so its presence makes a folder a checkpoint. README.md describes the fields.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "core/error.hpp"
#include "core/tensor_slice.hpp"

namespace finetune::checkpoint {

struct FileEntry {
  std::string name;
  std::int64_t size_bytes = 0;
  std::uint32_t skeleton_crc32c = 0;  ///< of all bytes outside the slices, in file order
};

struct TensorEntry {
  std::string kind;
  std::string name;
  core::DType dtype = core::DType::f32;
  std::vector<std::int64_t> shape;

  std::int64_t num_elements() const;
};

/// A part of a tensor that is stored in runs of its own: the whole, or what one rank of an axis
/// that splits the tensor holds.
struct BoxEntry {
  std::int64_t tensor = 0;  ///< index into Manifest::tensors
  core::Box box;            ///< with at least one element
};

/// Where elements [offset, offset + count) of a box lie.
struct Extent {
  std::int64_t box = 0;               ///< index into Manifest::boxes
  std::int64_t file = 0;              ///< index into Manifest::files
  std::int64_t offset = 0;            ///< first element in the row-major order of the box
  std::int64_t count = 0;             ///< elements, at least 1
  std::int64_t position = 0;          ///< first byte in the file
  std::vector<std::uint32_t> crc32c;  ///< one per Manifest::block_bytes; the last is shorter
};

struct Manifest {
  std::int64_t step = 0;
  std::int64_t world_size = 1;  ///< ranks that wrote it
  std::int64_t block_bytes = 0;
  std::string created_by;
  std::int64_t state_bytes = 0;
  std::string state_fingerprint;
  std::vector<FileEntry> files;      ///< by name
  std::vector<TensorEntry> tensors;  ///< by kind, then name
  std::vector<BoxEntry> boxes;       ///< by tensor, then begin; every element exactly once
  std::vector<Extent> extents;       ///< by box, then offset; every element exactly once

  /// Index of a tensor, -1 if it is not stored.
  std::int64_t find(std::string_view kind, std::string_view name) const;

  /// The boxes of one tensor, by begin.
  std::span<const BoxEntry> boxes_of(std::int64_t tensor) const;

  /// The extents of one of `boxes`, by offset.
  std::span<const Extent> extents_of(const BoxEntry& box) const;

  const BoxEntry& box_of(const Extent& extent) const;
  const TensorEntry& tensor_of(const Extent& extent) const;
  std::int64_t extent_bytes(const Extent& extent) const;

  /// The element of its tensor, in row-major order, that is element `i` of `box`.
  std::int64_t element_of(const BoxEntry& box, std::int64_t i) const;
  std::int64_t first_element(const Extent& extent) const;

  /// Bytes of all tensors.
  std::int64_t payload_bytes() const;
};

/// Largest MANIFEST.json that is read.
inline constexpr std::int64_t largest_manifest_bytes = std::int64_t{256} << 20;
inline constexpr std::int64_t smallest_block_bytes = 64;
inline constexpr std::int64_t largest_block_bytes = std::int64_t{64} << 20;

/// Throws `kind`, naming `where`, for the first thing that does not hold: order, names, sizes,
/// arithmetic overflow, boxes or extents that leave out an element or hold it twice, overlapping
/// bytes, missing checksums.
void validate(const Manifest& manifest, const std::string& where, core::ErrorKind kind);

/// The JSON text, its own fingerprint last.
std::string to_text(const Manifest& manifest);

/// Checks the fingerprint, then reads strictly: every field of its format version once and no
/// other, integers only. In version 1 every tensor is one box. Memory is proportional to the text.
/// The result is validated.
/// Throws: ErrorKind::input naming `where`.
Manifest parse_manifest(std::string_view text, const std::string& where);

}  // namespace finetune::checkpoint
