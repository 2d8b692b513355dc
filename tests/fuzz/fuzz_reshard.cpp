// SPDX-License-Identifier: Apache-2.0
// Random tensors written in slices by some ranks and wanted in other slices by other ranks:
// interval arithmetic of the manifest against a table of every element.

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint/layout.hpp"
#include "checkpoint/read.hpp"
#include "core/tensor_slice.hpp"
#include "fuzz/fuzz.hpp"

using namespace finetune;
using checkpoint::Extent;
using checkpoint::Found;
using checkpoint::Manifest;

namespace {

constexpr std::int64_t block_bytes = 64;
constexpr std::int64_t most_elements = 4096;

/// Where an element lies: file and byte. File -1: nowhere.
using Place = std::pair<std::int64_t, std::int64_t>;

/// The manifest, and where it was decided to put each element of each tensor.
struct Written {
  Found found;
  std::vector<std::vector<Place>> places;
};

std::vector<std::int64_t> random_shape(FuzzedDataProvider& input) {
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (int dims = input.ConsumeIntegralInRange(0, 4); dims > 0; --dims) {
    shape.push_back(input.ConsumeIntegralInRange<std::int64_t>(
        0, most_elements / std::max<std::int64_t>(elements, 1)));
    elements *= shape.back();
  }
  return shape;
}

/// Cuts [0, elements) at random places into at most `ranks` slices, some of them empty.
std::vector<std::int64_t> random_cuts(FuzzedDataProvider& input, std::int64_t elements, int ranks) {
  std::vector<std::int64_t> cuts = {0, elements};
  for (int rank = 1; rank < ranks; ++rank)
    cuts.push_back(input.ConsumeIntegralInRange<std::int64_t>(0, elements));
  std::ranges::sort(cuts);
  return cuts;
}

void add_slice(Written& written, Extent extent, std::vector<Place>& places, std::int64_t bytes) {
  auto& file = written.found.manifest.files[static_cast<std::size_t>(extent.file)];
  extent.position = file.size_bytes;
  file.size_bytes += extent.count * bytes;
  // Checksums as long as real ones: a manifest of many short numbers is refused.
  extent.crc32c.resize(static_cast<std::size_t>((extent.count * bytes - 1) / block_bytes + 1),
                       0xE3069283);
  for (std::int64_t i = 0; i < extent.count; ++i)
    places[static_cast<std::size_t>(extent.offset + i)] = {extent.file,
                                                           extent.position + i * bytes};
  written.found.manifest.extents.push_back(std::move(extent));
}

Written write(FuzzedDataProvider& input) {
  Written written;
  Manifest& manifest = written.found.manifest;
  manifest.world_size = input.ConsumeIntegralInRange(1, 9);
  manifest.block_bytes = block_bytes;
  const std::int64_t num_files = input.ConsumeIntegralInRange<std::int64_t>(1, manifest.world_size);
  for (std::int64_t i = 0; i < num_files; ++i) {
    manifest.files.push_back({checkpoint::file_name(checkpoint::Files::node, i),
                              input.ConsumeIntegralInRange<std::int64_t>(0, 100), 0});
  }
  const int num_tensors = input.ConsumeIntegralInRange(1, 5);
  for (int t = 0; t < num_tensors; ++t) {
    const auto dtype = input.PickValueInArray(
        {core::DType::f32, core::DType::bf16, core::DType::u8, core::DType::f64});
    manifest.tensors.push_back(
        {"param", std::string(1, static_cast<char>('a' + t)), dtype, random_shape(input)});
    const std::int64_t elements = manifest.tensors.back().num_elements();
    const auto cuts = random_cuts(input, elements, static_cast<int>(manifest.world_size));
    written.places.emplace_back(static_cast<std::size_t>(elements), Place{-1, -1});
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      if (cuts[i] == cuts[i - 1]) continue;
      const std::int64_t file = input.ConsumeIntegralInRange<std::int64_t>(0, num_files - 1);
      add_slice(written, {t, file, cuts[i - 1], cuts[i] - cuts[i - 1], 0, {}},
                written.places.back(), core::size_bytes(dtype));
    }
  }
  return written;
}

/// Checks one rank's wish, elements [offset, offset + count), against the table.
void read(const Written& written, std::int64_t tensor, std::int64_t offset, std::int64_t count) {
  const auto& entry = written.found.manifest.tensors[static_cast<std::size_t>(tensor)];
  const std::int64_t bytes = core::size_bytes(entry.dtype);
  std::vector<std::byte> target(static_cast<std::size_t>(count * bytes));
  std::vector<Place> got(static_cast<std::size_t>(count), Place{-1, -1});
  for (const auto& part :
       checkpoint::parts_of(written.found, tensor, offset, count, target.data())) {
    const std::int64_t begin = (part.target - target.data()) / bytes;
    fuzz::require(part.first < part.last && part.last <= part.extent->count, "a part has elements");
    for (std::int64_t i = part.first; i < part.last; ++i) {
      Place& place = got.at(static_cast<std::size_t>(begin + i - part.first));
      fuzz::require(place.first == -1, "an element is read once");
      place = {part.extent->file, part.extent->position + i * bytes};
    }
  }
  const auto& places = written.places[static_cast<std::size_t>(tensor)];
  fuzz::require(std::equal(got.begin(), got.end(), places.begin() + offset),
                "every element comes from where it was written");
}

/// A manifest with one slice lost, doubled, moved or of another length never passes.
void damage(FuzzedDataProvider& input, Manifest manifest) {
  if (manifest.extents.empty()) return;
  const auto at = input.ConsumeIntegralInRange<std::size_t>(0, manifest.extents.size() - 1);
  Extent& extent = manifest.extents[at];
  switch (input.ConsumeIntegralInRange(0, 4)) {
    case 0:
      manifest.extents.erase(manifest.extents.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      manifest.extents.insert(manifest.extents.begin() + static_cast<std::ptrdiff_t>(at),
                              Extent(extent));
      break;
    case 2:
      extent.offset += input.ConsumeBool() ? 1 : -1;
      break;
    case 3:
      extent.count += input.ConsumeBool() ? 1 : -1;
      break;
    default:
      extent.position = manifest.files[static_cast<std::size_t>(extent.file)].size_bytes;
  }
  fuzz::require(!fuzz::accepts("M: ", [&] { validate(manifest, "M", core::ErrorKind::input); }),
                "a damaged manifest is refused");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  Written written = write(input);
  validate(written.found.manifest, "M", core::ErrorKind::bug);
  const std::string text = checkpoint::to_text(written.found.manifest);
  written.found.manifest = checkpoint::parse_manifest(text, "M");

  const int ranks = input.ConsumeIntegralInRange(1, 9);
  for (std::int64_t t = 0; t < std::ssize(written.places); ++t) {
    const auto elements = std::ssize(written.places[static_cast<std::size_t>(t)]);
    const auto cuts = random_cuts(input, elements, ranks);
    for (std::size_t i = 1; i < cuts.size(); ++i)
      read(written, t, cuts[i - 1], cuts[i] - cuts[i - 1]);
  }
  damage(input, written.found.manifest);
  return 0;
}
