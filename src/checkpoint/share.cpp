// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/share.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"

namespace finetune::checkpoint {
namespace {

constexpr std::int64_t blocks_in_memory = 64;  ///< of a rank, on average

// A lot: whether its rank wants the block, a random number, the rank. The largest wins.
constexpr std::int64_t rank_bits = 22;
constexpr std::int64_t wants_it = std::int64_t{1} << 62;

std::int64_t lot(std::int64_t block, int rank, bool wants) {
  // The finalizer of splitmix64 (Steele, Lea, Flood 2014). Neighbours have the same winner, so that
  // files are read in long runs.
  auto x = static_cast<std::uint64_t>(block / blocks_in_memory) * 0x9e3779b97f4a7c15u +
           static_cast<std::uint64_t>(rank) + 1;  // nothing but "nobody" is zero
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  const auto random = static_cast<std::int64_t>(x >> 24) << rank_bits;
  return (wants ? wants_it : 0) | random | rank;
}

/// How many parts hold the first half of the elements.
std::size_t first_half(std::span<const ReadPart> parts) {
  std::int64_t all = 0;
  for (const ReadPart& part : parts)
    all += part.last - part.first;
  std::int64_t elements = 0;
  std::size_t count = 0;
  while (count < parts.size() && 2 * elements < all) {
    elements += parts[count].last - parts[count].first;
    ++count;
  }
  return count;
}

/// Numbers the blocks of all slices, as they stand in the manifest.
class Blocks {
 public:
  explicit Blocks(const Found& found) : found_(found) {
    for (const Extent& extent : found.manifest.extents) {
      first_.push_back(count_);
      count_ += std::ssize(extent.crc32c);
    }
  }

  std::int64_t count() const { return count_; }
  std::int64_t first_of(const Extent& extent) const {
    return first_[static_cast<std::size_t>(&extent - found_.manifest.extents.data())];
  }
  const Extent& extent_of(std::int64_t block) const {
    const auto next = std::ranges::upper_bound(first_, block);
    return found_.manifest.extents[static_cast<std::size_t>(next - first_.begin() - 1)];
  }
  std::int64_t elements_a_block(const Extent& extent) const {
    return found_.manifest.block_bytes /
           core::size_bytes(found_.manifest.tensors[static_cast<std::size_t>(extent.tensor)].dtype);
  }

 private:
  const Found& found_;
  std::vector<std::int64_t> first_;  ///< by extent
  std::int64_t count_ = 0;
};

/// A part of one block that this rank wants and another reads, or this one for others too.
struct Piece {
  std::int64_t block = 0;
  std::int64_t begin = 0;  ///< bytes in the block
  std::int64_t size = 0;
  std::byte* target = nullptr;
};

struct Request {
  std::int64_t block, begin, size;
};

class Sharing {
 public:
  Sharing(const comm::Communicator& world, const Found& found, std::span<const ReadPart> parts)
      : world_(world), found_(found), parts_(parts), blocks_(found), reader_(found) {}

  std::int64_t run() {
    draw_lots();
    comm::agree(world_, [&] {
      require_files();
      read_own();
    });
    const std::int64_t window = blocks_in_memory * world_.size();
    for (std::int64_t begin = 0; begin < blocks_.count(); begin += window) {
      const std::int64_t end = std::min(begin + window, blocks_.count());
      if (has_shared(begin, end)) exchange(begin, end);
    }
    return reader_.bytes_read() + bytes_read_beside_;
  }

 private:
  int owner(std::int64_t block) const {
    return static_cast<int>(lots_[static_cast<std::size_t>(block)] &
                            ((std::int64_t{1} << rank_bits) - 1));
  }
  bool is_wanted(std::int64_t block) const {
    return num_wanting_[static_cast<std::size_t>(block)] > 0;
  }
  /// Whether it goes to more than one place, or to another rank than its reader.
  bool is_shared(std::int64_t block) const {
    const auto i = static_cast<std::size_t>(block);
    return num_wanting_[i] > 1 || (num_wanting_[i] == 1 && (lots_[i] & wants_it) == 0);
  }
  bool has_shared(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t block = begin; block < end; ++block) {
      if (is_shared(block)) return true;
    }
    return false;
  }

  /// Calls f(part, first block, block after the last) for each part.
  template <typename F>
  void for_each_part(F&& f) const {
    for (const ReadPart& part : parts_) {
      const std::int64_t elements = blocks_.elements_a_block(*part.extent);
      const std::int64_t base = blocks_.first_of(*part.extent);
      f(part, base + part.first / elements, base + (part.last + elements - 1) / elements);
    }
  }

  void draw_lots() {
    core::fault::hit("load.reshard", found_.folder.native());
    num_wanting_.assign(static_cast<std::size_t>(blocks_.count()), 0);
    lots_.assign(num_wanting_.size(), 0);
    for_each_part([&](const ReadPart&, std::int64_t first, std::int64_t last) {
      // Two parts of one rank that meet in a block want it twice.
      for (std::int64_t block = first; block < last; ++block)
        ++num_wanting_[static_cast<std::size_t>(block)];
    });
    for (const Extent& extent : found_.manifest.extents) {
      if (!found_.is_here(extent.file)) continue;
      const std::int64_t base = blocks_.first_of(extent);
      for (std::int64_t block = base; block < base + std::ssize(extent.crc32c); ++block) {
        const auto i = static_cast<std::size_t>(block);
        // Who does not want it reads it only where those who do cannot.
        if (num_wanting_[i] != 0 || !found_.files_here.empty())
          lots_[i] = lot(block, world_.rank(), num_wanting_[i] != 0);
      }
    }
    world_.all_reduce(std::span(lots_), comm::Reduce::max);
    world_.all_reduce(std::span(num_wanting_), comm::Reduce::sum);
  }

  void require_files() const {
    for (const Extent& extent : found_.manifest.extents) {
      const auto first = static_cast<std::size_t>(blocks_.first_of(extent));
      for (std::size_t i = first; i < first + extent.crc32c.size(); ++i) {
        if (num_wanting_[i] == 0 || lots_[i] != 0) continue;
        const auto& file = found_.manifest.files[static_cast<std::size_t>(extent.file)];
        core::fail(core::ErrorKind::input,
                   {(found_.folder / file.name).string(), "is on none of the nodes",
                    "the node that wrote it and the one that kept its copy are gone",
                    "Continue from another checkpoint."});
      }
    }
  }

  /// Straight into place, in the order in which it lies in the files.
  void read_own() {
    std::vector<ReadPart> own;
    for_each_part([&](const ReadPart& part, std::int64_t first, std::int64_t last) {
      const std::int64_t base = blocks_.first_of(*part.extent);
      const std::int64_t elements = blocks_.elements_a_block(*part.extent);
      const std::int64_t element_bytes = found_.manifest.block_bytes / elements;
      for (std::int64_t begin = first; begin < last;) {
        std::int64_t end = begin + 1;
        const bool shared = is_shared(begin);
        while (end < last && is_shared(end) == shared)
          ++end;
        ReadPart run = part;
        run.first = std::max(part.first, (begin - base) * elements);
        run.last = std::min(part.last, (end - base) * elements);
        run.target = part.target + (run.first - part.first) * element_bytes;
        if (shared) {
          add_pieces(run, begin, end, element_bytes);
        } else {
          own.push_back(run);
        }
        begin = end;
      }
    });
    std::ranges::sort(own, {}, [](const ReadPart& part) {
      return std::tuple(part.extent->file, part.extent->position, part.first);
    });
    read_all(own);
    std::ranges::sort(pieces_, {}, &Piece::block);
  }

  /// In two runs side by side: while one waits for the disk, the other compares checksums.
  void read_all(std::span<const ReadPart> parts) {
    const std::size_t half = first_half(parts);
    std::exception_ptr error;
    std::int64_t bytes_read = 0;
    {
      const std::jthread second([&] {
        try {
          Reader reader(found_);
          for (const ReadPart& part : parts.subspan(half))
            reader.read(part);
          bytes_read = reader.bytes_read();
        } catch (...) {
          error = std::current_exception();
        }
      });
      for (const ReadPart& part : parts.first(half))
        reader_.read(part);
    }
    if (error) std::rethrow_exception(error);
    bytes_read_beside_ += bytes_read;
  }

  void add_pieces(const ReadPart& run, std::int64_t begin, std::int64_t end,
                  std::int64_t element_bytes) {
    const std::int64_t block_bytes = found_.manifest.block_bytes;
    const std::int64_t base = blocks_.first_of(*run.extent);
    std::byte* target = run.target;
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t start = (block - base) * block_bytes;  // bytes in the slice
      const std::int64_t from = std::max(start, run.first * element_bytes);
      const std::int64_t to = std::min(start + block_bytes, run.last * element_bytes);
      pieces_.push_back({block, from - start, to - from, target});
      target += to - from;
    }
  }

  /// Reads the blocks of the window that this rank reads for others, and fills every rank's pieces.
  void exchange(std::int64_t begin, std::int64_t end) {
    std::map<std::int64_t, std::vector<std::byte>> read;
    comm::agree(world_, [&] {
      for (std::int64_t block = begin; block < end; ++block) {
        if (is_wanted(block) && is_shared(block) && owner(block) == world_.rank())
          read.emplace(block, read_block(block));
      }
    });
    std::map<int, std::vector<const Piece*>> by_owner;
    for (auto piece = std::ranges::lower_bound(pieces_, begin, {}, &Piece::block);
         piece != pieces_.end() && piece->block < end; ++piece)
      by_owner[owner(piece->block)].push_back(&*piece);
    for (int distance = 0; distance < world_.size(); ++distance) {
      const auto& asked = by_owner[(world_.rank() + distance) % world_.size()];
      std::vector<Request> requests;
      for (const Piece* piece : asked)
        requests.push_back({piece->block, piece->begin, piece->size});
      const auto received = world_.shift(std::as_bytes(std::span(requests)), distance);
      const auto answer = world_.shift(answer_to(received, read), -distance);
      const std::byte* next = answer.data();
      for (const Piece* piece : asked) {
        std::memcpy(piece->target, next, static_cast<std::size_t>(piece->size));
        next += piece->size;
      }
    }
  }

  std::vector<std::byte> read_block(std::int64_t block) {
    const Extent& extent = blocks_.extent_of(block);
    const std::int64_t elements = blocks_.elements_a_block(extent);
    const std::int64_t first = (block - blocks_.first_of(extent)) * elements;
    const std::int64_t last = std::min(first + elements, extent.count);
    std::vector<std::byte> bytes(
        static_cast<std::size_t>((last - first) * (found_.manifest.block_bytes / elements)));
    reader_.read({&extent, first, last, bytes.data()});
    return bytes;
  }

  static std::vector<std::byte> answer_to(
      std::span<const std::byte> received,
      const std::map<std::int64_t, std::vector<std::byte>>& read) {
    std::vector<std::byte> answer;
    for (; received.size() >= sizeof(Request); received = received.subspan(sizeof(Request))) {
      Request request = {};
      std::memcpy(&request, received.data(), sizeof(Request));
      const auto& bytes = read.at(request.block);
      const std::size_t size = answer.size();
      answer.resize(size + static_cast<std::size_t>(request.size));
      std::memcpy(answer.data() + size, bytes.data() + request.begin,
                  static_cast<std::size_t>(request.size));
    }
    return answer;
  }

  const comm::Communicator& world_;
  const Found& found_;
  std::span<const ReadPart> parts_;
  Blocks blocks_;
  Reader reader_;
  std::int64_t bytes_read_beside_ = 0;
  std::vector<std::int64_t> lots_;         ///< the winner's, by block
  std::vector<std::int64_t> num_wanting_;  ///< parts of all ranks, by block
  std::vector<Piece> pieces_;              ///< by block
};

}  // namespace

std::int64_t read_once(const comm::Communicator& world, const Found& found,
                       std::span<const ReadPart> parts) {
  return Sharing(world, found, parts).run();
}

}  // namespace finetune::checkpoint
