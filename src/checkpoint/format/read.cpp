// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/read.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/hash.hpp"

namespace finetune::checkpoint {

namespace {

constexpr std::int64_t largest_read_bytes = std::int64_t{1} << 20;
constexpr std::int64_t bytes_ahead = std::int64_t{8} << 20;

void check_block(const FoundCheckpoint& found, const Extent& extent, std::int64_t block,
                 std::span<const std::byte> bytes) {
  const std::uint32_t expected = extent.crc32c[static_cast<std::size_t>(block)];
  const std::uint32_t actual = core::crc32c(bytes);
  if (actual == expected) return;
  const TensorEntry& tensor = found.manifest.tensor_of(extent);
  const auto& file = found.manifest.files[static_cast<std::size_t>(extent.file)];
  core::fail(core::ErrorKind::input,
             {(found.folder / file.name).string(),
              fmt::format("block {} of {} {} from element {} on is damaged", block, tensor.kind,
                          tensor.name, found.manifest.first_element(extent)),
              fmt::format("its CRC32C is {:08x}, the manifest says {:08x}", actual, expected),
              "Remove this checkpoint folder or restore it from a copy."});
}

/// The parts that lie in one box. `target` is the place of element `slice.offset` of the wanted
/// box.
void add_parts(const Manifest& manifest, const BoxEntry& box, const Overlap& overlap,
               const core::TensorSlice& slice, std::byte* target, std::vector<ReadPart>& parts) {
  std::int64_t first = overlap.before_wanted(slice.offset);
  const std::int64_t last = overlap.before_wanted(slice.offset + slice.count);
  if (first == last) return;
  const auto extents = manifest.extents_of(box);
  auto extent = std::ranges::upper_bound(extents, overlap.stored(first), {}, &Extent::offset) - 1;
  for (; first < last; ++extent) {
    const std::int64_t end = overlap.before_stored(extent->offset + extent->count);
    const std::int64_t next = std::min(end, last);
    if (next == first) continue;
    const std::int64_t element_bytes = core::size_bytes(manifest.tensor_of(*extent).dtype);
    const std::int64_t distance = overlap.wanted(first) - slice.offset;
    parts.push_back({&*extent, overlap, first, next, target + distance * element_bytes});
    first = next;
  }
}

/// Copies elements [first, last) of `part` to their places, out of bytes of the extent that begin
/// with byte `begin`.
void copy_rows(const ReadPart& part, std::int64_t first, std::int64_t last,
               std::int64_t element_bytes, const std::byte* bytes, std::int64_t begin) {
  const std::int64_t origin = part.overlap.wanted(part.first);
  part.overlap.for_each_rows(first, last, [&](const Rows& rows) {
    const std::byte* from = bytes + (rows.stored - part.extent->offset) * element_bytes - begin;
    std::byte* to = part.target + (rows.wanted - origin) * element_bytes;
    for (std::int64_t i = 0; i < rows.num; ++i) {
      std::memcpy(to + i * rows.wanted_step * element_bytes,
                  from + i * rows.stored_step * element_bytes,
                  static_cast<std::size_t>(rows.length * element_bytes));
    }
  });
}

}  // namespace

std::vector<ReadPart> parts_of(const FoundCheckpoint& found, std::int64_t tensor,
                               const core::TensorSlice& slice, std::byte* target) {
  const TensorEntry& entry = found.manifest.tensors[static_cast<std::size_t>(tensor)];
  const core::Box wanted = slice.box_or_whole();
  core::check(core::is_inside(wanted, entry.shape) && slice.offset >= 0 && slice.count >= 0 &&
                  slice.count <= wanted.num_elements() - slice.offset,
              "the elements wanted lie inside the tensor");
  std::vector<ReadPart> parts;
  for (const BoxEntry& box : found.manifest.boxes_of(tensor))
    add_parts(found.manifest, box, Overlap(box.box, wanted), slice, target, parts);
  std::int64_t elements = 0;
  for (const ReadPart& part : parts)
    elements += part.last - part.first;
  core::check(elements == slice.count, "a manifest holds every element of its tensors");
  return parts;
}

const core::File& PartReader::file(std::int64_t index) {
  if (index != file_index_) {
    file_.reset();
    const FileEntry& entry = found_.manifest.files[static_cast<std::size_t>(index)];
    file_.emplace(found_.folder / entry.name, core::File::Mode::read_no_link);
    file_index_ = index;
    read_ahead_ = 0;
  }
  return *file_;
}

void PartReader::read(const ReadPart& part, std::int64_t first, std::int64_t last) {
  if (!part.overlap.is_run(first, last)) return read_rows(part, first, last);
  const std::int64_t in_extent = part.in_extent(first);
  const std::int64_t bytes = part.bytes_to(first, found_.manifest.tensor_of(*part.extent).dtype);
  read_run(*part.extent, in_extent, in_extent + last - first, part.target + bytes);
}

void PartReader::read_run(const Extent& extent, std::int64_t first, std::int64_t last,
                          std::byte* target) {
  const std::int64_t element_bytes = core::size_bytes(found_.manifest.tensor_of(extent).dtype);
  const std::int64_t extent_bytes = found_.manifest.extent_bytes(extent);
  const std::int64_t block_bytes = found_.manifest.block_bytes;
  const std::int64_t end = last * element_bytes;
  std::int64_t begin = first * element_bytes;
  while (begin < end) {
    const std::int64_t block_begin = begin - begin % block_bytes;
    const std::int64_t block_end = std::min(block_begin + block_bytes, extent_bytes);
    std::int64_t n = std::min(block_end, end) - begin;
    if (begin == block_begin && block_end <= end) {
      // Whole blocks go straight to their place, several with one read.
      const std::int64_t most =
          std::max(block_bytes, largest_read_bytes - largest_read_bytes % block_bytes);
      n = std::min(most, end - begin);
      if (begin + n != extent_bytes) n -= n % block_bytes;
      read_blocks(extent, begin, {target, static_cast<std::size_t>(n)});
    } else {
      border_.resize(static_cast<std::size_t>(block_end - block_begin));
      read_blocks(extent, block_begin, border_);
      std::memcpy(target, border_.data() + (begin - block_begin), static_cast<std::size_t>(n));
    }
    begin += n;
    target += n;
  }
}

/// Whole blocks at a time, those without a wanted element left out; rows are copied out of them.
void PartReader::read_rows(const ReadPart& part, std::int64_t first, std::int64_t last) {
  const Extent& extent = *part.extent;
  const std::int64_t element_bytes = core::size_bytes(found_.manifest.tensor_of(extent).dtype);
  const std::int64_t block_bytes = found_.manifest.block_bytes;
  while (first < last) {
    const std::int64_t position = part.in_extent(first) * element_bytes;
    const std::int64_t begin = position - position % block_bytes;
    const std::int64_t end = end_of_piece(part, begin, first, last);
    border_.resize(static_cast<std::size_t>(end - begin));
    read_blocks(extent, begin, border_);
    const std::int64_t next = std::min(part.before(end / element_bytes), last);
    copy_rows(part, first, next, element_bytes, border_.data(), begin);
    first = next;
  }
}

/// The end of the bytes of the extent to be read at once from `begin` on: blocks that follow each
/// other, each with one of the elements [first, last).
std::int64_t PartReader::end_of_piece(const ReadPart& part, std::int64_t begin, std::int64_t first,
                                      std::int64_t last) const {
  const std::int64_t element_bytes =
      core::size_bytes(found_.manifest.tensor_of(*part.extent).dtype);
  const std::int64_t block_bytes = found_.manifest.block_bytes;
  std::int64_t end = begin;
  do {
    end += block_bytes;
    first = part.before(end / element_bytes);
  } while (first < last && end + block_bytes <= begin + largest_read_bytes &&
           part.in_extent(first) * element_bytes < end + block_bytes);
  return std::min(end, found_.manifest.extent_bytes(*part.extent));
}

void PartReader::read_blocks(const Extent& extent, std::int64_t begin,
                             std::span<std::byte> target) {
  core::fault::hit("load.read", found_.folder.native());
  const core::File& file = this->file(extent.file);
  // The disk fetches what comes next while checksums are compared.
  const std::int64_t end = extent.position + begin + std::ssize(target);
  if (end + largest_read_bytes > read_ahead_) {
    ::posix_fadvise(file.descriptor(), end, bytes_ahead, POSIX_FADV_WILLNEED);
    read_ahead_ = end + bytes_ahead;
  }
  file.read_at(extent.position + begin, target);
  bytes_read_ += std::ssize(target);
  const auto block_bytes = static_cast<std::size_t>(found_.manifest.block_bytes);
  std::int64_t block = begin / found_.manifest.block_bytes;
  while (!target.empty()) {
    const auto bytes = target.first(std::min(target.size(), block_bytes));
    check_block(found_, extent, block++, bytes);
    target = target.subspan(bytes.size());
  }
}

void read_tensor(const FoundCheckpoint& found, std::string_view kind, std::string_view name,
                 std::int64_t first_element, std::span<float> values) {
  const std::int64_t tensor = found.manifest.find(kind, name);
  if (tensor < 0) {
    core::fail(core::ErrorKind::input,
               {found.folder.string(), fmt::format("it holds no {} {}", kind, name),
                "the checkpoint is of another model", "Name a checkpoint of this model."});
  }
  const TensorEntry& entry = found.manifest.tensors[static_cast<std::size_t>(tensor)];
  const core::TensorSlice slice{entry.name, entry.shape, entry.dtype, first_element,
                                std::ssize(values)};
  std::vector<std::byte> stored(static_cast<std::size_t>(slice.size_bytes()));
  PartReader reader(found);
  for (const ReadPart& part : parts_of(found, tensor, slice, stored.data()))
    reader.read(part);
  core::convert(entry.dtype, stored, core::DType::f32, std::as_writable_bytes(values));
}

}  // namespace finetune::checkpoint
