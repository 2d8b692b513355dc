#pragma once
// SPDX-License-Identifier: Apache-2.0
// What of a rank's memory is neither the model's nor the program's: tokenizer and data.

#include <cstdint>
#include <filesystem>

#include "comm/communicator.hpp"
#include "data/settings.hpp"

namespace finetune::train {

/// Bytes of host memory of each rank while it trains. Tokens are mapped from the cache and not
/// counted: the pages of a file go where others need the memory.
struct DataMemory {
  std::int64_t tokenizer = 0;
  std::int64_t packing = 0;  ///< which samples share a sequence
};

/// By sizes of files, as the root sees them; nothing of what is not there. A tokenizer takes 6 to
/// 12 times its tokenizer.json (five published ones, measured); of data no more is known than that
/// a sample has some 256 bytes. Collective on `world`.
DataMemory data_memory(const comm::Communicator& world, const data::DataSettings& data,
                       const std::filesystem::path& model_folder,
                       const std::filesystem::path& deck_path);

}  // namespace finetune::train
