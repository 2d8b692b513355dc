#pragma once
// SPDX-License-Identifier: Apache-2.0
// Writes a model as a Hugging Face folder.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/safetensors_writer.hpp"

namespace finetune::weights {

struct ExportPlan {
  std::vector<TensorSpec> tensors;  ///< dtypes F32, BF16 or F16, but for export_bytes
  std::int64_t max_shard_size_bytes = 5'000'000'000;  ///< of a file; a larger tensor gets its own
  std::map<std::string, std::string> texts = {};      ///< further files: name and content
  std::string stem = "model";                         ///< how the files' names begin
  /// Of `tensors`, which have their shapes in memory, those that are written as [in, out].
  std::set<std::string, std::less<>> transposed = {};
  std::string sums = {};  ///< name of a file with a hash of each other file; empty: none
};

/// A file of the export and its tensors, in the order in which they are written.
struct ExportFile {
  std::string name;
  std::vector<TensorSpec> tensors;
};

/// Fills files in the plan's order: `model.safetensors` if one is enough, otherwise
/// `model-00001-of-0000N.safetensors` and so on. Within a file larger element types come first, so
/// that every tensor is aligned.
std::vector<ExportFile> plan_files(const ExportPlan& plan);

/// Gives elements [first_element, first_element + piece.size()) of the row-major tensor `name`.
/// Called for tensors in the order of plan_files, pieces in order, at most 16 MiB each.
using ReadPiece =
    std::function<void(std::string_view name, std::int64_t first_element, std::span<float> piece)>;

/// The same in the tensor's dtype.
using ReadBytes = std::function<void(std::string_view name, std::int64_t first_element,
                                     std::span<std::byte> piece)>;

/// Writes the model to the folder `out`, rounded to the plan's dtypes (a value that came from such
/// a dtype keeps its bits; a NaN in BF16 or F16 becomes the usual one), with the files of the model
/// folder `copy_from` that describe it (configuration, tokenizer, chat template) byte for byte; an
/// empty `copy_from` copies nothing. The plan's texts are written next to them, or replace them.
/// `out` appears when it is complete; before, the files lie in `out`.tmp.PID, which is removed if
/// something fails. Memory: one piece as fp32 and as written. Throws: ErrorKind::create if `out`
/// holds something or cannot be made; ErrorKind::numbers if a finite value would become infinite in
/// F16; ErrorKind::io; what `read_piece` throws.
void export_folder(const std::filesystem::path& out, const ExportPlan& plan,
                   const ReadPiece& read_piece, const std::filesystem::path& copy_from);

/// The same for tensors of any dtype, which are written as they are given.
void export_bytes(const std::filesystem::path& out, const ExportPlan& plan,
                  const ReadBytes& read_bytes, const std::filesystem::path& copy_from);

}  // namespace finetune::weights
