// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verify/detail/scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "checkpoint/format/detail/payload.hpp"
#include "checkpoint/format/read.hpp"
#include "core/error.hpp"

namespace finetune::checkpoint {
namespace {

/// Large enough that the threads seldom meet, small enough that the last one does not work alone.
constexpr std::int64_t piece_bytes = std::int64_t{16} << 20;
constexpr std::int64_t read_bytes = std::int64_t{1} << 20;

/// Some elements of an extent, or all that lies outside the extents of a file.
struct ScannedPiece {
  std::int64_t file = 0;
  const Extent* extent = nullptr;  ///< null: the skeleton of the file
  std::int64_t first = 0;          ///< elements [first, last) of the extent, whole blocks of it
  std::int64_t last = 0;
};

struct PieceReport {
  std::vector<std::string> problems;
  std::int64_t bytes = 0;
  ValueSummary numbers;  ///< counted from the start of the tensor
};

/// The extents of each file, in the order they lie there.
using ByFile = std::vector<std::vector<const Extent*>>;

/// Elements in as many whole blocks as fit into `bytes`, at least one block.
std::int64_t elements_in(const Manifest& manifest, const Extent& extent, std::int64_t bytes) {
  const std::int64_t element_bytes = manifest.extent_bytes(extent) / extent.count;
  return std::max<std::int64_t>(bytes / manifest.block_bytes, 1) * manifest.block_bytes /
         element_bytes;
}

/// One thread's way through the pieces.
class Scanner {
 public:
  Scanner(const FoundCheckpoint& found, const ByFile& by_file,
          const std::vector<std::string>& unsigned_kinds)
      : found_(found), by_file_(by_file), unsigned_kinds_(unsigned_kinds), reader_(found) {}

  PieceReport scan(const ScannedPiece& piece) {
    PieceReport report;
    if (piece.extent == nullptr)
      attempt(report, [&] { skeleton(piece.file, report); });
    else
      elements(piece, report);
    return report;
  }

 private:
  template <typename F>
  static bool attempt(PieceReport& report, F&& f) {
    try {
      f();
      return true;
    } catch (const core::Error& error) {
      report.problems.emplace_back(error.what());
      return false;
    }
  }

  void elements(const ScannedPiece& piece, PieceReport& report) {
    const std::int64_t block = elements_in(found_.manifest, *piece.extent, 1);
    const std::int64_t several = elements_in(found_.manifest, *piece.extent, read_bytes);
    for (std::int64_t first = piece.first; first < piece.last; first += several) {
      const std::int64_t last = std::min(first + several, piece.last);
      PieceReport part;
      if (!attempt(part, [&] { read(*piece.extent, first, last, part); })) {
        // Again, block by block, so that every damaged one is named and the others count.
        part = {};
        for (std::int64_t i = first; i < last; i += block)
          attempt(part, [&] { read(*piece.extent, i, std::min(i + block, last), part); });
      }
      report.bytes += part.bytes;
      report.numbers.add(part.numbers, 0);
      std::ranges::move(part.problems, std::back_inserter(report.problems));
    }
  }

  void read(const Extent& extent, std::int64_t first, std::int64_t last, PieceReport& report) {
    const TensorEntry& tensor = found_.manifest.tensor_of(extent);
    const auto size = static_cast<std::size_t>((last - first) * core::size_bytes(tensor.dtype));
    if (buffer_.size() < size) buffer_.resize(size);
    reader_.read_run(extent, first, last, buffer_.data());
    const bool is_unsigned =
        std::ranges::find(unsigned_kinds_, tensor.kind) != unsigned_kinds_.end();
    const Sign sign = is_unsigned ? Sign::not_negative : Sign::any;
    ValueSummary numbers = numbers_of(tensor.dtype, std::span(buffer_).first(size), sign);
    for (Outliers* outliers : {&numbers.not_finite, &numbers.negative}) {
      const std::int64_t in_box = extent.offset + first + outliers->first;
      if (outliers->count > 0)
        outliers->first = found_.manifest.element_of(found_.manifest.box_of(extent), in_box);
    }
    report.numbers.add(numbers, 0);
    report.bytes += static_cast<std::int64_t>(size);
  }

  void skeleton(std::int64_t file, PieceReport& report) const {
    const FileEntry& entry = found_.manifest.files[static_cast<std::size_t>(file)];
    std::vector<ByteRange> ranges;
    report.bytes = entry.size_bytes;
    for (const Extent* extent : by_file_[static_cast<std::size_t>(file)]) {
      const std::int64_t bytes = found_.manifest.extent_bytes(*extent);
      ranges.push_back({extent->position, extent->position + bytes});
      report.bytes -= bytes;
    }
    const std::filesystem::path path = path_of(found_, file);
    const std::uint32_t crc = crc32c_outside(path, entry.size_bytes, std::move(ranges));
    if (crc == entry.skeleton_crc32c) return;
    core::fail(core::ErrorKind::input,
               {path.string(), "bytes outside the tensors are damaged",
                fmt::format("their CRC32C is {:08x}, the manifest says {:08x}", crc,
                            entry.skeleton_crc32c),
                "The tensors can still be loaded; HDF5 tools may fail on the file."});
  }

  const FoundCheckpoint& found_;
  const ByFile& by_file_;
  const std::vector<std::string>& unsigned_kinds_;
  PartReader reader_;
  std::vector<std::byte> buffer_;
};

ByFile sort_by_file(const Manifest& manifest) {
  ByFile by_file(manifest.files.size());
  for (const Extent& extent : manifest.extents)
    by_file[static_cast<std::size_t>(extent.file)].push_back(&extent);
  for (auto& extents : by_file)
    std::ranges::sort(extents, {}, &Extent::position);
  return by_file;
}

/// From front to back, as a disk likes it.
std::vector<ScannedPiece> cut(const Manifest& manifest, const ByFile& by_file,
                              const std::vector<std::int64_t>& files) {
  std::vector<ScannedPiece> pieces;
  for (const std::int64_t file : files) {
    for (const Extent* extent : by_file[static_cast<std::size_t>(file)]) {
      const std::int64_t most = elements_in(manifest, *extent, piece_bytes);
      for (std::int64_t first = 0; first < extent->count; first += most)
        pieces.push_back({file, extent, first, std::min(first + most, extent->count)});
    }
    pieces.push_back({file});
  }
  return pieces;
}

/// Calls f(next) in as many threads as there are cores, up to `most`; `next` gives 0, 1, 2 ...
/// once.
template <typename F>
void on_all_cores(std::size_t most, F&& f) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::exception_ptr> failures(
      std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), most));
  {
    std::vector<std::jthread> threads;
    for (std::exception_ptr& failure : failures) {
      threads.emplace_back([&] {
        try {
          f(next);
        } catch (...) {
          failure = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace

ScanReport scan(const FoundCheckpoint& found, const std::vector<std::int64_t>& files,
                const std::vector<std::string>& unsigned_kinds) {
  const ByFile by_file = sort_by_file(found.manifest);
  const std::vector<ScannedPiece> pieces = cut(found.manifest, by_file, files);
  std::vector<PieceReport> parts(pieces.size());
  on_all_cores(pieces.size(), [&](std::atomic<std::size_t>& next) {
    Scanner scanner(found, by_file, unsigned_kinds);
    for (std::size_t i = next++; i < pieces.size(); i = next++)
      parts[i] = scanner.scan(pieces[i]);
  });
  ScanReport report;
  report.tensors.resize(found.manifest.tensors.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::ranges::move(parts[i].problems, std::back_inserter(report.problems));
    report.bytes += parts[i].bytes;
    // In their order, so that the sums do not depend on which thread was faster.
    if (const Extent* extent = pieces[i].extent)
      report.tensors[static_cast<std::size_t>(found.manifest.box_of(*extent).tensor)].add(
          parts[i].numbers, 0);
  }
  return report;
}

std::filesystem::path path_of(const FoundCheckpoint& found, std::int64_t file) {
  return found.folder / found.manifest.files[static_cast<std::size_t>(file)].name;
}

}  // namespace finetune::checkpoint
