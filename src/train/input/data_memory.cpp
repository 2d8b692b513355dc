// SPDX-License-Identifier: Apache-2.0
#include "train/input/data_memory.hpp"

#include <array>
#include <span>
#include <string>
#include <system_error>

#include "core/error.hpp"
#include "data/text/detect_format.hpp"
#include "train/input/input.hpp"

namespace finetune::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t tokenizer_times = 12;
constexpr std::int64_t sample_bytes = 256;
constexpr std::int64_t times_compressed = 4;
/// Places are four bytes a sample and a sequence (data::Sequences).
constexpr std::int64_t place_bytes = 8;

std::int64_t size_of(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  return error ? 0 : static_cast<std::int64_t>(size);
}

std::int64_t text_bytes(const data::DataSettings& data, const fs::path& deck_path) {
  std::int64_t bytes = 0;
  for (const std::string& path : data.paths) {
    data::DataPath where(resolve(path, deck_path), data.split);
    where.subset = data.subset;
    try {
      for (const fs::path& file : data::data_files(where)) {
        const std::string ending = file.extension();
        const bool is_compressed = ending == ".gz" || ending == ".zst" || ending == ".parquet";
        bytes += size_of(file) * (is_compressed ? times_compressed : 1);
      }
    } catch (const core::Error&) {
      // Whoever reads them says what is wrong with them.
    }
  }
  return bytes;
}

}  // namespace

DataMemory data_memory(const comm::Communicator& world, const data::DataSettings& data,
                       const fs::path& model_folder, const fs::path& deck_path) {
  DataMemory memory;
  if (world.is_root()) {
    memory.tokenizer = tokenizer_times * size_of(model_folder / "tokenizer.json");
    if (data.packing) memory.packing = place_bytes * (text_bytes(data, deck_path) / sample_bytes);
  }
  world.broadcast(std::as_writable_bytes(std::span(&memory, 1)));
  return memory;
}

}  // namespace finetune::train
