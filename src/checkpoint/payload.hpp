#pragma once
// SPDX-License-Identifier: Apache-2.0
// Writing the data into a skeleton. Neither MPI nor HDF5 is called here, so any thread may do it.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace finetune::checkpoint {

/// One slice of this rank and where it goes.
struct Payload {
  std::int64_t position = 0;  ///< first byte in the file
  std::span<const std::byte> bytes;
};

/// All that one rank writes.
struct PayloadJob {
  std::filesystem::path file;
  std::int64_t block_bytes = 0;
  std::vector<Payload> payloads;
};

/// CRC32C of each block of each payload, as for Extent::crc32c.
using Checksums = std::vector<std::vector<std::uint32_t>>;

/// Writes the job's payloads into its existing file, syncs and closes it.
/// Throws: ErrorKind::io with the system's reason; the file is then worth nothing.
Checksums write_payload(const PayloadJob& job);

struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// CRC32C, in file order, of the bytes of `file` that lie in none of `ranges`; these do not
/// overlap and lie in [0, size_bytes). Throws: ErrorKind::io or input.
std::uint32_t crc32c_outside(const std::filesystem::path& file, std::int64_t size_bytes,
                             std::vector<ByteRange> ranges);

}  // namespace finetune::checkpoint
