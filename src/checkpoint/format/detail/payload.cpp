// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/detail/payload.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

using Metadata = std::map<std::int64_t, std::vector<std::byte>>;

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

/// Calls `f(block, bytes)` for each block of a payload.
template <typename F>
void for_each_block(const Payload& payload, std::int64_t block_bytes, F&& f) {
  const std::int64_t size = std::ssize(payload.bytes);
  for (std::int64_t begin = 0, block = 0; begin < size; begin += block_bytes, ++block) {
    f(block, payload.bytes.subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(std::min(block_bytes, size - begin))));
  }
}

/// Takes the space of the whole file, so that a full disk is noticed before most of it is written.
void allocate(const core::File& file, std::int64_t bytes) {
  bool is_done = ::ftruncate(file.descriptor(), bytes) == 0;
  if (is_done && bytes > 0) is_done = ::fallocate(file.descriptor(), 0, 0, bytes) == 0;
  // Some file systems cannot take space in advance; the writes will tell there.
  if (is_done || errno == EOPNOTSUPP || errno == ENOSYS) return;
  core::fail(core::ErrorKind::io,
             {file.path().string(), fmt::format("{} cannot be allocated", core::human_bytes(bytes)),
              core::system_reason(),
              core::remedy_for_space("Free some space or lower checkpoint.save_total_limit.")});
}

std::vector<std::uint32_t> write_one(const core::File& file, const Payload& payload,
                                     std::int64_t block_bytes, const std::stop_token& stop) {
  std::vector<std::uint32_t> checksums;
  for_each_block(payload, block_bytes, [&](std::int64_t block, std::span<const std::byte> bytes) {
    if (stop.stop_requested()) return;
    const auto fault = core::fault::hit("ckpt.pwrite", file.path().native());
    // Checksum first: it brings the block into the cache from which the kernel then copies.
    checksums.push_back(core::crc32c(bytes));
    file.write_at(payload.position + block * block_bytes, bytes);
    if (fault != core::fault::FaultAction::flip) return;
    const std::byte flipped = bytes[0] ^ std::byte{1};
    file.write_at(payload.position + block * block_bytes, std::span(&flipped, 1));
  });
  return checksums;
}

void read_back_one(const core::File& file, const Payload& payload, std::int64_t block_bytes,
                   const std::vector<std::uint32_t>& checksums, const std::stop_token& stop) {
  std::vector<std::byte> buffer(
      static_cast<std::size_t>(std::min<std::int64_t>(block_bytes, std::ssize(payload.bytes))));
  for_each_block(payload, block_bytes, [&](std::int64_t block, std::span<const std::byte> bytes) {
    if (stop.stop_requested()) return;
    const std::int64_t position = payload.position + block * block_bytes;
    const auto piece = std::span(buffer).first(bytes.size());
    file.read_at(position, piece);
    const std::uint32_t crc = core::crc32c(piece);
    const std::uint32_t expected = checksums[static_cast<std::size_t>(block)];
    if (crc == expected) return;
    core::fail(core::ErrorKind::io,
               {file.path().string(),
                fmt::format("bytes {} to {} differ from those written when read back", position,
                            position + std::ssize(piece)),
                fmt::format("CRC32C {:08x} instead of {:08x}", crc, expected),
                "The file system or its disk is at fault; tell its administrator."});
  });
}

std::uint32_t extend_crc(const core::File& file, ByteRange range, std::span<std::byte> buffer,
                         std::uint32_t crc) {
  while (range.begin < range.end) {
    const auto piece = buffer.first(static_cast<std::size_t>(
        std::min<std::int64_t>(range.end - range.begin, std::ssize(buffer))));
    file.read_at(range.begin, piece);
    crc = core::crc32c(piece, crc);
    range.begin += std::ssize(piece);
  }
  return crc;
}

/// What lies between the ranges, in order.
std::vector<ByteRange> gaps(std::vector<ByteRange> ranges, std::int64_t size_bytes) {
  std::ranges::sort(ranges, {}, &ByteRange::begin);
  std::vector<ByteRange> result;
  std::int64_t next = 0;
  for (const ByteRange& range : ranges) {
    if (range.begin > next) result.push_back({next, range.begin});
    next = range.end;
  }
  if (next < size_bytes) result.push_back({next, size_bytes});
  return result;
}

/// Copies the part of the metadata that lies in [begin, begin + target.size()), zeros elsewhere.
void copy_metadata(const Metadata& metadata, std::int64_t begin, std::span<std::byte> target) {
  std::ranges::fill(target, std::byte{0});
  const std::int64_t end = begin + std::ssize(target);
  auto page = metadata.upper_bound(begin);
  if (page != metadata.begin()) --page;
  for (; page != metadata.end() && page->first < end; ++page) {
    const std::int64_t first = std::max(begin, page->first);
    const std::int64_t last = std::min(end, page->first + std::ssize(page->second));
    if (first < last)
      std::copy_n(page->second.begin() + (first - page->first), last - first,
                  target.begin() + (first - begin));
  }
}

/// CRC32C of all outside the slices, without reading the file.
std::uint32_t skeleton_crc32c(const PayloadJob& job) {
  std::vector<std::byte> buffer(buffer_bytes);
  std::uint32_t crc = 0;
  for (const ByteRange& gap : gaps(*job.slices_of_all, job.file_bytes)) {
    for (std::int64_t begin = gap.begin; begin < gap.end; begin += std::ssize(buffer)) {
      const auto piece = std::span(buffer).first(
          static_cast<std::size_t>(std::min<std::int64_t>(gap.end - begin, std::ssize(buffer))));
      copy_metadata(job.metadata, begin, piece);
      crc = core::crc32c(piece, crc);
    }
  }
  return crc;
}

void read_back(const core::File& file, const PayloadJob& job, const PayloadResult& result,
               const std::stop_token& stop) {
  // What was synced may be forgotten, so that the disk is asked and not the page cache.
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  for (std::size_t i = 0; i < job.payloads.size() && !stop.stop_requested(); ++i)
    read_back_one(file, job.payloads[i], job.block_bytes, result.checksums[i], stop);
  if (!job.slices_of_all) return;
  const std::uint32_t crc = crc32c_outside(job.file, job.file_bytes, *job.slices_of_all);
  if (crc == result.skeleton_crc32c) return;
  core::fail(
      core::ErrorKind::io,
      {job.file.string(), "the bytes outside the tensors differ from those written when read back",
       fmt::format("CRC32C {:08x} instead of {:08x}", crc, result.skeleton_crc32c),
       "The file system or its disk is at fault; tell its administrator."});
}

}  // namespace

PayloadResult write_payload(const PayloadJob& job, const std::stop_token& stop) {
  const core::Stopwatch watch;
  core::File file(job.file, core::File::Mode::create_or_write, core::ErrorKind::io);
  if (job.file_bytes >= 0) {
    ::fchmod(file.descriptor(), file_mode(job.access));
    allocate(file, job.file_bytes);
    for (const auto& [position, bytes] : job.metadata)
      file.write_at(position, bytes);
  }
  PayloadResult result;
  if (job.slices_of_all) result.skeleton_crc32c = skeleton_crc32c(job);
  result.checksums.reserve(job.payloads.size());
  for (const Payload& payload : job.payloads)
    result.checksums.push_back(write_one(file, payload, job.block_bytes, stop));
  if (job.durability.sync) {
    core::fault::hit("ckpt.fsync", job.file.native());
    file.sync();
  }
  result.write_s = watch.seconds();
  if (job.durability.read_back) {
    read_back(file, job, result, stop);
    result.read_back_s = watch.seconds() - result.write_s;
  }
  file.close();
  return result;
}

std::uint32_t crc32c_outside(const std::filesystem::path& path, std::int64_t size_bytes,
                             std::vector<ByteRange> ranges) {
  const core::File file(path, core::File::Mode::read_no_link, core::ErrorKind::io);
  std::vector<std::byte> buffer(buffer_bytes);
  std::uint32_t crc = 0;
  for (const ByteRange& gap : gaps(std::move(ranges), size_bytes))
    crc = extend_crc(file, gap, buffer, crc);
  return crc;
}

}  // namespace finetune::checkpoint
