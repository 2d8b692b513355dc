// SPDX-License-Identifier: Apache-2.0
#include "weights/model_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/text.hpp"
#include "weights/detail/fields.hpp"
#include "weights/detail/headers.hpp"
#include "weights/detail/index.hpp"
#include "weights/detail/names.hpp"
#include "weights/detail/safetensors.hpp"
#include "weights/folder.hpp"

namespace finetune::weights {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t piece_bytes = 4 << 20;

[[noreturn]] void refuse(const fs::path& where, const std::string& problem, const std::string& why,
                         const std::string& remedy) {
  core::fail(core::ErrorKind::input, {where.string(), problem, why, remedy});
}

bool is_convertible(core::DType dtype) {
  return dtype == core::DType::f32 || dtype == core::DType::bf16 || dtype == core::DType::f16 ||
         dtype == core::DType::f64;
}

/// Tells the kernel what is read next, so that the disk works while we convert.
void announce(const core::File& file, std::int64_t offset, std::int64_t count) {
  // A hint: whether it is taken does not matter.
  (void)::posix_fadvise(file.descriptor(), offset, count, POSIX_FADV_WILLNEED);
}

}  // namespace

ModelFiles ModelFiles::open(const comm::Communicator& world, const fs::path& path) {
  std::string headers = comm::agree(
      world, [&] { return world.is_root() ? read_model_headers(path) : std::string(); });
  headers = world.broadcast_text(std::move(headers));
  return comm::agree(world, [&] { return ModelFiles(headers); });
}

ModelFiles ModelFiles::open(const comm::Communicator& world, const fs::path& folder,
                            const std::string& file) {
  std::string headers = comm::agree(
      world, [&] { return world.is_root() ? read_file_headers(folder, file) : std::string(); });
  headers = world.broadcast_text(std::move(headers));
  return comm::agree(world, [&] { return ModelFiles(headers); });
}

ModelFiles ModelFiles::open(const fs::path& path) {
  return open(comm::Communicator(), path);
}

ModelFiles::ModelFiles(std::string_view headers) {
  const fs::path changed = take_field(headers);
  std::string_view base = take_field(headers);
  folder_ = take_field(base);
  const std::string_view index = take_field(base);
  const auto add_next = [&](std::string_view& from, const fs::path& folder, Names names) {
    DataFile file{
        .folder = folder, .name = std::string(take_field(from)), .size_bytes = 0, .handle = {}};
    file.size_bytes = std::stoll(std::string(take_field(from)));
    add_file(std::move(file), take_field(from), names);
  };
  while (!base.empty())
    add_next(base, folder_, Names::are_new);
  if (!index.empty()) check_index(index);
  add_first_parts();
  if (changed.empty()) return;
  folder_ = changed;
  add_next(headers, changed, Names::may_replace);
}

void ModelFiles::add_first_parts() {
  constexpr std::array first_parts = {std::pair{"embed_tokens.weight", "model."},
                                      std::pair{"wte.weight", "transformer."},
                                      std::pair{"embed_in.weight", "gpt_neox."}};
  const auto part = std::ranges::find_if(
      first_parts, [&](const auto& each) { return entries_.contains(each.first); });
  if (part == first_parts.end()) return;
  std::map<std::string, Entry, std::less<>> named;
  for (const auto& [name, entry] : entries_) {
    const bool is_of_head = name.starts_with("lm_head.") || name.starts_with(part->second);
    named.emplace((is_of_head ? "" : part->second) + name, entry);
  }
  if (named.size() == entries_.size()) entries_ = std::move(named);
}

void ModelFiles::add_file(DataFile file, std::string_view header, Names names) {
  const fs::path where = file.folder / file.name;
  SafetensorsHeader parsed = parse_safetensors(header, file.size_bytes, where.string());
  for (SafetensorsTensor& tensor : parsed.tensors) {
    Entry entry{tensor.dtype, std::move(tensor.shape), files_.size(), tensor.offset_bytes};
    if (names == Names::may_replace) {
      entries_.insert_or_assign(tensor.name, std::move(entry));
      continue;
    }
    const auto [place, is_new] = entries_.emplace(tensor.name, std::move(entry));
    if (!is_new) {
      refuse(where,
             fmt::format("tensor {} is also in {}", in_quotes(tensor.name),
                         files_[place->second.file].name),
             "only one of the two could be meant", "Remove files of other models.");
    }
  }
  if (entries_.size() > most_tensors) {
    refuse(where,
           fmt::format("the model has more than {} tensors", core::with_commas(most_tensors)),
           "no model has as many", "Is it the right folder?");
  }
  files_.push_back(std::move(file));
}

void ModelFiles::check_index(std::string_view index) const {
  const fs::path where = folder_ / index_name;
  for (const auto& [tensor, file] : parse_index(index, where.string())) {
    const auto found = entries_.find(tensor);
    if (found != entries_.end() && files_[found->second.file].name == file) continue;
    refuse(where, fmt::format("tensor {} is not in {}", in_quotes(tensor), file),
           found == entries_.end() ? "weight_map says so, but no file has it"
                                   : "weight_map says so, but another file has it",
           "Copy or download the model again.");
  }
}

const ModelFiles::Entry& ModelFiles::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    refuse(folder_, fmt::format("has no tensor {}", in_quotes(name)), "the model needs it",
           "Check that config.json describes these files.");
  }
  return found->second;
}

fs::path ModelFiles::file_of(std::string_view name) const {
  const DataFile& file = files_[entry(name).file];
  return file.folder / file.name;
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, entry] : entries_)
    names.push_back(name);
  return names;
}

std::vector<std::string> ModelFiles::files() const {
  std::vector<std::string> names;
  for (const DataFile& file : files_)
    names.push_back(file.name);
  return names;
}

std::int64_t ModelFiles::size_bytes() const {
  std::int64_t total = 0;
  for (const auto& [name, entry] : entries_)
    total += core::num_elements(entry.shape) * core::size_bytes(entry.dtype);
  return total;
}

const core::File& ModelFiles::opened(const DataFile& file) const {
  if (!file.handle) {
    core::File handle = open_in_folder(file.folder, file.name);
    if (handle.size_bytes() != file.size_bytes) {
      refuse(file.folder / file.name, fmt::format("has {} bytes", handle.size_bytes()),
             fmt::format("it had {} when the model was opened", file.size_bytes),
             "Do not write to the model folder during a run; check that all nodes see the same.");
    }
    file.handle.emplace(std::move(handle));
  }
  return *file.handle;
}

void ModelFiles::read_stored(std::string_view name, std::int64_t first,
                             std::span<std::byte> target) const {
  const Entry& entry = this->entry(name);
  read({.name = std::string(name),
        .shape = entry.shape,
        .dtype = entry.dtype,
        .offset = first,
        .count = std::ssize(target) / core::size_bytes(entry.dtype)},
       target);
}

void ModelFiles::read(const core::TensorSlice& wanted, std::span<std::byte> target) const {
  const Entry& entry = this->entry(wanted.name);
  const DataFile& data = files_[entry.file];
  if (entry.shape != wanted.shape) {
    refuse(data.folder / data.name,
           fmt::format("tensor {} has shape {}", in_quotes(wanted.name), shape_text(entry.shape)),
           fmt::format("{} is needed", shape_text(wanted.shape)),
           "Check that config.json describes these files.");
  }
  const bool same = entry.dtype == wanted.dtype;
  if (!same && !(is_convertible(entry.dtype) && is_convertible(wanted.dtype))) {
    refuse(data.folder / data.name,
           fmt::format("tensor {} has dtype {}", in_quotes(wanted.name), core::name(entry.dtype)),
           fmt::format("{} is needed", core::name(wanted.dtype)),
           "Save the model as BF16, F16 or F32.");
  }
  const std::int64_t elements = core::num_elements(entry.shape);
  core::check(!wanted.box, "files are read in runs of whole tensors");
  core::check(wanted.offset >= 0 && wanted.count >= 0 && wanted.count <= elements &&
                  wanted.offset <= elements - wanted.count,
              "a slice lies inside its tensor");
  core::check(std::ssize(target) == wanted.size_bytes(), "the target has the size of the slice");
  if (wanted.count == 0) return;

  const core::File& file = opened(data);
  const std::int64_t element_bytes = core::size_bytes(entry.dtype);
  std::int64_t offset = entry.offset_bytes + wanted.offset * element_bytes;
  std::int64_t left = wanted.count * element_bytes;
  bytes_read_ += left;
  if (same) return file.read_at(offset, target);

  buffer_.resize(static_cast<std::size_t>(std::min(left, piece_bytes)));
  while (left > 0) {
    const std::int64_t now = std::min(left, piece_bytes);
    const auto piece = std::span(buffer_).first(static_cast<std::size_t>(now));
    file.read_at(offset, piece);
    offset += now;
    left -= now;
    if (left > 0) announce(file, offset, std::min(left, piece_bytes));
    const auto converted = target.first(
        static_cast<std::size_t>(now / element_bytes * core::size_bytes(wanted.dtype)));
    core::convert(entry.dtype, piece, wanted.dtype, converted);
    target = target.subspan(converted.size());
  }
}

}  // namespace finetune::weights
