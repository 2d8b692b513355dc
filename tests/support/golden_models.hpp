#pragma once
// SPDX-License-Identifier: Apache-2.0
// The models of tests/golden/models as folders with weights, which most of them draw from a key.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace finetune::tests {

/// How the elements of a tensor are drawn: those of `golden/drawn.py`, to the bit.
struct DrawnTensor {
  std::uint64_t key = 0;
  std::uint64_t stream = 0;  ///< its place among the model's tensors by name
  std::int64_t count = 0;    ///< elements
  double centre = 0;         ///< their mean
  std::int64_t scale = 0;    ///< their standard deviation, in units of 65536 / sqrt(3) / 2^36
};

std::vector<float> draw(const DrawnTensor& tensor);

/// Writes the model `name` into `folder`, which is there: its files, and the weights that its
/// weights.json describes.
void write_golden_model(const std::string& name, const std::filesystem::path& folder);

/// A folder with the model `name`: that of the sources if it holds weights, else one of the build
/// folder, which the first process to ask writes.
std::filesystem::path golden_model(const std::string& name);

}  // namespace finetune::tests
