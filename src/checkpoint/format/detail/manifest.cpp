// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/detail/manifest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "checkpoint/format/detail/manifest_fields.hpp"
#include "checkpoint/format/detail/overlap.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

std::string json_text(std::string_view text) {
  return core::Json(text).dump();
}

/// Appends `"name":[` and one row a line.
template <typename Rows, typename Write>
void append_rows(std::string& text, std::string_view name, const Rows& rows, Write&& write_row) {
  text += fmt::format(",\n\"{}\":[", name);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    text += i == 0 ? "\n" : ",\n";
    write_row(rows[i]);
  }
  text += "]";
}

}  // namespace

std::int64_t TensorEntry::num_elements() const {
  return core::num_elements(shape);
}

std::int64_t Manifest::find(std::string_view kind, std::string_view name) const {
  const auto key = [](const TensorEntry& t) {
    return std::pair<std::string_view, std::string_view>(t.kind, t.name);
  };
  const std::pair wanted(kind, name);
  const auto at = std::ranges::lower_bound(tensors, wanted, {}, key);
  return at == tensors.end() || key(*at) != wanted ? -1 : at - tensors.begin();
}

std::span<const BoxEntry> Manifest::boxes_of(std::int64_t tensor) const {
  // Not equal_range: clang 14 cannot compile the subrange of GCC 12's library.
  const auto begin = std::ranges::lower_bound(boxes, tensor, {}, &BoxEntry::tensor);
  return {begin, std::ranges::upper_bound(begin, boxes.end(), tensor, {}, &BoxEntry::tensor)};
}

std::span<const Extent> Manifest::extents_of(const BoxEntry& box) const {
  const std::int64_t index = &box - boxes.data();
  const auto begin = std::ranges::lower_bound(extents, index, {}, &Extent::box);
  return {begin, std::ranges::upper_bound(begin, extents.end(), index, {}, &Extent::box)};
}

const BoxEntry& Manifest::box_of(const Extent& extent) const {
  return boxes[static_cast<std::size_t>(extent.box)];
}

const TensorEntry& Manifest::tensor_of(const Extent& extent) const {
  return tensors[static_cast<std::size_t>(box_of(extent).tensor)];
}

std::int64_t Manifest::extent_bytes(const Extent& extent) const {
  return extent.count * core::size_bytes(tensor_of(extent).dtype);
}

std::int64_t Manifest::element_of(const BoxEntry& box, std::int64_t i) const {
  const TensorEntry& tensor = tensors[static_cast<std::size_t>(box.tensor)];
  return Overlap(box.box, core::whole_box(tensor.shape)).wanted(i);
}

std::int64_t Manifest::first_element(const Extent& extent) const {
  return element_of(box_of(extent), extent.offset);
}

std::int64_t Manifest::payload_bytes() const {
  std::int64_t total = 0;
  for (const Extent& extent : extents)
    total += extent_bytes(extent);
  return total;
}

std::string to_text(const Manifest& manifest) {
  std::string text = fmt::format(
      "{{\"{}\":{},\n\"{}\":{},\n\"{}\":{},\n\"{}\":{},\n\"{}\":{},\n\"{}\":{},\n\"{}\":{},\n"
      "\"{}\":{}",
      field::format, json_text(field::format_value), field::version, field::version_value,
      field::step, manifest.step, field::world_size, manifest.world_size, field::block_bytes,
      manifest.block_bytes, field::created_by, json_text(core::printable(manifest.created_by)),
      field::state_bytes, manifest.state_bytes, field::state_fingerprint,
      json_text(manifest.state_fingerprint));
  append_rows(text, field::files, manifest.files, [&](const FileEntry& f) {
    fmt::format_to(std::back_inserter(text), "[{},{},{}]", json_text(f.name), f.size_bytes,
                   f.skeleton_crc32c);
  });
  append_rows(text, field::tensors, manifest.tensors, [&](const TensorEntry& t) {
    fmt::format_to(std::back_inserter(text), "[{},{},{},[{}]]", json_text(t.kind),
                   json_text(t.name), json_text(core::name(t.dtype)), fmt::join(t.shape, ","));
  });
  append_rows(text, field::boxes, manifest.boxes, [&](const BoxEntry& b) {
    fmt::format_to(std::back_inserter(text), "[{},[{}],[{}]]", b.tensor,
                   fmt::join(b.box.begin, ","), fmt::join(b.box.extent, ","));
  });
  append_rows(text, field::slices, manifest.extents, [&](const Extent& e) {
    fmt::format_to(std::back_inserter(text), "[{},{},{},{},{},[{}]]", e.box, e.file, e.offset,
                   e.count, e.position, fmt::join(e.crc32c, ","));
  });
  text += ",\n";
  const std::string fingerprint = core::fingerprint(text);
  text += fmt::format("\"{}\":\"{}\"}}\n", field::fingerprint, fingerprint);
  return text;
}

}  // namespace finetune::checkpoint
