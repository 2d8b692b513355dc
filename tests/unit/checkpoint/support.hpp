#pragma once
// SPDX-License-Identifier: Apache-2.0
// A small model whose every byte follows from its place, cut among any number of shards, and a
// folder for its checkpoints.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/load/load.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/communicator.hpp"
#include "core/tensor_slice.hpp"
#include "support/files.hpp"
#include "support/shared_folder.hpp"

namespace finetune::checkpoint::tests {

using finetune::tests::SharedFolder;

struct TestTensor {
  std::string kind;
  std::string name;
  std::vector<std::int64_t> shape;
  core::DType dtype;
};

/// Sizes that divide by nothing, all dtypes, a scalar, a tensor without elements.
std::vector<TestTensor> uneven_model();

/// Byte `index` of a tensor in the state `version`.
std::byte byte_of(const TestTensor& tensor, std::int64_t index, std::int64_t version);

/// One shard's slices of all tensors in memory.
struct Shard {
  std::vector<std::string> kinds;
  std::vector<core::TensorSlice> slices;
  std::vector<std::vector<std::byte>> data;

  std::vector<StoredSlice> stored() const;
  std::vector<WantedSlice> wanted();
};

/// Shard `index` of `count`: the elements of all tensors of one dtype in a row, cut into equal
/// runs. The first shard names tensors without elements. The data are zero.
Shard cut(const std::vector<TestTensor>& model, int index, int count);

/// The same with its data.
Shard filled(const std::vector<TestTensor>& model, int index, int count, std::int64_t version);

/// How tensors are cut: a grid of boxes, and each box into runs.
struct Grid {
  std::vector<std::int64_t> boxes;  ///< along each of the first dims; along the others one
  std::int64_t runs = 1;
};

/// Every `count`th of the runs of all boxes of all tensors, from `index` on, as far as they have
/// elements. The data are zero.
Shard cut(const std::vector<TestTensor>& model, const Grid& grid, int index, int count);

/// Fills `shard` with the bytes of `version`.
void fill(const std::vector<TestTensor>& model, Shard& shard, std::int64_t version);

/// Saves version `step` of `model` as checkpoint `step` with blocks of 64 bytes, every rank its
/// shard. Collective on `world`.
SaveReport save_model(const comm::Communicator& world, const std::filesystem::path& root,
                      std::int64_t step, const std::vector<TestTensor>& model);

/// Number of bytes of `shard` that are not those of `version`.
std::int64_t wrong_bytes(const std::vector<TestTensor>& model, const Shard& shard,
                         std::int64_t version);

inline std::string read_file(const std::filesystem::path& path) {
  return finetune::tests::file_text(path);
}
void write_file(const std::filesystem::path& path, const std::string& text);
void flip_bit(const std::filesystem::path& path, std::int64_t byte, int bit);

/// `text` with a fingerprint that fits it, as an attacker would make it.
std::string sealed(std::string text);

}  // namespace finetune::checkpoint::tests
