// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/payload.hpp"

#include <algorithm>

#include "core/file.hpp"
#include "core/hash.hpp"

namespace finetune::checkpoint {
namespace {

std::vector<std::uint32_t> write_one(const core::File& file, const Payload& payload,
                                     std::int64_t block_bytes) {
  std::vector<std::uint32_t> checksums;
  const std::int64_t size = std::ssize(payload.bytes);
  for (std::int64_t begin = 0; begin < size; begin += block_bytes) {
    const auto block =
        payload.bytes.subspan(static_cast<std::size_t>(begin),
                              static_cast<std::size_t>(std::min(block_bytes, size - begin)));
    // Checksum first: it brings the block into the cache from which the kernel then copies.
    checksums.push_back(core::crc32c(block));
    file.write_at(payload.position + begin, block);
  }
  return checksums;
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

}  // namespace

Checksums write_payload(const PayloadJob& job) {
  core::File file(job.file, core::File::Mode::write_existing, core::ErrorKind::io);
  Checksums checksums;
  checksums.reserve(job.payloads.size());
  for (const Payload& payload : job.payloads)
    checksums.push_back(write_one(file, payload, job.block_bytes));
  file.sync();
  file.close();
  return checksums;
}

std::uint32_t crc32c_outside(const std::filesystem::path& path, std::int64_t size_bytes,
                             std::vector<ByteRange> ranges) {
  const core::File file(path, core::File::Mode::read, core::ErrorKind::io);
  std::ranges::sort(ranges, {}, &ByteRange::begin);
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  std::uint32_t crc = 0;
  std::int64_t next = 0;
  for (const ByteRange& range : ranges) {
    if (range.begin > next) crc = extend_crc(file, {next, range.begin}, buffer, crc);
    next = range.end;
  }
  return next < size_bytes ? extend_crc(file, {next, size_bytes}, buffer, crc) : crc;
}

}  // namespace finetune::checkpoint
