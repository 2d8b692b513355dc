// SPDX-License-Identifier: Apache-2.0
#include "weights/detail/headers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "core/problems.hpp"
#include "core/text.hpp"
#include "weights/detail/fields.hpp"
#include "weights/detail/index.hpp"
#include "weights/detail/safetensors.hpp"
#include "weights/folder.hpp"
#include "weights/model_files.hpp"

namespace finetune::weights {
namespace {

namespace fs = std::filesystem;

constexpr const char* single_name = "model.safetensors";

[[noreturn]] void refuse_model(const fs::path& where, const std::string& problem,
                               const std::string& why, const std::string& remedy) {
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
  refuse_model(folder,
               fmt::format("lacks {} ({} of its {} safetensors files are there)",
                           fmt::join(missing, ", "), there.size(), count),
               "the index says which tensors a model has, and in which file",
               "Copy or download what is missing, with the hub's own tool as README.md says.");
}

/// Why a folder without safetensors files cannot be used, as far as one can see.
[[noreturn]] void refuse_folder(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) {
    refuse_model(folder, "no such model folder", "a Hugging Face model is needed",
                 "Check model.path.");
  }
  if (!fs::is_directory(folder, ignored)) {
    refuse_model(folder, "is neither a folder nor a safetensors file",
                 "a Hugging Face model is needed", "Check model.path.");
  }
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!is_in_folder(folder, pickle)) continue;
    refuse_model(folder, fmt::format("has {} but no safetensors files", pickle),
                 "loading pickle files can run code that is hidden in them",
                 "Save the model with transformers' save_pretrained first.");
  }
  refuse_shards_without_index(folder);
  refuse_model(folder, fmt::format("has neither {} nor {}", single_name, index_name),
               "a Hugging Face model has one of them", "Check model.path.");
}

/// The distinct files of an index, sorted.
std::set<std::string> files_of(const WeightMap& map) {
  std::set<std::string> files;
  for (const auto& [tensor, file] : map)
    files.insert(file);
  return files;
}

/// Files that a message names: where more are bad, these tell.
constexpr std::size_t most_named = 8;

/// Files that an index names and that are not there, all in one message.
void require_files(const fs::path& folder, const std::set<std::string>& names) {
  std::vector<std::string> missing;
  // A link whose file is gone, as in a cache that was cleared, is as good as none.
  std::error_code ignored;
  for (const std::string& name : names)
    if (!fs::exists(folder / name, ignored)) missing.push_back(name);
  if (missing.empty()) return;
  const std::size_t num_missing = missing.size();
  if (missing.size() > most_named) {
    missing.resize(most_named);
    missing.emplace_back("...");
  }
  refuse_model(folder,
               fmt::format("lacks {}, and has {} of its {} safetensors files",
                           fmt::join(missing, ", "), names.size() - num_missing, names.size()),
               fmt::format("{} names them", index_name),
               "Copy or download what is missing, with the hub's own tool as README.md says.");
}

/// Whether a file was written to within the last minute, by the clock of its file system as far as
/// that is this machine's.
bool is_just_written(const fs::path& path) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  const auto age = fs::file_time_type::clock::now() - written;
  return !error && age < std::chrono::minutes(1) && age > -std::chrono::minutes(1);
}

/// Reads the header of a file, and whether the file holds what it promises. What a copy has not yet
/// brought looks the same as what was cut off.
void append_whole_file(const fs::path& folder, const std::string& name, std::string& packed) {
  try {
    const core::File file = open_in_folder(folder, name);
    const std::string header = read_header_text(file);
    (void)parse_safetensors(header, file.size_bytes(), (folder / name).string());
    append_field(packed, name);
    append_field(packed, std::to_string(file.size_bytes()));
    append_field(packed, header);
  } catch (const TruncatedFile& error) {
    if (!is_just_written(folder / name)) throw;
    throw core::Error(error.kind(), fmt::format("{} It was written to within the last minute: let "
                                                "a copy that goes on come to its end.",
                                                error.what()));
  }
}

/// Folder, index (or nothing), then name, size and header of each file, packed.
std::string read_headers(const fs::path& folder, const std::string& only_file) {
  std::string packed;
  std::set<std::string> names = {only_file};
  std::string index;
  if (only_file.empty()) {
    index = read_text_in_folder(folder, index_name, largest_index_bytes);
    names = files_of(parse_index(index, (folder / index_name).string()));
    require_files(folder, names);
  }
  append_field(packed, folder.string());
  append_field(packed, index);
  core::Problems problems;
  std::size_t num_bad = 0;
  for (const std::string& name : names) {
    if (num_bad == most_named) break;
    problems.collect([&] {
      ++num_bad;
      append_whole_file(folder, name, packed);
      --num_bad;
    });
    if (std::ssize(packed) > largest_header_bytes + largest_index_bytes) {
      refuse_model(folder, "the headers of its files are too long",
                   fmt::format("together at most {}", core::human_bytes(largest_header_bytes)),
                   "Is it the right folder?");
    }
  }
  if (const auto error = problems.error(folder.string())) throw *error;
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
  if (!file.empty()) append_whole_file(folder, file, packed);
  return packed;
}

}  // namespace

std::string read_model_headers(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) || !is_in_folder(path, changes_name))
    return with_changes(read_base_headers(path));
  const std::string where = (path / changes_name).string();
  const core::Json changes =
      core::parse_json(read_text_in_folder(path, changes_name, largest_index_bytes), where);
  const auto text = [&](const char* key) {
    const auto found = changes.find(key);
    if (found == changes.end() || !found->is_string())
      refuse_model(where, fmt::format("has no {}", key), "it says which model the folder changes",
                   "Remove the folder: the next start writes it again.");
    return found->get<std::string>();
  };
  return with_changes(read_base_headers(text("base")), path, text("tensors"));
}

std::string read_file_headers(const fs::path& folder, const std::string& file) {
  return with_changes(read_headers(folder, file));
}

bool has_weights(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return true;
  for (fs::directory_iterator i(path, error), end; !error && i != end; i.increment(error))
    if (i->path().extension() == ".safetensors") return true;
  return is_in_folder(path, changes_name);
}

}  // namespace finetune::weights
