// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load/detail/share.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <thread>
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

/// Elements [first, last) of `part`, which this rank alone wants and reads.
struct OwnRun {
  std::int64_t file = 0;
  std::int64_t position = 0;  ///< of its first byte in the file
  const ReadPart* part = nullptr;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// How many runs hold the first half of the elements.
std::size_t first_half(std::span<const OwnRun> runs) {
  std::int64_t all = 0;
  for (const OwnRun& run : runs)
    all += run.last - run.first;
  std::int64_t elements = 0;
  std::size_t count = 0;
  while (count < runs.size() && 2 * elements < all) {
    elements += runs[count].last - runs[count].first;
    ++count;
  }
  return count;
}

/// Numbers the blocks of all slices, as they stand in the manifest.
class Blocks {
 public:
  explicit Blocks(const FoundCheckpoint& found) : found_(found) {
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
  std::int64_t element_bytes(const Extent& extent) const {
    return core::size_bytes(found_.manifest.tensor_of(extent).dtype);
  }
  std::int64_t elements_a_block(const Extent& extent) const {
    return found_.manifest.block_bytes / element_bytes(extent);
  }

 private:
  const FoundCheckpoint& found_;
  std::vector<std::int64_t> first_;  ///< by extent
  std::int64_t count_ = 0;
};

/// Elements [first, last) of `part`, all in one block, that this rank wants and another reads, or
/// this one for others too.
struct Piece {
  std::int64_t block = 0;
  const ReadPart* part = nullptr;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// `num` rows of bytes in a block: the first from `begin` on, every further one a step later.
struct Request {
  std::int64_t block, begin, size, num, step;
};

class Sharing {
 public:
  Sharing(const comm::Communicator& world, const FoundCheckpoint& found,
          std::span<const ReadPart> parts)
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

  /// Calls f(part, block, first, last) for each block with elements [first, last) of a part.
  template <typename F>
  void for_each_wanted(F&& f) const {
    for (const ReadPart& part : parts_) {
      const std::int64_t elements = blocks_.elements_a_block(*part.extent);
      const std::int64_t base = blocks_.first_of(*part.extent);
      for (std::int64_t first = part.first; first < part.last;) {
        const std::int64_t block = part.in_extent(first) / elements;
        const std::int64_t last = part.before((block + 1) * elements);
        f(part, base + block, first, last);
        first = last;
      }
    }
  }

  void draw_lots() {
    core::fault::hit("load.reshard", found_.folder.native());
    num_wanting_.assign(static_cast<std::size_t>(blocks_.count()), 0);
    lots_.assign(num_wanting_.size(), 0);
    // Two parts of one rank that meet in a block want it twice.
    for_each_wanted([&](const ReadPart&, std::int64_t block, std::int64_t, std::int64_t) {
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
    std::vector<OwnRun> own;
    for_each_wanted(
        [&](const ReadPart& part, std::int64_t block, std::int64_t first, std::int64_t last) {
          if (is_shared(block)) {
            pieces_.push_back({block, &part, first, last});
          } else if (!own.empty() && own.back().part == &part && own.back().last == first) {
            own.back().last = last;
          } else {
            const Extent& extent = *part.extent;
            const std::int64_t bytes = part.in_extent(first) * blocks_.element_bytes(extent);
            own.push_back({extent.file, extent.position + bytes, &part, first, last});
          }
        });
    std::ranges::sort(own, {}, [](const OwnRun& run) { return std::pair(run.file, run.position); });
    read_all(own);
    std::ranges::sort(pieces_, {}, &Piece::block);
  }

  /// In two runs side by side: while one waits for the disk, the other compares checksums.
  void read_all(std::span<const OwnRun> runs) {
    const std::size_t half = first_half(runs);
    std::exception_ptr error;
    std::int64_t bytes_read = 0;
    {
      const std::jthread second([&] {
        try {
          PartReader reader(found_);
          for (const OwnRun& run : runs.subspan(half))
            reader.read(*run.part, run.first, run.last);
          bytes_read = reader.bytes_read();
        } catch (...) {
          error = std::current_exception();
        }
      });
      for (const OwnRun& run : runs.first(half))
        reader_.read(*run.part, run.first, run.last);
    }
    if (error) std::rethrow_exception(error);
    bytes_read_beside_ += bytes_read;
  }

  /// Bytes from the target of `part` to where element `wanted` of the wanted box goes.
  std::int64_t bytes_to(const ReadPart& part, std::int64_t wanted) const {
    return (wanted - part.overlap.wanted(part.first)) * blocks_.element_bytes(*part.extent);
  }

  /// What this rank asks for to fill `piece`.
  void add_requests(const Piece& piece, std::vector<Request>& requests) const {
    const Extent& extent = *piece.part->extent;
    const std::int64_t bytes = blocks_.element_bytes(extent);
    const std::int64_t begin =
        (piece.block - blocks_.first_of(extent)) * found_.manifest.block_bytes;
    piece.part->overlap.for_each_rows(piece.first, piece.last, [&](const Rows& rows) {
      requests.push_back({piece.block, (rows.stored - extent.offset) * bytes - begin,
                          rows.length * bytes, rows.num, rows.stored_step * bytes});
    });
  }

  /// Fills `piece` from the answer at `next`; where the next one's begins.
  const std::byte* fill(const Piece& piece, const std::byte* next) const {
    const ReadPart& part = *piece.part;
    const std::int64_t bytes = blocks_.element_bytes(*part.extent);
    part.overlap.for_each_rows(piece.first, piece.last, [&](const Rows& rows) {
      std::byte* target = part.target + bytes_to(part, rows.wanted);
      const std::int64_t size = rows.length * bytes;
      for (std::int64_t i = 0; i < rows.num; ++i, next += size)
        std::memcpy(target + i * rows.wanted_step * bytes, next, static_cast<std::size_t>(size));
    });
    return next;
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
        add_requests(*piece, requests);
      const auto received = world_.shift(std::as_bytes(std::span(requests)), distance);
      const auto answer = world_.shift(answer_to(received, read), -distance);
      const std::byte* next = answer.data();
      for (const Piece* piece : asked)
        next = fill(*piece, next);
    }
  }

  std::vector<std::byte> read_block(std::int64_t block) {
    const Extent& extent = blocks_.extent_of(block);
    const std::int64_t elements = blocks_.elements_a_block(extent);
    const std::int64_t first = (block - blocks_.first_of(extent)) * elements;
    const std::int64_t last = std::min(first + elements, extent.count);
    std::vector<std::byte> bytes(
        static_cast<std::size_t>((last - first) * blocks_.element_bytes(extent)));
    reader_.read_run(extent, first, last, bytes.data());
    return bytes;
  }

  static std::vector<std::byte> answer_to(
      std::span<const std::byte> received,
      const std::map<std::int64_t, std::vector<std::byte>>& read) {
    std::vector<std::byte> answer;
    for (; received.size() >= sizeof(Request); received = received.subspan(sizeof(Request))) {
      Request request = {};
      std::memcpy(&request, received.data(), sizeof(Request));
      const std::byte* next = read.at(request.block).data() + request.begin;
      const std::size_t before = answer.size();
      answer.resize(before + static_cast<std::size_t>(request.num * request.size));
      std::byte* target = answer.data() + before;
      for (std::int64_t i = 0; i < request.num; ++i, target += request.size)
        std::memcpy(target, next + i * request.step, static_cast<std::size_t>(request.size));
    }
    return answer;
  }

  const comm::Communicator& world_;
  const FoundCheckpoint& found_;
  std::span<const ReadPart> parts_;
  Blocks blocks_;
  PartReader reader_;
  std::int64_t bytes_read_beside_ = 0;
  std::vector<std::int64_t> lots_;         ///< the winner's, by block
  std::vector<std::int64_t> num_wanting_;  ///< parts of all ranks, by block
  std::vector<Piece> pieces_;              ///< by block
};

}  // namespace

std::int64_t read_once(const comm::Communicator& world, const FoundCheckpoint& found,
                       std::span<const ReadPart> parts) {
  return Sharing(world, found, parts).run();
}

}  // namespace finetune::checkpoint
