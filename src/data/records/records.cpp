// SPDX-License-Identifier: Apache-2.0
#include "data/records/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "data/records/decompress.hpp"
#include "data/records/detail/arrow_records.hpp"
#include "data/records/detail/csv_records.hpp"
#include "data/records/detail/json_records.hpp"
#include "data/records/detail/mds_records.hpp"
#include "data/records/detail/megatron_records.hpp"
#include "data/records/detail/parquet.hpp"
#include "data/records/detail/tar_records.hpp"
#include "jinja/value.hpp"

namespace finetune::data {

const std::vector<std::string_view>& record_endings() {
  static const std::vector<std::string_view> endings = {
      ".json",    ".jsonl",  ".json.gz", ".jsonl.gz", ".json.zst", ".jsonl.zst",
      ".csv",     ".csv.gz", ".csv.zst", ".tsv",      ".tsv.gz",   ".tsv.zst",
      ".tar",     ".tar.gz", ".tar.zst", ".parquet",  ".idx",      ".arrow",
      ".feather", ".mds",    ".mds.gz",  ".mds.zst",  ".mds.zstd"};
  return endings;
}

std::string_view record_ending(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const auto& endings = record_endings();
  const auto ending = std::ranges::find_if(
      endings, [&](std::string_view candidate) { return name.ends_with(candidate); });
  return ending == endings.end() ? std::string_view() : *ending;
}

std::unique_ptr<Records> open_records(const std::filesystem::path& path) {
  return open_first_records(path, std::numeric_limits<std::size_t>::max() - 1);
}

std::filesystem::path record_file(const std::filesystem::path& named) {
  return index_of_megatron(named);
}

std::unique_ptr<Records> open_first_records(const std::filesystem::path& path,
                                            std::size_t most_records) {
  const std::string_view ending = record_ending(path);
  if (ending == ".parquet") return open_parquet(path);
  if (ending == ".arrow" || ending == ".feather")
    return std::make_unique<ArrowRecords>(core::File(path, core::File::Mode::read), most_records);
  if (ending.starts_with(".mds")) return open_mds(path);
  if (ending == ".idx") return std::make_unique<MegatronRecords>(path);
  for (const auto& [begin, separator] :
       {std::pair(".csv", separator_of_names), std::pair(".tsv", '\t')})
    if (ending.starts_with(begin))
      return std::make_unique<CsvRecords>(path, separator, most_records);
  if (ending.starts_with(".tar"))
    return std::make_unique<TarRecords>(open_plain(path), most_records);
  return std::make_unique<JsonRecords>(path, most_records);
}

std::string dump_json(const OrderedJson& value) {
  if (const auto digits = core::exact_digits(value)) return std::string(*digits);
  if (value.is_number_float()) return jinja::float_text(value.get<double>());
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& item : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += OrderedJson(item.key()).dump() + ": ";
    text += dump_json(item.value());
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

}  // namespace finetune::data
