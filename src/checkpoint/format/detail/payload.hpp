#pragma once
// SPDX-License-Identifier: Apache-2.0
// Writing one file of a checkpoint: skeleton and data. Neither MPI nor HDF5 is called here, so any
// thread may do it.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "checkpoint/format/layout.hpp"

namespace finetune::checkpoint {

/// Bytes and where they go.
struct Payload {
  std::int64_t position = 0;  ///< first byte in the file
  std::span<const std::byte> bytes;
};

/// How a file is made safe.
struct Durability {
  bool sync = true;        ///< fsync; without it a checkpoint outlives the process, not the machine
  bool read_back = false;  ///< compare all that was written with its checksums
};

/// A range of bytes of a file.
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// All that one rank writes into one file. Several ranks may write into the same one.
struct PayloadJob {
  std::filesystem::path file;
  Access access = Access::owner;
  std::int64_t block_bytes = 0;
  Durability durability;
  /// Of the rank that lays the file out: its whole size, what belongs outside the slices, and where
  /// the slices of all ranks lie.
  std::int64_t file_bytes = -1;
  std::map<std::int64_t, std::vector<std::byte>> metadata;
  std::optional<std::vector<ByteRange>> slices_of_all;
  std::vector<Payload> payloads;
};

struct PayloadResult {
  std::vector<std::vector<std::uint32_t>> checksums;  ///< CRC32C of every block of every payload
  std::uint32_t skeleton_crc32c = 0;                  ///< of all outside the slices, if laid out
  double write_s = 0;                                 ///< synced
  double read_back_s = 0;
};

/// Creates the file if it does not exist, takes its space if this rank lays it out, writes, syncs,
/// and reads back. Stops early, without an error, if `stop` asks for it. Throws: ErrorKind::io with
/// the system's reason, or naming the block that reads back otherwise.
PayloadResult write_payload(const PayloadJob& job, const std::stop_token& stop = {});

/// CRC32C of the bytes of a file outside `ranges`, in file order. Throws: ErrorKind::io.
std::uint32_t crc32c_outside(const std::filesystem::path& path, std::int64_t size_bytes,
                             std::vector<ByteRange> ranges);

}  // namespace finetune::checkpoint
