// SPDX-License-Identifier: Apache-2.0
#include "weights/model_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "weights/detail/fields.hpp"
#include "weights/detail/index.hpp"
#include "weights/detail/names.hpp"
#include "weights/detail/safetensors.hpp"
#include "weights/folder.hpp"

namespace finetune::weights {
namespace {

namespace fs = std::filesystem;

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";
constexpr std::int64_t piece_bytes = 4 << 20;

[[noreturn]] void refuse(const fs::path& where, const std::string& problem, const std::string& why,
                         const std::string& remedy) {
  core::fail(core::ErrorKind::input, {where.string(), problem, why, remedy});
}

/// "model-00002-of-00003.safetensors": the second of three. Nothing: a file of another name.
struct Shard {
  std::size_t number = 0, count = 0;
};
std::optional<Shard> shard_named(std::string_view name) {
  constexpr std::string_view begin = "model-", middle = "-of-", end = ".safetensors";
  constexpr std::size_t digits = 5;
  if (name.size() != begin.size() + digits + middle.size() + digits + end.size() ||
      !name.starts_with(begin) || !name.ends_with(end) ||
      name.substr(begin.size() + digits, middle.size()) != middle)
    return std::nullopt;
  const auto number = [&](std::size_t at) {
    std::size_t value = 0;
    const std::string_view text = name.substr(at, digits);
    const auto [last, error] = std::from_chars(text.data(), text.data() + digits, value);
    return error == std::errc() && last == text.data() + digits ? value : 0;
  };
  const Shard shard{number(begin.size()), number(begin.size() + digits + middle.size())};
  if (shard.number == 0 || shard.number > shard.count) return std::nullopt;
  return shard;
}

/// Shards of a model without their index: which of them are there, and which are not.
void refuse_shards_without_index(const fs::path& folder) {
  std::error_code ignored;
  std::set<std::size_t> there;
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto shard = shard_named(entry.path().filename().string());
    if (!shard) continue;
    there.insert(shard->number);
    count = std::max(count, shard->count);
  }
  if (there.empty()) return;
  constexpr std::size_t most = 8;
  std::vector<std::string> missing = {index_name};
  for (std::size_t number = 1; number <= count && missing.size() <= most; ++number)
    if (!there.contains(number))
      missing.push_back(fmt::format("model-{:05d}-of-{:05d}.safetensors", number, count));
  if (missing.size() > most) missing.back() = "...";
  refuse(folder,
         fmt::format("lacks {} ({} of its {} safetensors files are there)",
                     fmt::join(missing, ", "), there.size(), count),
         "the index says which tensors a model has, and in which file",
         "Copy or download what is missing, with the hub's own tool as README.md says.");
}

/// Why a folder without safetensors files cannot be used, as far as one can see.
[[noreturn]] void refuse_folder(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) {
    refuse(folder, "no such model folder", "a Hugging Face model is needed", "Check model.path.");
  }
  if (!fs::is_directory(folder, ignored)) {
    refuse(folder, "is neither a folder nor a safetensors file", "a Hugging Face model is needed",
           "Check model.path.");
  }
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!is_in_folder(folder, pickle)) continue;
    refuse(folder, fmt::format("has {} but no safetensors files", pickle),
           "loading pickle files can run code that is hidden in them",
           "Save the model with transformers' save_pretrained first.");
  }
  refuse_shards_without_index(folder);
  refuse(folder, fmt::format("has neither {} nor {}", single_name, index_name),
         "a Hugging Face model has one of them", "Check model.path.");
}

/// The distinct files of an index, sorted.
std::set<std::string> files_of(const WeightMap& map) {
  std::set<std::string> files;
  for (const auto& [tensor, file] : map)
    files.insert(file);
  return files;
}

void append_file(const fs::path& folder, const std::string& name, std::string& packed) {
  const core::File file = open_in_folder(folder, name);
  append_field(packed, name);
  append_field(packed, std::to_string(file.size_bytes()));
  append_field(packed, read_header_text(file));
}

/// Folder, index (or nothing), then name, size and header of each file, packed.
std::string read_headers(const fs::path& folder, const std::string& only_file) {
  std::string packed;
  std::set<std::string> names = {only_file};
  std::string index;
  if (only_file.empty()) {
    index = read_text_in_folder(folder, index_name, largest_index_bytes);
    names = files_of(parse_index(index, (folder / index_name).string()));
  }
  append_field(packed, folder.string());
  append_field(packed, index);
  for (const std::string& name : names) {
    append_file(folder, name, packed);
    if (std::ssize(packed) > largest_header_bytes + largest_index_bytes) {
      refuse(folder, "the headers of its files are too long",
             fmt::format("together at most {}", core::human_bytes(largest_header_bytes)),
             "Is it the right folder?");
    }
  }
  return packed;
}

std::string read_base_headers(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) {
    const fs::path file = fs::canonical(path);
    return read_headers(file.parent_path(), file.filename().string());
  }
  if (is_in_folder(path, single_name)) return read_headers(path, single_name);
  if (is_in_folder(path, index_name)) return read_headers(path, "");
  refuse_folder(path);
}

/// The headers of a folder, or of one that has changes of it, its own folder and its one file.
std::string with_changes(const std::string& headers, const fs::path& folder = {},
                         const std::string& file = {}) {
  std::string packed;
  append_field(packed, folder.string());
  append_field(packed, headers);
  if (!file.empty()) append_file(folder, file, packed);
  return packed;
}

std::string read_headers(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) || !is_in_folder(path, changes_name))
    return with_changes(read_base_headers(path));
  const std::string where = (path / changes_name).string();
  const core::Json changes =
      core::parse_json(read_text_in_folder(path, changes_name, largest_index_bytes), where);
  const auto text = [&](const char* key) {
    const auto found = changes.find(key);
    if (found == changes.end() || !found->is_string())
      refuse(where, fmt::format("has no {}", key), "it says which model the folder changes",
             "Remove the folder: the next start writes it again.");
    return found->get<std::string>();
  };
  return with_changes(read_base_headers(text("base")), path, text("tensors"));
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
  std::string headers =
      comm::agree(world, [&] { return world.is_root() ? read_headers(path) : std::string(); });
  headers = world.broadcast_text(std::move(headers));
  return comm::agree(world, [&] { return ModelFiles(headers); });
}

ModelFiles ModelFiles::open(const comm::Communicator& world, const fs::path& folder,
                            const std::string& file) {
  std::string headers = comm::agree(world, [&] {
    return world.is_root() ? with_changes(read_headers(folder, file)) : std::string();
  });
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
