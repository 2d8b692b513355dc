// SPDX-License-Identifier: Apache-2.0
// model.safetensors.index.json: either refused, or no value leads out of the model's folder.

#include "fuzz/fuzz.hpp"
#include "fuzz/json_mutator.hpp"
#include "weights/detail/index.hpp"

using namespace finetune;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weights::WeightMap map;
  const std::string_view text = fuzz::text_of(data, size);
  if (!fuzz::accepts("index: ", [&] { map = weights::parse_index(text, "index"); })) return 0;
  fuzz::require(!map.empty(), "an index names something");
  for (const auto& [tensor, file] : map) {
    const bool plain = !file.empty() && file.size() <= 255 && file[0] != '.' && file[0] != '-' &&
                       file.find('/') == std::string::npos && file.find('\0') == std::string::npos;
    fuzz::require(plain, "a value is a plain name");
    fuzz::require(tensor.size() <= 1024, "a name has at most 1024 bytes");
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t limit, unsigned seed) {
  return fuzz::mutate_json(data, size, limit, seed);
}
