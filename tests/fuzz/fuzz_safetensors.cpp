// SPDX-License-Identifier: Apache-2.0
// A safetensors file: either refused, or every byte of its data belongs to exactly one tensor.

#include <algorithm>
#include <array>
#include <cstring>

#include "fuzz/fuzz.hpp"
#include "fuzz/json_mutator.hpp"
#include "weights/detail/safetensors.hpp"

using namespace finetune;

namespace {

weights::SafetensorsHeader parse(std::string_view file) {
  if (file.size() < 8) core::fail(core::ErrorKind::input, {"m", "too short", "", ""});
  std::array<std::byte, 8> prefix;
  std::memcpy(prefix.data(), file.data(), 8);
  const auto size = static_cast<std::int64_t>(file.size());
  const auto length = weights::header_length(prefix, size, "m");
  return weights::parse_safetensors(file.substr(8, static_cast<std::size_t>(length)), size, "m");
}

void check(const weights::SafetensorsHeader& header, std::string_view file) {
  if (header.tensors.empty()) return;
  std::int64_t position = header.tensors.front().offset_bytes;
  for (const weights::SafetensorsTensor& tensor : header.tensors) {
    fuzz::require(tensor.offset_bytes == position, "tensors follow each other");
    std::int64_t bytes = core::size_bytes(tensor.dtype);
    for (const std::int64_t dim : tensor.shape)
      bytes *= dim;
    fuzz::require(bytes == tensor.size_bytes && bytes >= 0, "shape and bytes agree");
    position += bytes;
  }
  fuzz::require(position == std::ssize(file), "the last tensor ends with the file");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file = fuzz::text_of(data, size);
  weights::SafetensorsHeader header;
  if (fuzz::accepts("m: ", [&] { header = parse(file); })) check(header, file);
  return 0;
}

// Mutates the header as JSON and lets its length fit again, mostly.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t limit, unsigned seed) {
  std::uint64_t length = 0;
  if (size >= 8) std::memcpy(&length, data, 8);
  if (size < 8 || length > size - 8 || limit < 16)
    return fuzz::mutate_json(data, size, limit, seed);
  const std::string_view all = fuzz::text_of(data, size);
  const std::string payload(all.substr(8 + length));
  const std::size_t room = limit - 8 - std::min(limit - 8, payload.size());
  const std::string header = fuzz::mutate_json(all.substr(8, length), room, seed);
  length = header.size() + (seed % 16 == 1 ? 1 : 0);
  std::memcpy(data, &length, 8);
  std::memcpy(data + 8, header.data(), header.size());
  const std::size_t kept = std::min(payload.size(), limit - 8 - header.size());
  std::memcpy(data + 8 + header.size(), payload.data(), kept);
  return 8 + header.size() + kept;
}
