// SPDX-License-Identifier: Apache-2.0
// Folders of MDS: whether all of their shards are there.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/decompress.hpp"
#include "data/records/detail/binary.hpp"
#include "data/records/detail/json_index.hpp"
#include "data/records/detail/mds_records.hpp"
#include "data/records/detail/mds_values.hpp"

namespace finetune::data {

namespace {

namespace fs = std::filesystem;

/// Whether the file of an entry in index.json is there; what is wrong if it is another.
bool is_whole(const fs::path& folder, const core::Json& file, const std::string& where) {
  const core::Json name = mds_field(file, "basename"), bytes = mds_field(file, "bytes");
  if (!name.is_string() || !bytes.is_number_integer()) return false;
  const fs::path path = folder / name.get<std::string>();
  if (path.parent_path() != folder || !path.has_filename())
    fail_binary(where, "names a file of another folder", "shards lie beside it");
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return false;
  if (size == bytes.get<std::uint64_t>()) return true;
  fail_binary(path.string(), fmt::format("has {} bytes", size),
              fmt::format("index.json says {}", bytes.get<std::uint64_t>()));
}

/// Shards do not know how many they are.
void require_index(const fs::path& index) {
  std::error_code ignored;
  if (fs::is_regular_file(index, ignored)) return;
  core::fail(core::ErrorKind::input,
             {index.parent_path().string(), "has shards of MDS but no index.json",
              "without it nobody would notice a shard that is missing",
              "Copy the whole folder; if it came without, streaming.base.util.merge_index or the "
              "program that wrote it writes one."});
}

void require_all_shards(const fs::path& folder) {
  const fs::path path = folder / "index.json";
  require_index(path);
  const std::string where = path.string();
  const core::Json index = core::parse_json(core::read_text(path, longest_entry_bytes), where);
  const core::Json shards = mds_field(index, "shards");
  if (!shards.is_array())
    fail_binary(where, "has no list of shards", "it is the index of an MDS folder");
  std::size_t number = 0;
  for (const core::Json& shard : shards) {
    const bool is_there = is_whole(folder, mds_field(shard, "raw_data"), where) ||
                          is_whole(folder, mds_field(shard, "zip_data"), where);
    if (!is_there)
      fail_binary(where, fmt::format("shard {} of {} is not there", number, shards.size()),
                  core::one_line(mds_field(shard, "raw_data").dump()), "Copy the whole folder.");
    ++number;
  }
}

/// Whether no other shard's opening checks the folder: the first does, so that large folders are
/// checked once, and any other does where the first is missing.
bool checks_folder(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::size_t ending = name.find('.', std::string_view("shard.").size());
  if (ending == std::string::npos || name.starts_with("shard.00000.")) return true;
  std::error_code ignored;
  return !fs::is_regular_file(path.parent_path() / ("shard.00000" + name.substr(ending)), ignored);
}

}  // namespace

std::unique_ptr<Records> open_mds(const fs::path& path) {
  if (path.filename().string().starts_with("shard.")) {
    if (checks_folder(path))
      require_all_shards(path.parent_path());
    else
      require_index(path.parent_path() / "index.json");
  }
  return std::make_unique<MdsRecords>(open_plain(path));
}

}  // namespace finetune::data
