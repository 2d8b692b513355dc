#pragma once
// SPDX-License-Identifier: Apache-2.0
// The tensors of a Hugging Face folder, read by byte range: each rank reads what it needs.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "core/dtype.hpp"
#include "core/file.hpp"
#include "core/tensor_slice.hpp"

namespace finetune::weights {

/// In a folder that holds changes of another one: {"base": its path, "tensors": a safetensors
/// file}.
inline constexpr const char* changes_name = "finetune_changes.json";

/// Whether `path` holds any safetensors file, whole or not: folders with config.json alone are
/// planned with.
bool has_weights(const std::filesystem::path& path);

/// A model in one or several safetensors files. Opening reads headers only; the files are opened
/// again by each reader. Movable; one thread at a time.
class ModelFiles {
 public:
  struct Entry {
    core::DType dtype = core::DType::f32;
    std::vector<std::int64_t> shape;
    std::size_t file = 0;           ///< index into files()
    std::int64_t offset_bytes = 0;  ///< of the first element, from the start of the file
  };

  /// Opens `path`: a folder with `model.safetensors`, or with `model.safetensors.index.json` and
  /// the files it names; or one with a changes_name, whose tensors take the place of those of the
  /// folder that is named there; or one safetensors file. Only the root touches the file system;
  /// the others get path and headers from it. Collective on `world`. Throws, on every rank:
  /// ErrorKind::input if anything is missing, truncated or contradictory; all such files at once.
  static ModelFiles open(const comm::Communicator& world, const std::filesystem::path& path);

  /// One file of a folder, read as those of a model (see open_in_folder).
  static ModelFiles open(const comm::Communicator& world, const std::filesystem::path& folder,
                         const std::string& file);

  /// The same for this process alone.
  static ModelFiles open(const std::filesystem::path& path);

  bool contains(std::string_view name) const { return entries_.contains(name); }

  /// Throws: ErrorKind::input for a name that is not there.
  const Entry& entry(std::string_view name) const;

  /// All tensors, sorted by name.
  std::vector<std::string> names() const;

  /// Reads elements [wanted.offset, wanted.offset + wanted.count) of the row-major tensor into
  /// `target`, converted from the file's dtype to `wanted.dtype` (between F32, BF16, F16 and F64;
  /// others are only copied). Only these bytes are read from the file. Memory beyond `target`: a
  /// buffer of a few MiB that is used again.
  /// Throws: ErrorKind::input if the file has another shape, a dtype that cannot be converted, or
  /// changed since it was opened; ErrorKind::io.
  void read(const core::TensorSlice& wanted, std::span<std::byte> target) const;

  /// Elements [first, ...) of a tensor in the dtype that the file has them in.
  /// Throws: ErrorKind::input for a name that is not there; ErrorKind::io.
  void read_stored(std::string_view name, std::int64_t first, std::span<std::byte> target) const;

  /// Bytes of tensors read from files by this object so far; headers are not counted.
  std::int64_t bytes_read() const { return bytes_read_; }

  /// Bytes of all tensors together.
  std::int64_t size_bytes() const;

  const std::filesystem::path& folder() const { return folder_; }
  /// Where a tensor lies. Throws: ErrorKind::input for a name that is not there.
  std::filesystem::path file_of(std::string_view name) const;
  /// Names of the files inside folder().
  std::vector<std::string> files() const;

 private:
  struct DataFile {
    std::filesystem::path folder;
    std::string name;
    std::int64_t size_bytes = 0;
    mutable std::optional<core::File> handle;  ///< opened when first read from
  };

  explicit ModelFiles(std::string_view headers);
  enum class Names { are_new, may_replace };
  void add_file(DataFile file, std::string_view header, Names names);
  void check_index(std::string_view index) const;
  /// transformers saves a model without its head under names that lack their first part, and GPT-2
  /// is published so: such tensors get the names that they have in the whole model.
  void add_first_parts();
  const core::File& opened(const DataFile& file) const;

  std::filesystem::path folder_;
  std::vector<DataFile> files_;
  std::map<std::string, Entry, std::less<>> entries_;
  mutable std::vector<std::byte> buffer_;
  mutable std::int64_t bytes_read_ = 0;
};

}  // namespace finetune::weights
