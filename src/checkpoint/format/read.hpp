#pragma once
// SPDX-License-Identifier: Apache-2.0
// Reading pieces of logical tensors from a checkpoint by arithmetic of boxes and intervals; no byte
// is handed out before its checksum was compared. Neither MPI nor HDF5.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/format/detail/overlap.hpp"
#include "checkpoint/load/find.hpp"
#include "core/file.hpp"

namespace finetune::checkpoint {

/// Elements [first, last), at least one, of what a stored box and a wanted one have in common, all
/// of them in one extent of the stored box, and where they go.
struct ReadPart {
  const Extent* extent = nullptr;
  Overlap overlap;
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::byte* target = nullptr;  ///< of element `first`; the others as far from it as is wanted

  /// Bytes from `target` to the place of element `i`, where elements are of `dtype`.
  std::int64_t bytes_to(std::int64_t i, core::DType dtype) const {
    return (overlap.wanted(i) - overlap.wanted(first)) * core::size_bytes(dtype);
  }
  /// Element `i` as an element of the extent.
  std::int64_t in_extent(std::int64_t i) const { return overlap.stored(i) - extent->offset; }
  /// Elements of the overlap that come before element `i` of the extent, at most `last`.
  std::int64_t before(std::int64_t i) const {
    return std::min(overlap.before_stored(extent->offset + i), last);
  }
};

/// The parts that a slice of stored tensor `tensor` consists of; its dtype is the stored one, and
/// its first element goes to `target`. Throws: ErrorKind::bug outside the tensor.
std::vector<ReadPart> parts_of(const FoundCheckpoint& found, std::int64_t tensor,
                               const core::TensorSlice& slice, std::byte* target);

/// Reads parts and compares checksums; keeps the file open from which it read last.
class PartReader {
 public:
  explicit PartReader(const FoundCheckpoint& found) : found_(found) {}

  /// Elements [first, last) of what `part` has, at least one, to their places.
  /// Throws: ErrorKind::input naming file, block and tensor of a damaged block; ErrorKind::io.
  void read(const ReadPart& part, std::int64_t first, std::int64_t last);
  void read(const ReadPart& part) { read(part, part.first, part.last); }

  /// Elements [first, last) of an extent, counted from its own start. Throws: as read.
  void read_run(const Extent& extent, std::int64_t first, std::int64_t last, std::byte* target);

  /// Bytes read from files so far: those asked for, and the rest of blocks at the borders.
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  void read_rows(const ReadPart& part, std::int64_t first, std::int64_t last);
  std::int64_t end_of_piece(const ReadPart& part, std::int64_t begin, std::int64_t first,
                            std::int64_t last) const;
  const core::File& file(std::int64_t index);
  void read_blocks(const Extent& extent, std::int64_t begin, std::span<std::byte> target);

  const FoundCheckpoint& found_;
  std::int64_t file_index_ = -1;
  std::optional<core::File> file_;
  std::vector<std::byte> border_;  ///< blocks of which only a part is wanted
  std::int64_t bytes_read_ = 0;
  std::int64_t read_ahead_ = 0;  ///< position in the file up to which the system was asked to read
};

/// Fills `values` with elements of a tensor from `first_element` on, converted to fp32 (stored
/// dtype: f32, bf16, f16 or f64). Throws: ErrorKind::input if there is no such tensor or it is
/// damaged.
void read_tensor(const FoundCheckpoint& found, std::string_view kind, std::string_view name,
                 std::int64_t first_element, std::span<float> values);

}  // namespace finetune::checkpoint
