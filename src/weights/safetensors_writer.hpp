#pragma once
// SPDX-License-Identifier: Apache-2.0
// Writes a safetensors file piece by piece: no tensor is ever whole in memory.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "core/file.hpp"

namespace finetune::weights {

struct TensorSpec {
  std::string name;
  core::DType dtype = core::DType::f32;
  std::vector<std::int64_t> shape;

  std::int64_t size_bytes() const;
};

/// A file under a temporary name next to `path`, which gets its name when complete. Without
/// `finish` nothing remains.
class SafetensorsWriter {
 public:
  /// Writes the header and reserves the space. `tensors` is the order of the data; readers map the
  /// file, so larger element types belong first.
  /// Throws: ErrorKind::create if the file cannot be made or the disk has not the space;
  /// ErrorKind::bug for names or shapes that the format does not allow.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Appends `piece` to tensor `name`; tensors come whole and in order. Throws: ErrorKind::io;
  /// ErrorKind::bug for a piece out of order or beyond its tensor.
  void write(std::string_view name, std::span<const std::byte> piece);

  /// Syncs the file and gives it its name. Throws: ErrorKind::io; ErrorKind::bug if bytes are
  /// missing.
  void finish();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::vector<TensorSpec> tensors_;
  std::optional<core::File> file_;
  std::size_t current_ = 0;           ///< tensor being written
  std::int64_t left_in_current_ = 0;  ///< its bytes not yet written
  std::int64_t position_ = 0;         ///< in the file
};

}  // namespace finetune::weights
