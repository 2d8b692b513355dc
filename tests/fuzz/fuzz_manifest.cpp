// SPDX-License-Identifier: Apache-2.0
// MANIFEST.json without its last field, the fingerprint, which is added here so that it fits:
// refused, or every element of every tensor lies in exactly one place of a file. The input as it
// is, too.

#include <algorithm>
#include <cstring>

#include "checkpoint/format/detail/manifest.hpp"
#include "core/hash.hpp"
#include "core/tensor_slice.hpp"
#include "fuzz/fuzz.hpp"
#include "fuzz/json_mutator.hpp"

using namespace finetune;
using checkpoint::BoxEntry;
using checkpoint::Extent;
using checkpoint::Manifest;

namespace {

std::string sealed(std::string_view body) {
  std::string text(body);
  return text + "\"fingerprint\":\"" + core::fingerprint(body) + "\"}\n";
}

/// Elements of a box, all of which lie in its slices.
std::int64_t check_box(const Manifest& manifest, const BoxEntry& box) {
  std::int64_t next = 0;
  for (const Extent& extent : manifest.extents_of(box)) {
    fuzz::require(&manifest.box_of(extent) == &box && extent.offset == next,
                  "slices follow each other");
    const auto& file = manifest.files.at(static_cast<std::size_t>(extent.file));
    const std::int64_t bytes = manifest.extent_bytes(extent);
    fuzz::require(bytes > 0 && extent.position >= 0 && extent.position <= file.size_bytes - bytes,
                  "a slice lies in its file");
    next += extent.count;
  }
  fuzz::require(next == box.box.num_elements(), "slices cover their box");
  return next;
}

void check(const Manifest& manifest) {
  std::int64_t total = 0;
  for (std::int64_t t = 0; t < std::ssize(manifest.tensors); ++t) {
    const auto& tensor = manifest.tensors[static_cast<std::size_t>(t)];
    fuzz::require(manifest.find(tensor.kind, tensor.name) == t, "a tensor is found by its name");
    std::int64_t elements = 0;
    for (const BoxEntry& box : manifest.boxes_of(t)) {
      fuzz::require(box.tensor == t && core::is_inside(box.box, tensor.shape),
                    "a box lies in its tensor");
      elements += check_box(manifest, box);
      total += box.box.num_elements() * core::size_bytes(tensor.dtype);
    }
    fuzz::require(elements == core::num_elements(tensor.shape), "boxes cover their tensor");
  }
  fuzz::require(total == manifest.payload_bytes(), "all bytes are counted");
  const std::string text = checkpoint::to_text(manifest);
  fuzz::require(checkpoint::to_text(checkpoint::parse_manifest(text, "M")) == text,
                "what is written reads back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body = fuzz::text_of(data, size);
  for (const std::string& text : {std::string(body), sealed(body)}) {
    Manifest manifest;
    if (fuzz::accepts("M: ", [&] { manifest = checkpoint::parse_manifest(text, "M"); }))
      check(manifest);
  }
  return 0;
}

// The body lacks its end, so it becomes JSON for the time of the mutation.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t limit, unsigned seed) {
  std::string_view body = fuzz::text_of(data, size);
  if (!body.ends_with(",\n") || limit < 16) return fuzz::mutate_json(data, size, limit, seed);
  body.remove_suffix(2);
  std::string changed = fuzz::mutate_json(std::string(body) + "}", limit - 8, seed);
  if (changed.ends_with('}')) changed.replace(changed.size() - 1, 1, ",\n");
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
