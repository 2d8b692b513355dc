#pragma once
// SPDX-License-Identifier: Apache-2.0
// What a GGUF file says of a model's numbers, and which models can be said.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gguf_tokenizer.hpp"
#include "model/architecture.hpp"

namespace finetune::app {

/// How a family is called there.
struct GgufTarget {
  std::string architecture;
  bool pairs_channels = false;  ///< queries and keys have the halves of their channels mixed
};

/// Throws: ErrorKind::input for a model that llama.cpp would not compute, or compute otherwise
/// without a word.
GgufTarget gguf_target_of(const std::filesystem::path& folder, const model::Architecture& a);

/// Adds the keys of the model's name, kind and numbers.
void add_gguf_model(const model::Architecture& a, const GgufTarget& target, const std::string& name,
                    std::uint32_t file_type, GgufValues& values);

/// Factors that Llama 3.1's long wavelengths are divided by, one per pair of channels; else none.
std::vector<float> gguf_rope_factors(const model::Architecture& a);

}  // namespace finetune::app
