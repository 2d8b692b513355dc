// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "checkpoint/candidate.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/payload.hpp"
#include "checkpoint/read.hpp"
#include "core/error.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

class Verifier {
 public:
  explicit Verifier(Verification& result) : result_(result) {}

  void checkpoint(const fs::path& folder) {
    ++result_.num_checkpoints;
    attempt([&] {
      const Found found = parse(read_candidate(folder));
      result_.num_tensors += std::ssize(found.manifest.tensors);
      // In the order they lie in their file, so that the disk is read from front to back.
      std::vector<std::vector<const Extent*>> by_file(found.manifest.files.size());
      for (const Extent& extent : found.manifest.extents)
        by_file[static_cast<std::size_t>(extent.file)].push_back(&extent);
      for (std::size_t i = 0; i < by_file.size(); ++i) {
        std::ranges::sort(by_file[i], {}, &Extent::position);
        file(found, found.manifest.files[i], by_file[i]);
      }
    });
  }

 private:
  template <typename F>
  bool attempt(F&& f) {
    try {
      f();
      return true;
    } catch (const core::Error& error) {
      result_.problems.emplace_back(error.what());
      return false;
    }
  }

  void file(const Found& found, const FileEntry& entry, const std::vector<const Extent*>& extents) {
    const fs::path path = found.folder / entry.name;
    if (!attempt([&] { size(path, entry); })) return;
    std::vector<ByteRange> ranges;
    Reader reader(found);
    for (const Extent* extent : extents) {
      ranges.push_back({extent->position, extent->position + found.manifest.extent_bytes(*extent)});
      blocks(found, reader, *extent);
    }
    attempt([&] { skeleton(path, entry, std::move(ranges)); });
    result_.bytes += entry.size_bytes;
  }

  static void size(const fs::path& path, const FileEntry& entry) {
    const std::int64_t bytes = regular_file_bytes(path);
    if (bytes == entry.size_bytes) return;
    core::fail(core::ErrorKind::input,
               {path.string(), fmt::format("has {} bytes", bytes),
                fmt::format("the manifest says {}", entry.size_bytes), "Restore it from a copy."});
  }

  /// Block by block, so that every damaged one is named.
  void blocks(const Found& found, Reader& reader, const Extent& extent) {
    const std::int64_t element_bytes = found.manifest.extent_bytes(extent) / extent.count;
    const std::int64_t block_elements = found.manifest.block_bytes / element_bytes;
    std::vector<std::byte> target(static_cast<std::size_t>(found.manifest.block_bytes));
    for (std::int64_t first = 0; first < extent.count; first += block_elements) {
      const std::int64_t last = std::min(first + block_elements, extent.count);
      attempt([&] { reader.read({&extent, first, last, target.data()}); });
    }
  }

  static void skeleton(const fs::path& path, const FileEntry& entry,
                       std::vector<ByteRange> ranges) {
    const std::uint32_t crc = crc32c_outside(path, entry.size_bytes, std::move(ranges));
    if (crc == entry.skeleton_crc32c) return;
    core::fail(core::ErrorKind::input,
               {path.string(), "bytes outside the tensors are damaged",
                fmt::format("their CRC32C is {:08x}, the manifest says {:08x}", crc,
                            entry.skeleton_crc32c),
                "The tensors can still be loaded; HDF5 tools may fail on the file."});
  }

  Verification& result_;
};

}  // namespace

Verification verify(const fs::path& path) {
  Verification result;
  Verifier verifier(result);
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  std::error_code ignored;
  if (step_of(clean.filename().string()) || fs::exists(clean / manifest_name, ignored)) {
    verifier.checkpoint(clean);
    return result;
  }
  try {
    for (const std::int64_t step : list_steps(clean))
      verifier.checkpoint(clean / folder_name(step));
  } catch (const core::Error& error) {
    result.problems.emplace_back(error.what());
  }
  if (result.num_checkpoints == 0 && result.problems.empty())
    result.problems.push_back(core::to_string(no_checkpoint_in(clean)));
  return result;
}

}  // namespace finetune::checkpoint
