// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/records.hpp"

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
  return Json::array(
      {kind, slice.name, static_cast<int>(slice.dtype), slice.shape, slice.offset, slice.count});
}

core::TensorSlice slice_of(const Json& row) {
  return {row[1].get<std::string>(), row[3].get<std::vector<std::int64_t>>(),
          static_cast<core::DType>(row[2].get<int>()), row[4].get<std::int64_t>(),
          row[5].get<std::int64_t>()};
}

using TensorKey = std::pair<std::string, std::string>;  // kind, name
using TensorMap = std::map<TensorKey, TensorEntry>;

void add_tensor(TensorMap& tensors, const std::string& kind, const core::TensorSlice& slice) {
  const auto [entry, is_new] = tensors.try_emplace(
      {kind, slice.name}, TensorEntry{kind, slice.name, slice.dtype, slice.shape});
  core::check(is_new || (entry->second.dtype == slice.dtype && entry->second.shape == slice.shape),
              "all ranks save a tensor with the same dtype and shape");
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
  for (const Json& json : unpacked) {
    for (const Json& row : json["slices"]) {
      const core::TensorSlice slice = slice_of(row);
      if (slice.count == 0) continue;
      const TensorKey key(row[0].get<std::string>(), slice.name);
      manifest.extents.push_back(
          {tensor_index.at(key), file_index.at(json["file"].get<std::string>()), slice.offset,
           slice.count, row[6].get<std::int64_t>(), row[7].get<std::vector<std::uint32_t>>()});
    }
  }
  std::ranges::sort(manifest.extents, {},
                    [](const Extent& e) { return std::pair(e.tensor, e.offset); });
}

}  // namespace finetune::checkpoint
