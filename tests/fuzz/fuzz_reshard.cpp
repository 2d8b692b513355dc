// SPDX-License-Identifier: Apache-2.0
// Random tensors written in slices of boxes by some ranks and wanted in other slices of other boxes
// by other ranks: the arithmetic of the manifest against a table of every element.

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/read.hpp"
#include "core/tensor_slice.hpp"
#include "fuzz/fuzz.hpp"

using namespace finetune;
using checkpoint::BoxEntry;
using checkpoint::Extent;
using checkpoint::FoundCheckpoint;
using checkpoint::Manifest;

namespace {

constexpr std::int64_t block_bytes = 64;
constexpr std::int64_t most_elements = 4096;

/// Where an element lies: file and byte. File -1: nowhere.
using Place = std::pair<std::int64_t, std::int64_t>;

/// The manifest, and where it was decided to put each element of each tensor.
struct Written {
  FoundCheckpoint found;
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

/// Cuts a tensor along some of its dims: the boxes of the grid that have elements, in order.
std::vector<core::Box> random_boxes(FuzzedDataProvider& input,
                                    const std::vector<std::int64_t>& shape) {
  std::vector<core::Box> boxes = {core::whole_box(shape)};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto cuts = random_cuts(input, shape[d], input.ConsumeIntegralInRange(1, 3));
    std::vector<core::Box> finer;
    for (const core::Box& box : boxes) {
      for (std::size_t i = 1; i < cuts.size(); ++i) {
        if (cuts[i] == cuts[i - 1]) continue;
        finer.push_back(box);
        finer.back().begin[d] = cuts[i - 1];
        finer.back().extent[d] = cuts[i] - cuts[i - 1];
      }
    }
    boxes = std::move(finer);
  }
  return boxes;
}

/// Element `i` of `box` as an element of a tensor of this shape.
std::size_t element_of(const core::Box& box, const std::vector<std::int64_t>& shape,
                       std::int64_t i) {
  std::int64_t element = 0;
  std::int64_t scale = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    element += (box.begin[d] + i % box.extent[d]) * scale;
    i /= box.extent[d];
    scale *= shape[d];
  }
  return static_cast<std::size_t>(element);
}

void add_slice(Written& written, Extent extent, std::vector<Place>& places) {
  Manifest& manifest = written.found.manifest;
  const std::int64_t bytes = core::size_bytes(manifest.tensor_of(extent).dtype);
  auto& file = manifest.files[static_cast<std::size_t>(extent.file)];
  extent.position = file.size_bytes;
  file.size_bytes += extent.count * bytes;
  // Checksums as long as real ones: a manifest of many short numbers is refused.
  extent.crc32c.resize(static_cast<std::size_t>((extent.count * bytes - 1) / block_bytes + 1),
                       0xE3069283);
  for (std::int64_t i = 0; i < extent.count; ++i) {
    places[element_of(manifest.box_of(extent).box, manifest.tensor_of(extent).shape,
                      extent.offset + i)] = {extent.file, extent.position + i * bytes};
  }
  manifest.extents.push_back(std::move(extent));
}

/// The slices of a box that the ranks wrote.
void add_slices(FuzzedDataProvider& input, Written& written, const BoxEntry& box,
                std::vector<Place>& places) {
  Manifest& manifest = written.found.manifest;
  manifest.boxes.push_back(box);
  const auto cuts =
      random_cuts(input, box.box.num_elements(), static_cast<int>(manifest.world_size));
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    if (cuts[i] == cuts[i - 1]) continue;
    const auto file = input.ConsumeIntegralInRange<std::int64_t>(0, std::ssize(manifest.files) - 1);
    add_slice(written,
              {std::ssize(manifest.boxes) - 1, file, cuts[i - 1], cuts[i] - cuts[i - 1], 0, {}},
              places);
  }
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
    const auto elements = static_cast<std::size_t>(manifest.tensors.back().num_elements());
    std::vector<Place> places(elements, Place{-1, -1});
    if (elements > 0) {
      for (const core::Box& box : random_boxes(input, manifest.tensors.back().shape))
        add_slices(input, written, {t, box}, places);
    }
    written.places.push_back(std::move(places));
  }
  return written;
}

/// Checks one rank's wish, a run of a box, against the table.
void read(const Written& written, std::int64_t tensor, const core::Box& box, std::int64_t offset,
          std::int64_t count) {
  const auto& entry = written.found.manifest.tensors[static_cast<std::size_t>(tensor)];
  const std::int64_t bytes = core::size_bytes(entry.dtype);
  std::vector<std::byte> target(static_cast<std::size_t>(count * bytes));
  std::vector<Place> got(static_cast<std::size_t>(count), Place{-1, -1});
  const core::TensorSlice slice{entry.name, entry.shape, entry.dtype, offset, count, box};
  for (const auto& part : checkpoint::parts_of(written.found, tensor, slice, target.data())) {
    const std::int64_t begin = (part.target - target.data()) / bytes;
    fuzz::require(part.first < part.last, "a part has elements");
    const std::int64_t origin = part.overlap.wanted(part.first);
    part.overlap.for_each_rows(part.first, part.last, [&](const checkpoint::Rows& rows) {
      for (std::int64_t i = 0; i < rows.num * rows.length; ++i) {
        const std::int64_t row = i / rows.length, column = i % rows.length;
        const std::int64_t wanted = rows.wanted + row * rows.wanted_step + column;
        const std::int64_t stored =
            rows.stored + row * rows.stored_step + column - part.extent->offset;
        fuzz::require(stored >= 0 && stored < part.extent->count, "a part lies in its extent");
        Place& place = got.at(static_cast<std::size_t>(begin + wanted - origin));
        fuzz::require(place.first == -1, "an element is read once");
        place = {part.extent->file, part.extent->position + stored * bytes};
      }
    });
  }
  const auto& places = written.places[static_cast<std::size_t>(tensor)];
  for (std::int64_t i = 0; i < count; ++i) {
    fuzz::require(
        got[static_cast<std::size_t>(i)] == places[element_of(box, entry.shape, offset + i)],
        "every element comes from where it was written");
  }
}

/// The same for a box lost, doubled, moved or of another size.
void damage_box(FuzzedDataProvider& input, Manifest& manifest) {
  const auto at = input.ConsumeIntegralInRange<std::size_t>(0, manifest.boxes.size() - 1);
  core::Box& box = manifest.boxes[at].box;
  const auto place = manifest.boxes.begin() + static_cast<std::ptrdiff_t>(at);
  if (box.begin.empty() || input.ConsumeBool()) {
    if (input.ConsumeBool()) {
      manifest.boxes.erase(place);
    } else {
      manifest.boxes.insert(place, BoxEntry(*place));
    }
    return;
  }
  const auto d = input.ConsumeIntegralInRange<std::size_t>(0, box.begin.size() - 1);
  (input.ConsumeBool() ? box.begin : box.extent)[d] += input.ConsumeBool() ? 1 : -1;
}

/// A manifest with one slice lost, doubled, moved or of another length never passes.
void damage(FuzzedDataProvider& input, Manifest manifest) {
  if (manifest.extents.empty()) return;
  const auto at = input.ConsumeIntegralInRange<std::size_t>(0, manifest.extents.size() - 1);
  Extent& extent = manifest.extents[at];
  switch (input.ConsumeIntegralInRange(0, 5)) {
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
    case 4:
      damage_box(input, manifest);
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
    const auto& shape = written.found.manifest.tensors[static_cast<std::size_t>(t)].shape;
    if (core::num_elements(shape) == 0) continue;
    for (const core::Box& box : random_boxes(input, shape)) {
      const auto cuts = random_cuts(input, box.num_elements(), ranks);
      for (std::size_t i = 1; i < cuts.size(); ++i)
        read(written, t, box, cuts[i - 1], cuts[i] - cuts[i - 1]);
    }
  }
  damage(input, written.found.manifest);
  return 0;
}
