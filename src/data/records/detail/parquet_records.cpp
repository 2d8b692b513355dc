// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/parquet_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace finetune::data {
namespace {

constexpr std::int64_t parquet_tail_bytes = 8;  // the length of the description, and PAR1
constexpr std::int64_t longest_parquet_description = std::int64_t{256} << 20;
constexpr std::int64_t most_parquet_rows = std::int64_t{1} << 40;
constexpr int row_groups_field = 4, rows_of_group_field = 3;  // of FileMetaData and RowGroup

std::vector<std::byte> parquet_description(const core::File& file, const std::string& where) {
  const std::int64_t bytes = file.size_bytes();
  std::array<char, 4> end{};
  if (bytes >= parquet_tail_bytes + 4)
    file.read_at(bytes - 4, std::as_writable_bytes(std::span(end)));
  const std::string_view magic(end.data(), end.size());
  if (magic == "PARE")
    fail_binary(where, "is encrypted", "there is no key", "Write it without encryption.");
  if (magic != "PAR1")
    fail_binary(where, "cannot be read as Parquet", "it does not end with PAR1",
                "Copy or download the file again; it is truncated or something else.");
  const auto length = number_at<std::uint32_t>(file, bytes - parquet_tail_bytes);
  if (length > bytes - parquet_tail_bytes || length > longest_parquet_description)
    fail_binary(where, "cannot be read as Parquet",
                fmt::format("its description would have {} bytes, it has {}", length, bytes));
  std::vector<std::byte> description(length);
  file.read_at(bytes - parquet_tail_bytes - length, description);
  return description;
}

}  // namespace

ParquetFileRecords::ParquetFileRecords(core::File file)
    : file_(std::move(file)),
      name_(file_.path().string()),
      description_(parquet_description(file_, name_)),
      metadata_(read_thrift(description_, name_).first),
      schema_(parquet_file::schema_of(metadata_, name_)) {
  std::int64_t end = 0;
  if (const ThriftValue* groups = metadata_.find(row_groups_field)) {
    for (const ThriftValue& group : groups->items) {
      const std::int64_t rows = group.number_of(rows_of_group_field);
      if (rows < 0 || rows > most_parquet_rows - end)
        fail_binary(name_, fmt::format("has a group of {} rows", rows));
      ends_.push_back(end += rows);
    }
  }
  if (end == 0) fail_binary(name_, "has no rows", "it holds no record", "Is it the right file?");
  const bool has_columns = std::ranges::any_of(schema_.leaves, &parquet_file::Leaf::is_read);
  if (!has_columns)
    fail_binary(name_, "has no column of texts or numbers", "nothing else is trained on",
                "Check data.path.");
}

std::shared_ptr<const parquet_file::RowGroup> ParquetFileRecords::group(std::size_t g) const {
  const std::lock_guard lock(mutex_);
  if (g == kept_) return group_;
  group_.reset();
  kept_ = std::numeric_limits<std::size_t>::max();
  const ThriftValue& its = metadata_.find(row_groups_field)->items[g];
  group_ = std::make_shared<const parquet_file::RowGroup>(file_, its, schema_, name_);
  kept_ = g;
  return group_;
}

OrderedJson ParquetFileRecords::object(std::int64_t i) const {
  const auto found = std::ranges::upper_bound(ends_, i);
  const auto g = static_cast<std::size_t>(found - ends_.begin());
  const std::int64_t begin = g == 0 ? 0 : ends_[g - 1];
  return group(g)->row(i - begin, where(i));
}

std::string ParquetFileRecords::where(std::int64_t i) const {
  return fmt::format("{}: row {}", name_, i + 1);
}

}  // namespace finetune::data
