// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/detail/records.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.hpp"
#include "core/json.hpp"

namespace finetune::checkpoint {
namespace {

using core::Json;

// CBOR between ranks of one program: compact, and no encoding of our own.
std::string pack(const Json& json) {
  std::string bytes;
  Json::to_cbor(json, bytes);
  return bytes;
}

Json describe(const std::string& kind, const core::TensorSlice& slice) {
  const Json box = slice.box ? Json::array({slice.box->begin, slice.box->extent}) : Json();
  return Json::array({kind, slice.name, static_cast<int>(slice.dtype), slice.shape, slice.offset,
                      slice.count, box});
}

core::TensorSlice slice_of(const Json& row) {
  using Integers = std::vector<std::int64_t>;
  core::TensorSlice slice{row[1].get<std::string>(), row[3].get<Integers>(),
                          static_cast<core::DType>(row[2].get<int>()), row[4].get<std::int64_t>(),
                          row[5].get<std::int64_t>()};
  if (const Json& box = row[6]; !box.is_null())
    slice.box = {box[0].get<Integers>(), box[1].get<Integers>()};
  return slice;
}

using TensorKey = std::pair<std::string, std::string>;  // kind, name
using TensorMap = std::map<TensorKey, TensorEntry>;

void add_tensor(TensorMap& tensors, const std::string& kind, const core::TensorSlice& slice) {
  const auto [entry, is_new] = tensors.try_emplace(
      {kind, slice.name}, TensorEntry{kind, slice.name, slice.dtype, slice.shape});
  core::check(is_new || (entry->second.dtype == slice.dtype && entry->second.shape == slice.shape),
              "all ranks save a tensor with the same dtype and shape");
}

using BoxKey = std::pair<std::int64_t, core::Box>;  // tensor

/// A slice with elements as it stands in the record of its rank.
struct PlacedSlice {
  BoxKey box;
  Extent extent;  ///< but for its box
};

/// Fills in boxes and extents.
void add_slices(Manifest& manifest, std::vector<PlacedSlice> slices) {
  std::ranges::sort(slices, {}, [](const PlacedSlice& slice) {
    return std::pair<const BoxKey&, std::int64_t>(slice.box, slice.extent.offset);
  });
  const BoxKey* before = nullptr;
  for (PlacedSlice& slice : slices) {
    if (before == nullptr || *before != slice.box)
      manifest.boxes.push_back({slice.box.first, slice.box.second});
    before = &slice.box;
    slice.extent.box = std::ssize(manifest.boxes) - 1;
    manifest.extents.push_back(std::move(slice.extent));
  }
}

}  // namespace

GroupDatasets gather_datasets(const comm::Communicator& group,
                              std::span<const StoredSlice> slices) {
  Json own = Json::array();
  for (const StoredSlice& stored : slices) {
    if (stored.slice.count > 0) own.push_back(describe(stored.kind, stored.slice));
  }
  GroupDatasets result;
  const auto texts = group.all_gather_text(pack(own));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (rank == static_cast<std::size_t>(group.rank())) result.first_own = result.datasets.size();
    for (const Json& row : Json::from_cbor(texts[rank]))
      result.datasets.push_back({row[0].get<std::string>(), slice_of(row)});
  }
  return result;
}

std::string to_record(const std::optional<FileEntry>& file, const std::string& file_name,
                      const std::vector<SliceRecord>& slices) {
  Json json = {{"file", file_name}, {"slices", Json::array()}};
  if (file) json["made"] = {file->size_bytes, file->skeleton_crc32c};
  for (const SliceRecord& record : slices) {
    Json row = describe(record.kind, record.slice);
    row.push_back(record.position);
    row.push_back(record.crc32c);
    json["slices"].push_back(std::move(row));
  }
  return pack(json);
}

void add_records(Manifest& manifest, const std::vector<std::string>& records) {
  std::vector<Json> unpacked;
  std::map<std::string, std::int64_t> file_index;
  TensorMap tensors;
  for (const std::string& record : records) {
    const Json& json = unpacked.emplace_back(Json::from_cbor(record));
    if (json.contains("made")) {
      const auto& made = json["made"];
      manifest.files.push_back({json["file"].get<std::string>(), made[0].get<std::int64_t>(),
                                made[1].get<std::uint32_t>()});
    }
    for (const Json& row : json["slices"])
      add_tensor(tensors, row[0].get<std::string>(), slice_of(row));
  }
  std::ranges::sort(manifest.files, {}, &FileEntry::name);
  for (std::size_t i = 0; i < manifest.files.size(); ++i)
    file_index[manifest.files[i].name] = static_cast<std::int64_t>(i);

  std::map<TensorKey, std::int64_t> tensor_index;
  for (auto& [key, tensor] : tensors) {
    tensor_index[key] = std::ssize(manifest.tensors);
    manifest.tensors.push_back(std::move(tensor));
  }
  std::vector<PlacedSlice> slices;
  for (const Json& json : unpacked) {
    const std::int64_t file = file_index.at(json["file"].get<std::string>());
    for (const Json& row : json["slices"]) {
      const core::TensorSlice slice = slice_of(row);
      if (slice.count == 0) continue;
      const TensorKey key(row[0].get<std::string>(), slice.name);
      slices.push_back({{tensor_index.at(key), slice.box_or_whole()},
                        {-1, file, slice.offset, slice.count, row[7].get<std::int64_t>(),
                         row[8].get<std::vector<std::uint32_t>>()}});
    }
  }
  add_slices(manifest, std::move(slices));
}

}  // namespace finetune::checkpoint
