// SPDX-License-Identifier: Apache-2.0
#include "data/tokens/detail/gather.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/file.hpp"
#include "core/text.hpp"

namespace finetune::data {
namespace {

/// Calls `f(first, targets)` for this rank's share of the samples, piece by piece.
template <typename F>
void read_targets(const TokenArrays& arrays, std::int64_t num_samples,
                  const comm::Communicator& world, const F& f) {
  constexpr std::int64_t piece = std::int64_t{1} << 20;
  const Share share = share_of(num_samples, world);
  std::vector<std::int32_t> targets;
  for (std::int64_t first = share.first; first < share.last; first += piece) {
    targets.clear();
    for (std::int64_t i = first; i < std::min(first + piece, share.last); ++i)
      targets.push_back(static_cast<std::int32_t>(num_targets(arrays.sample(i))));
    f(first, std::span<const std::int32_t>(targets));
  }
}

/// `digest(i)` of each i below `num`, each made by one rank. Collective on `world`.
template <typename F>
std::vector<core::Digest> digest_together(const comm::Communicator& world, std::int64_t num,
                                          const F& digest) {
  const Share share = share_of(num, world);
  std::vector<core::Digest> own;
  for (std::int64_t i = share.first; i < share.last; ++i)
    own.push_back(digest(i));
  std::vector<core::Digest> all(static_cast<std::size_t>(num));
  auto next = std::as_writable_bytes(std::span(all));
  for (const auto& part : world.all_gather_bytes(std::as_bytes(std::span(own)))) {
    std::ranges::copy(part, next.begin());
    next = next.subspan(part.size());
  }
  return all;
}

/// Collective on `world`.
Gathered with_digests(const comm::Communicator& world, const TokenArrays& arrays) {
  const CacheBlocks blocks(arrays);
  Gathered gathered{
      arrays,
      digest_together(world, blocks.size(), [&](std::int64_t i) { return blocks.digest(i); }),
      {}};
  gathered.ids = ids_fingerprint(world, arrays, gathered.digests);
  return gathered;
}

/// Every rank's range of `all` from `first` on becomes known to all. Collective on `world`.
template <typename T>
void share_ranges(const comm::Communicator& world, std::span<T> all, std::int64_t first,
                  std::int64_t count) {
  std::vector<std::int64_t> ranges(2 * static_cast<std::size_t>(world.size()));
  const std::int64_t own[] = {first, count};
  world.all_gather(core::DType::i64, own, ranges.data(), 2);
  // A broadcast a rank, in place: counts may exceed 2^31, and nothing is held twice.
  for (int root = 0; root < world.size(); ++root) {
    const auto at = 2 * static_cast<std::size_t>(root);
    world.broadcast(std::as_writable_bytes(all.subspan(static_cast<std::size_t>(ranges[at]),
                                                       static_cast<std::size_t>(ranges[at + 1]))),
                    root);
  }
}

struct PartVectors {
  std::vector<PackedToken> tokens;
  std::vector<std::int64_t> bounds;
  std::vector<std::int32_t> targets;
};

template <typename T>
void write(const core::File& file, std::int64_t at, std::int64_t first, std::span<const T> values) {
  file.write_at(at + first * static_cast<std::int64_t>(sizeof(T)), std::as_bytes(values));
}

void write_part(const comm::Communicator& world, const Assembly& assembly,
                const CacheLayout& layout, const std::filesystem::path& path) {
  core::File file(path, core::File::Mode::write_existing, core::ErrorKind::io);
  assembly.part->tokens.read([&](std::int64_t first, std::span<const PackedToken> tokens) {
    core::fault::hit("data.write", path.native());
    write(file, layout.tokens_at, assembly.first_token + first, tokens);
  });
  assembly.read_bounds(world, [&](std::int64_t first, std::span<const std::int64_t> bounds) {
    write(file, layout.bounds_at, first, bounds);
  });
  file.sync();
  // Other nodes see what a closed file holds.
  file.close();
}

void write_targets(const comm::Communicator& world, const CacheLayout& layout,
                   const std::filesystem::path& path) {
  const TokenArrays arrays = map_arrays(path, layout);
  core::File file(path, core::File::Mode::write_existing, core::ErrorKind::io);
  read_targets(arrays, layout.num_samples, world,
               [&](std::int64_t first, std::span<const std::int32_t> targets) {
                 write(file, layout.targets_at, first, targets);
               });
  file.sync();
  file.close();
}

/// The whole space of the file at once: a full disk is noticed first, and all of it can be mapped.
void take_space(const core::File& file, std::int64_t bytes) {
  bool is_done = ::ftruncate(file.descriptor(), bytes) == 0;
  if (is_done) is_done = ::fallocate(file.descriptor(), 0, 0, bytes) == 0;
  // Some file systems cannot take space in advance; the writes will tell there.
  if (is_done || errno == EOPNOTSUPP || errno == ENOSYS) return;
  core::fail(core::ErrorKind::io,
             {file.path().string(), fmt::format("{} cannot be allocated", core::human_bytes(bytes)),
              core::system_reason(),
              core::remedy_for_space("Free some space, or set data.cache_dir to another folder.")});
}

/// The file without its arrays, from the root; where they go, on all ranks. Collective on `world`.
CacheLayout begin_file(const comm::Communicator& world, const Assembly& assembly,
                       const std::filesystem::path& path) {
  CacheLayout layout;
  comm::agree_all(world, [&] {
    if (!world.is_root()) return;
    const CacheSkeleton skeleton =
        lay_out_cache(assembly.num_tokens, assembly.num_samples, assembly.overlap());
    layout = skeleton.layout;
    core::File file(path, core::File::Mode::write_existing, core::ErrorKind::create);
    take_space(file, layout.file_bytes);
    for (const auto& [position, bytes] : skeleton.metadata)
      file.write_at(position, bytes);
    file.close();
  });
  world.broadcast(std::as_writable_bytes(std::span(&layout, 1)));
  return layout;
}

}  // namespace

std::string ids_fingerprint(const comm::Communicator& world, const TokenArrays& arrays,
                            std::span<const core::Digest> digests) {
  constexpr auto block = static_cast<std::int64_t>(cache_block_bytes / sizeof(PackedToken));
  const auto blocks_of = [](std::size_t bytes) {
    return (static_cast<std::int64_t>(bytes) + cache_block_bytes - 1) / cache_block_bytes;
  };
  const std::int64_t num = blocks_of(arrays.tokens.size_bytes());
  std::vector<core::Digest> all = digest_together(world, num, [&](std::int64_t i) {
    const auto rest = arrays.tokens.subspan(static_cast<std::size_t>(i * block));
    const auto tokens = rest.first(std::min(rest.size(), static_cast<std::size_t>(block)));
    std::vector<std::int32_t> ids(tokens.size());
    std::ranges::transform(tokens, ids.begin(), &PackedToken::id);
    return core::digest(std::as_bytes(std::span(ids)));
  });
  // Behind the tokens' lie those of the bounds.
  const auto bounds =
      digests.subspan(static_cast<std::size_t>(num),
                      static_cast<std::size_t>(blocks_of(arrays.bounds.size_bytes())));
  all.insert(all.end(), bounds.begin(), bounds.end());
  return core::fingerprint(std::as_bytes(std::span(std::as_const(all))));
}

void Assembly::read_bounds(
    const comm::Communicator& world,
    const std::function<void(std::int64_t, std::span<const std::int64_t>)>& f) const {
  std::vector<std::int64_t> bounds;
  std::int64_t end = 0;  // of those handed on
  const auto hand_on = [&](std::int64_t first) {
    f(first, bounds);
    end = first + std::ssize(bounds);
    bounds.clear();
  };
  if (layout == Layout::separate) {
    std::int64_t begin = first_token;
    end = first_sample;
    part->lengths.read([&](std::int64_t first, std::span<const std::int64_t> lengths) {
      for (const std::int64_t length : lengths) {
        bounds.push_back(begin);
        begin += length;
      }
      hand_on(first_sample + first);
    });
  } else {
    constexpr std::int64_t piece = std::int64_t{1} << 20;
    const Share share = share_of(num_samples, world);
    end = share.first;
    for (std::int64_t first = share.first; first < share.last; first += piece) {
      for (std::int64_t i = first; i < std::min(first + piece, share.last); ++i)
        bounds.push_back(i * block);
      hand_on(first);
    }
  }
  if (world.rank() + 1 < world.size()) return;
  bounds.push_back(num_tokens - overlap());
  hand_on(end);
}

Assembly assemble(const comm::Communicator& world, const Part& part, Layout layout,
                  std::int64_t max_seq_length) {
  std::vector<std::int64_t> sizes(2 * static_cast<std::size_t>(world.size()));
  const std::int64_t own[] = {part.tokens.size(), part.lengths.size()};
  world.all_gather(core::DType::i64, own, sizes.data(), 2);
  Assembly assembly;
  assembly.part = &part;
  assembly.layout = layout;
  assembly.block = max_seq_length;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank == world.rank()) {
      assembly.first_token = assembly.num_tokens;
      assembly.first_sample = assembly.num_samples;
    }
    assembly.num_tokens += sizes[2 * static_cast<std::size_t>(rank)];
    assembly.num_samples += sizes[2 * static_cast<std::size_t>(rank) + 1];
  }
  if (layout == Layout::continuous) {
    // Blocks of `block` positions; the token after the last position is its target.
    const std::int64_t positions = std::max<std::int64_t>(0, assembly.num_tokens - 1);
    assembly.num_samples = (positions + max_seq_length - 1) / max_seq_length;
  }
  return assembly;
}

Gathered gather_in_memory(const comm::Communicator& world, const Assembly& assembly) {
  auto vectors = std::make_shared<PartVectors>();
  const std::int64_t num_bounds = assembly.num_samples + 1;
  comm::agree_all(world, [&] {
    vectors->tokens.resize(static_cast<std::size_t>(assembly.num_tokens));
    vectors->bounds.resize(static_cast<std::size_t>(num_bounds));
    vectors->targets.resize(static_cast<std::size_t>(assembly.num_samples));
    assembly.part->tokens.read([&](std::int64_t first, std::span<const PackedToken> tokens) {
      std::ranges::copy(tokens, vectors->tokens.begin() + assembly.first_token + first);
    });
  });
  share_ranges(world, std::span(vectors->tokens), assembly.first_token,
               assembly.part->tokens.size());
  Share made{num_bounds, 0};
  comm::agree_all(world, [&] {
    assembly.read_bounds(world, [&](std::int64_t first, std::span<const std::int64_t> bounds) {
      std::ranges::copy(bounds, vectors->bounds.begin() + first);
      made = {std::min(made.first, first), std::max(made.last, first + std::ssize(bounds))};
    });
  });
  made.first = std::min(made.first, made.last);
  share_ranges(world, std::span(vectors->bounds), made.first, made.last - made.first);
  const TokenArrays arrays{vectors->tokens, vectors->bounds, vectors->targets, assembly.overlap(),
                           vectors};
  read_targets(arrays, assembly.num_samples, world,
               [&](std::int64_t first, std::span<const std::int32_t> targets) {
                 std::ranges::copy(targets, vectors->targets.begin() + first);
               });
  const Share share = share_of(assembly.num_samples, world);
  share_ranges(world, std::span(vectors->targets), share.first, share.last - share.first);
  return with_digests(world, arrays);
}

Gathered gather_in_file(const comm::Communicator& world, const Assembly& assembly,
                        const std::filesystem::path& path,
                        const std::function<core::Json(const Gathered&)>& describe) {
  const CacheLayout layout = begin_file(world, assembly, path);
  comm::agree_all(world, [&] { write_part(world, assembly, layout, path); });
  comm::agree_all(world, [&] { write_targets(world, layout, path); });
  // Opened again, so that a network file system shows what other nodes have written since.
  const TokenArrays arrays = comm::agree(world, [&] { return map_arrays(path, layout); });
  Gathered gathered = with_digests(world, arrays);
  comm::agree_all(world, [&] {
    if (world.is_root()) complete_cache_file(path, layout, gathered.digests, describe(gathered));
  });
  return gathered;
}

}  // namespace finetune::data
