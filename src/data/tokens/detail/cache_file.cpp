// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/cache_file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/file.hpp"
#include "hdf5/skeleton.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

/// Room for the key and the report with its sample, none of which grows with the data.
constexpr std::int64_t description_bytes = std::int64_t{64} << 10;
constexpr std::array<char, 16> magic = {"finetune tokens"};

/// The last bytes of a file.
struct Trailer {
  std::array<char, 16> magic;
  std::int64_t version;
  CacheLayout layout;
  core::Digest check;  ///< of all above, the digests and the description
};
static_assert(std::is_trivially_copyable_v<Trailer> && sizeof(Trailer) == 16 + 8 + 9 * 8 + 16);

std::int64_t blocks_in(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

std::int64_t token_bytes(const CacheLayout& layout) {
  return layout.num_tokens * static_cast<std::int64_t>(sizeof(PackedToken));
}
std::int64_t bound_bytes(const CacheLayout& layout) {
  return (layout.num_samples + 1) * static_cast<std::int64_t>(sizeof(std::int64_t));
}
std::int64_t target_bytes(const CacheLayout& layout) {
  return layout.num_samples * static_cast<std::int64_t>(sizeof(std::int32_t));
}
std::int64_t digest_bytes(const CacheLayout& layout) {
  return layout.num_digests() * static_cast<std::int64_t>(sizeof(core::Digest));
}

core::Digest check_of(Trailer trailer, std::span<const core::Digest> digests,
                      std::string_view description) {
  trailer.check = {};
  const std::array parts = {core::digest(std::as_bytes(std::span(&trailer, 1))),
                            core::digest(std::as_bytes(digests)),
                            core::digest(std::as_bytes(std::span(description)))};
  return core::digest(std::as_bytes(std::span(parts)));
}

[[noreturn]] void fail_damaged(const fs::path& path, const std::string& problem) {
  core::fail(core::ErrorKind::input,
             {path.string(), problem, "", "Remove it; it is rebuilt from the data."});
}

/// Whether the parts lie in the file, where arrays of their types may begin.
bool is_sound(const CacheLayout& layout, std::int64_t file_bytes) {
  constexpr std::int64_t most = std::int64_t{1} << 48;
  if (layout.num_tokens < 1 || layout.num_tokens > most || layout.num_samples < 1 ||
      layout.num_samples > most || layout.overlap < 0 || layout.overlap > 1 ||
      layout.file_bytes != file_bytes)
    return false;
  const auto lies_inside = [&](std::int64_t at, std::int64_t bytes) {
    return at >= 0 && at % 4 == 0 && bytes <= file_bytes && at <= file_bytes - bytes;
  };
  return lies_inside(layout.tokens_at, token_bytes(layout)) &&
         lies_inside(layout.bounds_at, bound_bytes(layout)) && layout.bounds_at % 8 == 0 &&
         lies_inside(layout.targets_at, target_bytes(layout)) &&
         lies_inside(layout.digests_at, digest_bytes(layout)) &&
         lies_inside(layout.description_at, description_bytes);
}

/// A file in memory until the last owner of its arrays is gone.
class MappedFile {
 public:
  MappedFile(const fs::path& path, std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    const core::File file(path, core::File::Mode::read, core::ErrorKind::io);
    // Beyond the end of a mapped file lies a signal, not an error.
    if (file.size_bytes() < bytes) fail_damaged(path, "is shorter than it was");
    data_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
    if (data_ != MAP_FAILED) return;
    core::fail(core::ErrorKind::io, {path.string(), "cannot be mapped into memory",
                                     core::system_reason(), "Set data.cache = false."});
  }
  ~MappedFile() { ::munmap(data_, bytes_); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  template <typename T>
  std::span<const T> array(std::int64_t at, std::int64_t count) const {
    return {reinterpret_cast<const T*>(static_cast<const std::byte*>(data_) + at),
            static_cast<std::size_t>(count)};
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

}  // namespace

CacheBlocks::CacheBlocks(const TokenArrays& arrays) : owner_(arrays.owner) {
  for (std::span<const std::byte> bytes :
       {std::as_bytes(arrays.tokens), std::as_bytes(arrays.bounds),
        std::as_bytes(arrays.targets)}) {
    while (!bytes.empty()) {
      const auto n = std::min(bytes.size(), static_cast<std::size_t>(cache_block_bytes));
      blocks_.push_back(bytes.first(n));
      bytes = bytes.subspan(n);
    }
  }
}

std::string content_fingerprint(const TokenArrays& arrays,
                                const std::vector<core::Digest>& digests) {
  return core::fingerprint(fmt::format("{} {} {} {}", std::ssize(arrays.tokens),
                                       arrays.num_samples(), arrays.overlap,
                                       core::fingerprint(std::as_bytes(std::span(digests)))));
}

std::int64_t CacheLayout::num_digests() const {
  return blocks_in(token_bytes(*this), cache_block_bytes) +
         blocks_in(bound_bytes(*this), cache_block_bytes) +
         blocks_in(target_bytes(*this), cache_block_bytes);
}

CacheSkeleton lay_out_cache(std::int64_t num_tokens, std::int64_t num_samples,
                            std::int64_t overlap) {
  CacheLayout layout;
  layout.num_tokens = num_tokens;
  layout.num_samples = num_samples;
  layout.overlap = overlap;
  // The widest first: each array then begins at a multiple of its elements.
  const std::array datasets = {
      hdf5::DatasetShape{
          "/bounds", core::DType::i64, num_samples + 1, {{"overlap", std::vector{overlap}}}},
      hdf5::DatasetShape{"/digests",
                         core::DType::i64,
                         2 * layout.num_digests(),
                         {{"block_bytes", std::vector{cache_block_bytes}}}},
      hdf5::DatasetShape{"/description", core::DType::u8, description_bytes},
      hdf5::DatasetShape{"/tokens", core::DType::i32, num_tokens},
      hdf5::DatasetShape{"/targets", core::DType::i32, num_samples}};
  hdf5::Skeleton skeleton = hdf5::make_skeleton(datasets);
  layout.bounds_at = skeleton.positions[0];
  layout.digests_at = skeleton.positions[1];
  layout.description_at = skeleton.positions[2];
  layout.tokens_at = skeleton.positions[3];
  layout.targets_at = skeleton.positions[4];
  layout.file_bytes = skeleton.size_bytes + static_cast<std::int64_t>(sizeof(Trailer));
  core::check(is_sound(layout, layout.file_bytes), "the arrays of a token cache are aligned");
  return {layout, std::move(skeleton.metadata)};
}

void complete_cache_file(const fs::path& path, const CacheLayout& layout,
                         const std::vector<core::Digest>& digests, const core::Json& description) {
  std::string text = description.dump();
  core::check(std::ssize(text) <= description_bytes, "a key and a data report are short");
  text.resize(static_cast<std::size_t>(description_bytes), ' ');
  Trailer trailer{magic, cache_version, layout, {}};
  trailer.check = check_of(trailer, digests, text);
  core::File file(path, core::File::Mode::write_existing, core::ErrorKind::io);
  core::fault::hit("data.complete", path.native());
  file.write_at(layout.digests_at, std::as_bytes(std::span(digests)));
  file.write_at(layout.description_at, std::as_bytes(std::span(text)));
  file.write_at(layout.file_bytes - static_cast<std::int64_t>(sizeof(trailer)),
                std::as_bytes(std::span(&trailer, 1)));
  file.sync();
  file.close();
}

TokenArrays map_arrays(const fs::path& path, const CacheLayout& layout) {
  const auto mapping = std::make_shared<const MappedFile>(path, layout.file_bytes);
  return {mapping->array<PackedToken>(layout.tokens_at, layout.num_tokens),
          mapping->array<std::int64_t>(layout.bounds_at, layout.num_samples + 1),
          mapping->array<std::int32_t>(layout.targets_at, layout.num_samples), layout.overlap,
          mapping};
}

CacheFile CacheFile::open(const fs::path& path) {
  const core::File file(path, core::File::Mode::read, core::ErrorKind::io);
  const std::int64_t size = file.size_bytes();
  Trailer trailer;
  if (size < static_cast<std::int64_t>(sizeof(trailer))) fail_damaged(path, "is too short");
  file.read_at(size - static_cast<std::int64_t>(sizeof(trailer)),
               std::as_writable_bytes(std::span(&trailer, 1)));
  if (trailer.magic != magic) fail_damaged(path, "does not end as a token cache does");
  if (trailer.version != cache_version)
    fail_damaged(path, fmt::format("has version {}, not {}", trailer.version, cache_version));
  if (!is_sound(trailer.layout, size)) fail_damaged(path, "has another size than it says");
  CacheFile result;
  result.layout = trailer.layout;
  result.digests.resize(static_cast<std::size_t>(trailer.layout.num_digests()));
  file.read_at(trailer.layout.digests_at, std::as_writable_bytes(std::span(result.digests)));
  std::string text(static_cast<std::size_t>(description_bytes), '\0');
  file.read_at(trailer.layout.description_at, std::as_writable_bytes(std::span(text)));
  if (check_of(trailer, result.digests, text) != trailer.check)
    fail_damaged(path, "its checksums or its description are damaged");
  result.description = core::parse_json(text, path.string());
  result.arrays = map_arrays(path, trailer.layout);
  return result;
}

void CacheFile::verify(const fs::path& path, std::int64_t first, std::int64_t last) const {
  const core::File file(path, core::File::Mode::read, core::ErrorKind::io);
  std::vector<std::byte> buffer(static_cast<std::size_t>(cache_block_bytes));
  const std::array<std::pair<std::int64_t, std::int64_t>, 3> parts = {
      {{layout.tokens_at, token_bytes(layout)},
       {layout.bounds_at, bound_bytes(layout)},
       {layout.targets_at, target_bytes(layout)}}};
  std::int64_t block = 0;
  for (const auto& [at, bytes] : parts) {
    for (std::int64_t begin = 0; begin < bytes; begin += cache_block_bytes, ++block) {
      if (block < first || block >= last) continue;
      const auto piece = std::span(buffer).first(
          static_cast<std::size_t>(std::min(cache_block_bytes, bytes - begin)));
      file.read_at(at + begin, piece);
      if (core::digest(piece) == digests[static_cast<std::size_t>(block)]) continue;
      fail_damaged(path, fmt::format("bytes {} to {} are damaged", at + begin,
                                     at + begin + std::ssize(piece)));
    }
  }
}

}  // namespace finetune::data
