#pragma once
// SPDX-License-Identifier: Apache-2.0
// Reading pieces of logical tensors from a checkpoint by interval arithmetic; no byte is handed out
// before its checksum was compared. Neither MPI nor HDF5.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/find.hpp"
#include "core/file.hpp"

namespace finetune::checkpoint {

/// Elements [first, last) of an extent, counted from its own start, and where they go.
struct ReadPart {
  const Extent* extent = nullptr;
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::byte* target = nullptr;
};

/// The parts that elements [offset, offset + count) of a tensor consist of, by offset.
/// Throws: ErrorKind::input if some are not stored; ErrorKind::bug outside the tensor.
std::vector<ReadPart> parts_of(const Found& found, std::int64_t tensor, std::int64_t offset,
                               std::int64_t count, std::byte* target);

/// The tensor that `extent` of this checkpoint is a part of.
const TensorEntry& tensor_of(const Found& found, const Extent& extent);

/// Reads parts and compares checksums; keeps the file open from which it read last.
class Reader {
 public:
  explicit Reader(const Found& found) : found_(found) {}

  /// Throws: ErrorKind::input naming file, block and tensor of a damaged block; ErrorKind::io.
  void read(const ReadPart& part);

  /// Bytes read from files so far: those asked for, and the rest of blocks at the borders.
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  const core::File& file(std::int64_t index);
  void read_blocks(const Extent& extent, std::int64_t begin, std::span<std::byte> target);

  const Found& found_;
  std::int64_t file_index_ = -1;
  std::optional<core::File> file_;
  std::vector<std::byte> border_;  ///< a block of which only a part is wanted
  std::int64_t bytes_read_ = 0;
  std::int64_t read_ahead_ = 0;  ///< position in the file up to which the system was asked to read
};

/// Fills `values` with elements of a tensor from `first_element` on, converted to fp32 (stored
/// dtype: f32, bf16, f16 or f64). Throws: ErrorKind::input if there is no such tensor or it is
/// damaged.
void read_tensor(const Found& found, std::string_view kind, std::string_view name,
                 std::int64_t first_element, std::span<float> values);

}  // namespace finetune::checkpoint
