// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/read.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/hash.hpp"

namespace finetune::checkpoint {

const TensorEntry& tensor_of(const Found& found, const Extent& extent) {
  return found.manifest.tensors[static_cast<std::size_t>(extent.tensor)];
}

namespace {

constexpr std::int64_t largest_read_bytes = std::int64_t{1} << 20;
constexpr std::int64_t bytes_ahead = std::int64_t{8} << 20;

void check_block(const Found& found, const Extent& extent, std::int64_t block,
                 std::span<const std::byte> bytes) {
  const std::uint32_t expected = extent.crc32c[static_cast<std::size_t>(block)];
  const std::uint32_t actual = core::crc32c(bytes);
  if (actual == expected) return;
  const TensorEntry& tensor = tensor_of(found, extent);
  const auto& file = found.manifest.files[static_cast<std::size_t>(extent.file)];
  core::fail(core::ErrorKind::input,
             {(found.folder / file.name).string(),
              fmt::format("block {} of {} {} from element {} on is damaged", block, tensor.kind,
                          tensor.name, extent.offset),
              fmt::format("its CRC32C is {:08x}, the manifest says {:08x}", actual, expected),
              "Remove this checkpoint folder or restore it from a copy."});
}

}  // namespace

std::vector<ReadPart> parts_of(const Found& found, std::int64_t tensor, std::int64_t offset,
                               std::int64_t count, std::byte* target) {
  const TensorEntry& entry = found.manifest.tensors[static_cast<std::size_t>(tensor)];
  core::check(offset >= 0 && count >= 0 && count <= entry.num_elements() - offset,
              "the elements wanted lie inside the tensor");
  const std::int64_t element_bytes = core::size_bytes(entry.dtype);
  const auto extents = found.manifest.extents_of(tensor);
  std::vector<ReadPart> parts;
  std::int64_t next = offset;
  const std::int64_t end = offset + count;
  auto extent = std::ranges::upper_bound(extents, offset, {}, &Extent::offset);
  if (extent != extents.begin()) --extent;
  for (; next < end && extent != extents.end(); ++extent) {
    const std::int64_t first = next - extent->offset;
    const std::int64_t last = std::min(end - extent->offset, extent->count);
    if (first < 0 || first >= last) break;
    parts.push_back({&*extent, first, last, target + (next - offset) * element_bytes});
    next = extent->offset + last;
  }
  if (next < end) {
    core::fail(core::ErrorKind::input,
               {found.folder.string(),
                fmt::format("element {} of {} {} is missing", next, entry.kind, entry.name),
                "the slices do not cover the tensor", "Use another checkpoint."});
  }
  return parts;
}

const core::File& Reader::file(std::int64_t index) {
  if (index != file_index_) {
    file_.reset();
    const FileEntry& entry = found_.manifest.files[static_cast<std::size_t>(index)];
    file_.emplace(found_.folder / entry.name, core::File::Mode::read_no_link);
    file_index_ = index;
    read_ahead_ = 0;
  }
  return *file_;
}

void Reader::read(const ReadPart& part) {
  const Extent& extent = *part.extent;
  const std::int64_t element_bytes = core::size_bytes(tensor_of(found_, extent).dtype);
  const std::int64_t extent_bytes = found_.manifest.extent_bytes(extent);
  const std::int64_t block_bytes = found_.manifest.block_bytes;
  const std::int64_t end = part.last * element_bytes;
  std::int64_t begin = part.first * element_bytes;
  std::byte* target = part.target;
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

void Reader::read_blocks(const Extent& extent, std::int64_t begin, std::span<std::byte> target) {
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

void read_tensor(const Found& found, std::string_view kind, std::string_view name,
                 std::int64_t first_element, std::span<float> values) {
  const std::int64_t tensor = found.manifest.find(kind, name);
  if (tensor < 0) {
    core::fail(core::ErrorKind::input,
               {found.folder.string(), fmt::format("it holds no {} {}", kind, name),
                "the checkpoint is of another model", "Name a checkpoint of this model."});
  }
  const core::DType dtype = found.manifest.tensors[static_cast<std::size_t>(tensor)].dtype;
  const std::int64_t count = std::ssize(values);
  std::vector<std::byte> stored(static_cast<std::size_t>(count * core::size_bytes(dtype)));
  Reader reader(found);
  for (const ReadPart& part : parts_of(found, tensor, first_element, count, stored.data()))
    reader.read(part);
  core::convert(dtype, stored, core::DType::f32, std::as_writable_bytes(values));
}

}  // namespace finetune::checkpoint
