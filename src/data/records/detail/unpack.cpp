// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/unpack.hpp"

#include <fmt/format.h>
#include <lz4.h>
#include <lz4frame.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <limits>
#include <memory>
#include <optional>

namespace finetune::data {
namespace {

/// Bytes that were written to `made`; nothing for what is damaged.
using Written = std::optional<std::size_t>;

Written unpack_zstd(Bytes packed, std::vector<std::byte>& made) {
  const std::size_t written =
      ZSTD_decompress(made.data(), made.size(), packed.data(), packed.size());
  return ZSTD_isError(written) != 0 ? std::nullopt : Written(written);
}

Written unpack_lz4_frame(Bytes packed, std::vector<std::byte>& made) {
  LZ4F_dctx* context = nullptr;
  if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)) != 0)
    return std::nullopt;
  const std::unique_ptr<LZ4F_dctx, decltype(&LZ4F_freeDecompressionContext)> freed(
      context, &LZ4F_freeDecompressionContext);
  std::size_t written = 0, left = 1;
  while (left != 0 && !packed.empty()) {
    std::size_t into = made.size() - written, from = packed.size();
    left = LZ4F_decompress(context, made.data() + written, &into, packed.data(), &from, nullptr);
    if (LZ4F_isError(left) != 0 || (into == 0 && from == 0)) return std::nullopt;
    written += into;
    packed = packed.subspan(from);
  }
  return left == 0 ? Written(written) : std::nullopt;
}

Written unpack_lz4_block(Bytes packed, std::vector<std::byte>& made) {
  constexpr std::size_t most = std::numeric_limits<int>::max();
  if (packed.size() > most || made.size() > most) return std::nullopt;
  const int written = LZ4_decompress_safe(
      reinterpret_cast<const char*>(packed.data()), reinterpret_cast<char*>(made.data()),
      static_cast<int>(packed.size()), static_cast<int>(made.size()));
  return written < 0 ? std::nullopt : Written(static_cast<std::size_t>(written));
}

Written unpack_snappy(Bytes packed, std::vector<std::byte>& made) {
  const char* letters = reinterpret_cast<const char*>(packed.data());
  std::size_t size = 0;
  if (!snappy::GetUncompressedLength(letters, packed.size(), &size) || size != made.size() ||
      !snappy::RawUncompress(letters, packed.size(), reinterpret_cast<char*>(made.data())))
    return std::nullopt;
  return size;
}

Written unpack_gzip(Bytes packed, std::vector<std::byte>& made) {
  constexpr std::size_t most = std::numeric_limits<uInt>::max();
  constexpr int with_gzip_header = 15 + 16;
  if (packed.size() > most || made.size() > most) return std::nullopt;
  z_stream stream{};
  if (inflateInit2(&stream, with_gzip_header) != Z_OK) return std::nullopt;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(made.data());
  stream.avail_out = static_cast<uInt>(made.size());
  const int result = inflate(&stream, Z_FINISH);
  const std::size_t written = stream.total_out;
  inflateEnd(&stream);
  return result == Z_STREAM_END ? Written(written) : std::nullopt;
}

Written unpack_into(Codec codec, Bytes packed, std::vector<std::byte>& made) {
  switch (codec) {
    case Codec::zstd:
      return unpack_zstd(packed, made);
    case Codec::lz4_frame:
      return unpack_lz4_frame(packed, made);
    case Codec::lz4_block:
      return unpack_lz4_block(packed, made);
    case Codec::snappy:
      return unpack_snappy(packed, made);
    case Codec::gzip:
      return unpack_gzip(packed, made);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::byte> unpack(Codec codec, Bytes packed, std::size_t size,
                              const std::string& where) {
  if (size == 0) return {};  // zlib wants somewhere to write, even nothing
  std::vector<std::byte> made(size);
  const Written written = unpack_into(codec, packed, made);
  if (!written) fail_binary(where, "a compressed part is damaged", "it cannot be decompressed");
  if (*written != size)
    fail_binary(where, fmt::format("a compressed part holds {} bytes", *written),
                fmt::format("{} are described", size));
  return made;
}

}  // namespace finetune::data
