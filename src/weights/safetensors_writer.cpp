// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors_writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/tensor_slice.hpp"
#include "core/text.hpp"
#include "weights/detail/names.hpp"
#include "weights/detail/safetensors.hpp"

namespace finetune::weights {
namespace {

namespace fs = std::filesystem;

/// `text` as a JSON string.
std::string json(std::string_view text) {
  return core::Json(text).dump();
}

void check_names(const std::vector<TensorSpec>& tensors) {
  std::set<std::string_view> names = {"__metadata__"};
  for (const TensorSpec& tensor : tensors) {
    core::check(names.insert(tensor.name).second, "tensors have different names");
    core::check(tensor.name.size() <= longest_tensor_name, "names of tensors are short");
    core::check(tensor.shape.size() <= most_dims, "tensors have at most 8 dims");
  }
}

/// Length and text, padded with spaces so that the data begin at a multiple of 8 bytes.
std::string header_of(const std::vector<TensorSpec>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::string text = "{\"__metadata__\":" + core::Json(metadata).dump();
  std::int64_t begin = 0;
  for (const TensorSpec& tensor : tensors) {
    const std::int64_t end = begin + tensor.size_bytes();
    text += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                        json(tensor.name), core::name(tensor.dtype),
                        core::Json(tensor.shape).dump(), begin, end);
    begin = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string prefix;
  for (int i = 0; i < 8; ++i)
    prefix += static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i) & 0xFF);
  return prefix + text;
}

/// Asks the file system for all the space now: a full disk is noticed before the work, not after.
void reserve(const core::File& file, const fs::path& path, std::int64_t size_bytes) {
  if (::fallocate(file.descriptor(), 0, 0, size_bytes) == 0) return;
  // Other answers mean that this file system does not know how.
  if (errno != ENOSPC && errno != EDQUOT && errno != EFBIG) return;
  core::fail(
      core::ErrorKind::create,
      {path.string(), fmt::format("there is no space for {}", core::human_bytes(size_bytes)),
       core::system_reason(), core::remedy_for_space("Make room or choose another folder.")});
}

}  // namespace

std::int64_t TensorSpec::size_bytes() const {
  return core::num_elements(shape) * core::size_bytes(dtype);
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<TensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path),
      temporary_(path.string() + fmt::format(".tmp.{}", ::getpid())),
      tensors_(std::move(tensors)) {
  check_names(tensors_);
  const std::string header = header_of(tensors_, metadata);
  core::check(std::ssize(header) - length_bytes <= largest_header_bytes, "the header is short");
  std::error_code ignored;
  fs::remove(temporary_, ignored);
  file_.emplace(temporary_, core::File::Mode::create_new, core::ErrorKind::create);
  try {
    position_ = std::ssize(header);
    std::int64_t data_bytes = 0;
    for (const TensorSpec& tensor : tensors_)
      data_bytes += tensor.size_bytes();
    reserve(*file_, path_, position_ + data_bytes);
    file_->write_at(0, std::as_bytes(std::span(header)));
  } catch (...) {
    fs::remove(temporary_, ignored);  // there is no destructor before the constructor's end
    throw;
  }
  if (!tensors_.empty()) left_in_current_ = tensors_[0].size_bytes();
}

SafetensorsWriter::~SafetensorsWriter() {
  std::error_code ignored;
  if (file_) fs::remove(temporary_, ignored);
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> piece) {
  core::check(file_.has_value(), "nothing is written to a finished file");
  if (piece.empty()) return;
  while (left_in_current_ == 0 && current_ + 1 < tensors_.size())
    left_in_current_ = tensors_[++current_].size_bytes();
  core::check(current_ < tensors_.size() && tensors_[current_].name == name,
              "tensors are written in order");
  core::check(std::ssize(piece) <= left_in_current_, "a piece stays inside its tensor");
  file_->write_at(position_, piece);
  position_ += std::ssize(piece);
  left_in_current_ -= std::ssize(piece);
}

void SafetensorsWriter::finish() {
  core::check(file_.has_value(), "a file is finished once");
  std::int64_t missing = left_in_current_;
  for (std::size_t i = current_ + 1; i < tensors_.size(); ++i)
    missing += tensors_[i].size_bytes();
  core::check(missing == 0, "all tensors are written before the file is finished");
  file_->sync();
  file_->close();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    core::fail(core::ErrorKind::io, {path_.string(), "cannot be renamed into place",
                                     core::system_reason(), "Look at the file system."});
  }
  file_.reset();
  core::sync_folder(path_.parent_path().empty() ? "." : path_.parent_path());
}

}  // namespace finetune::weights
