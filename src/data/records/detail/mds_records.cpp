// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/mds_records.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/detail/binary.hpp"
#include "data/records/detail/json_index.hpp"
#include "data/records/detail/mds_values.hpp"

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t longest_columns_bytes = 1 << 20;

/// Places are 32 bits wide and stand behind the number of samples.
std::int64_t mds_place(const core::File& file, std::int64_t i) {
  return number_at<std::uint32_t>(file, 4 + 4 * i);
}

}  // namespace

MdsRecords::MdsRecords(PlainFile file) : plain_(std::move(file)), file_(plain_.file()) {
  const std::string where = file_.path().string();
  const std::int64_t bytes = file_.size_bytes();
  if (bytes >= 8) num_samples_ = number_at<std::uint32_t>(file_, 0);
  const std::int64_t columns_at = 8 + 4 * num_samples_;
  if (bytes < 8 || columns_at > bytes)
    fail_binary(where, "cannot be read as an MDS shard",
                fmt::format("it has {} bytes, too few for {} samples", bytes, num_samples_));
  if (num_samples_ == 0)
    fail_binary(where, "has no samples", "it holds no record", "Is it the right file?");
  const std::int64_t first = mds_place(file_, 0), end = mds_place(file_, num_samples_);
  if (end != bytes)
    fail_binary(
        where, fmt::format("has {} bytes", bytes),
        fmt::format("its samples end at byte {}, so it is truncated or something else", end));
  if (first < columns_at || first > bytes || first - columns_at > longest_columns_bytes)
    fail_binary(where, "cannot be read as an MDS shard",
                fmt::format("its first sample begins at byte {}", first));
  read_columns(read_entry(file_, {.offset = columns_at, .length = first - columns_at}));
}

void MdsRecords::read_columns(const std::string& text) {
  const std::string where = file_.path().string();
  const core::Json json = core::parse_json(text, where);
  const core::Json names = mds_field(json, "column_names"),
                   encodings = mds_field(json, "column_encodings"),
                   sizes = mds_field(json, "column_sizes");
  const bool are_lists = names.is_array() && encodings.is_array() && sizes.is_array() &&
                         names.size() == encodings.size() && names.size() == sizes.size();
  const auto refuse = [&] {
    fail_binary(where, "cannot be read as an MDS shard", "its description of columns is broken");
  };
  if (!are_lists || names.empty()) refuse();
  for (std::size_t c = 0; c < names.size(); ++c) {
    const bool is_fixed = sizes[c].is_number_unsigned();
    if (!names[c].is_string() || !encodings[c].is_string() || !(is_fixed || sizes[c].is_null()))
      refuse();
    Column column{names[c].get<std::string>(), encodings[c].get<std::string>(), std::nullopt};
    if (is_fixed) column.bytes = sizes[c].get<std::int64_t>();
    if (column.bytes && (*column.bytes < 0 || *column.bytes > longest_entry_bytes)) refuse();
    columns_.push_back(std::move(column));
  }
}

std::vector<std::byte> MdsRecords::bytes_of(std::int64_t i) const {
  const std::int64_t begin = mds_place(file_, i), end = mds_place(file_, i + 1);
  if (begin > end || end > file_.size_bytes() || end - begin > longest_entry_bytes)
    fail_binary(where(i), fmt::format("lies from byte {} to {}", begin, end),
                "the shard is damaged");
  std::vector<std::byte> bytes(static_cast<std::size_t>(end - begin));
  file_.read_at(begin, bytes);
  return bytes;
}

OrderedJson MdsRecords::object(std::int64_t i) const {
  const std::vector<std::byte> sample = bytes_of(i);
  std::span<const std::byte> sizes(sample), rest(sample);
  const auto take = [&](std::span<const std::byte>& from, std::int64_t size) {
    if (size > std::ssize(from))
      fail_binary(where(i), "its columns are longer than itself", "the shard is damaged");
    const auto taken = from.first(static_cast<std::size_t>(size));
    from = from.subspan(static_cast<std::size_t>(size));
    return taken;
  };
  for (const Column& column : columns_)
    if (!column.bytes) take(rest, 4);
  OrderedJson record = OrderedJson::object();
  for (const Column& column : columns_) {
    const std::int64_t size =
        column.bytes ? *column.bytes : number_in<std::uint32_t>(take(sizes, 4));
    const auto bytes = take(rest, size);
    // Their type is said nowhere: LLM Foundry's is int64.
    const bool are_tokens = column.name == "tokens" && column.encoding == "bytes";
    const std::string name = fmt::format("{}: field \"{}\"", where(i), core::one_line(column.name));
    if (!are_tokens) {
      if (auto made = mds_value(column.encoding, bytes, name))
        record[column.name] = *std::move(made);
      continue;
    }
    if (bytes.size() % 8 != 0)
      fail_binary(name, fmt::format("has {} bytes", bytes.size()),
                  "token ids as bytes are of int64", "Write them as ndarray.");
    OrderedJson& ids = record[column.name] = OrderedJson::array();
    for (std::size_t at = 0; at < bytes.size(); at += 8)
      ids.push_back(number_in<std::int64_t>(bytes.subspan(at)));
  }
  return record;
}

std::string MdsRecords::where(std::int64_t i) const {
  return fmt::format("{}: sample {}", file_.path().string(), i + 1);
}

}  // namespace finetune::data
