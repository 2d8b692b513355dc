// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/arrow_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace finetune::data {
namespace {

namespace ipc = arrow_ipc;

constexpr std::string_view arrow_magic = "ARROW1";
constexpr std::int64_t arrow_begin = 8;
constexpr std::int64_t longest_description_bytes = std::int64_t{64} << 20;
constexpr std::uint32_t continuation = 0xFFFFFFFF;
constexpr std::int64_t most_rows_of_batch = std::int64_t{1} << 40;

/// The columns of dictionaries, by their ids: each has one, of the type that its values have.
void add_dictionary_fields(const std::vector<ipc::Field>& fields,
                           std::map<std::int64_t, std::vector<ipc::Field>>& found) {
  for (const ipc::Field& field : fields) {
    add_dictionary_fields(field.children, found);
    if (!field.dictionary) continue;
    ipc::Field values = field;
    values.dictionary.reset();
    found.insert({*field.dictionary, {std::move(values)}});
  }
}

bool has_arrow_magic(const core::File& file, std::int64_t at) {
  std::string text(arrow_magic.size(), ' ');
  file.read_at(at, std::as_writable_bytes(std::span(text)));
  return text == arrow_magic;
}

}  // namespace

ArrowRecords::ArrowRecords(core::File file, std::size_t most_rows)
    : file_(std::move(file)), name_(file_.path().string()) {
  const bool is_file = file_.size_bytes() >= arrow_begin && has_arrow_magic(file_, 0);
  if (is_file)
    scan_file(most_rows);
  else
    scan_stream(most_rows);
  if (!has_schema_) fail_binary(name_, "is no Arrow file", "it is empty");
  if (num_rows_ == 0)
    fail_binary(name_, "has no rows", "it holds no record", "Is it the right file?");
}

void ArrowRecords::scan_stream(std::size_t most_rows) {
  for (std::int64_t at = 0; static_cast<std::size_t>(num_rows_) < most_rows;) {
    const auto found = message_at(at);
    if (!found && at > 0 && at > file_.size_bytes() - 4)
      fail_binary(name_, "is truncated",
                  fmt::format("it ends at byte {} without the word that ends a stream", at));
    if (!found) return;
    at = found->first.body_at + found->first.body_bytes;
    take(FlatTable::root(found->second, name_), found->first);
  }
}

/// Messages of a file may lie anywhere: only its end says where.
void ArrowRecords::scan_file(std::size_t most_rows) {
  constexpr std::int64_t tail = 4 + static_cast<std::int64_t>(arrow_magic.size());
  const std::int64_t bytes = file_.size_bytes();
  if (bytes < arrow_begin + tail || !has_arrow_magic(file_, bytes - 6))
    fail_binary(name_, "is truncated", "it does not end with ARROW1");
  const auto length = number_at<std::int32_t>(file_, bytes - tail);
  if (length < 0 || length > bytes - tail)
    fail_binary(name_, "is damaged", fmt::format("its footer would have {} bytes", length));
  const std::vector<std::byte> footer = description({.at = bytes - tail - length, .bytes = length});
  const FlatTable table = FlatTable::root(footer, name_);
  const auto schema = table.table(ipc::footer::schema);
  if (!schema) fail_binary(name_, "does not describe its columns");
  take_schema(*schema);
  for (const int field : {ipc::footer::dictionaries, ipc::footer::record_batches}) {
    const Bytes blocks = table.structs(field, ipc::footer::block_bytes);
    for (std::size_t at = 0; at < blocks.size(); at += ipc::footer::block_bytes) {
      if (static_cast<std::size_t>(num_rows_) >= most_rows) return;
      const auto found = message_at(number_in<std::int64_t>(blocks.subspan(at)));
      if (!found) fail_binary(name_, "is damaged", "its footer leads to no message");
      take(FlatTable::root(found->second, name_), found->first);
    }
  }
}

std::optional<std::pair<ArrowRecords::Part, std::vector<std::byte>>> ArrowRecords::message_at(
    std::int64_t at) const {
  const std::int64_t end = file_.size_bytes();
  if (at < 0 || at > end - 4) return std::nullopt;
  auto size = number_at<std::uint32_t>(file_, at);
  at += 4;
  // Before version 0.15 there was no word in front of the size.
  if (size == continuation) {
    if (at + 4 > end) fail_binary(name_, "is truncated", fmt::format("it ends at byte {}", end));
    size = number_at<std::uint32_t>(file_, at);
    at += 4;
  }
  if (size == 0) return std::nullopt;
  Part part{.at = at, .bytes = size};
  if (part.bytes > longest_description_bytes || part.bytes > end - at)
    fail_binary(name_, has_schema_ ? "is truncated or damaged" : "is no Arrow file",
                fmt::format("at byte {} begins a message of {} bytes, it has {}", at, size, end));
  std::vector<std::byte> bytes = description(part);
  part.body_at = at + part.bytes;
  part.body_bytes = FlatTable::root(bytes, name_).number<std::int64_t>(ipc::message::body_length);
  if (part.body_bytes < 0 || part.body_bytes > end - part.body_at)
    fail_binary(name_, "is truncated or damaged",
                fmt::format("{} bytes are to follow byte {}, it has {}", part.body_bytes,
                            part.body_at, end));
  return std::pair(part, std::move(bytes));
}

void ArrowRecords::take_schema(const FlatTable& schema) {
  if (has_schema_) fail_binary(name_, "describes its columns twice");
  has_schema_ = true;
  fields_ = ipc::fields_of(schema, name_);
  add_dictionary_fields(fields_, dictionary_fields_);
}

void ArrowRecords::take(const FlatTable& message, Part part) {
  const auto header = message.table(ipc::message::header);
  const int type = message.number<std::uint8_t>(ipc::message::header_type);
  if (!header || (type != ipc::message::schema_type && !has_schema_))
    fail_binary(name_, "is no Arrow file", "it does not begin with a description of columns");
  if (type == ipc::message::schema_type) {
    take_schema(*header);
  } else if (type == ipc::message::dictionary_type) {
    read_dictionary(*header, part);
  } else if (type == ipc::message::record_type) {
    const auto rows = header->number<std::int64_t>(ipc::record_batch::length);
    if (rows < 0 || rows > most_rows_of_batch - num_rows_)
      fail_binary(name_, fmt::format("has a batch of {} rows", rows));
    part.end_row = num_rows_ += rows;
    batches_.push_back(part);
  }
}

void ArrowRecords::read_dictionary(const FlatTable& message, const Part& part) {
  const auto id = message.number<std::int64_t>(ipc::dictionary_batch::id);
  const auto fields = dictionary_fields_.find(id);
  const auto values = message.table(ipc::dictionary_batch::data);
  if (fields == dictionary_fields_.end() || !values)
    fail_binary(name_, "has a dictionary of no column", "it is damaged");
  if (dictionaries_.contains(id))
    fail_binary(name_, "changes a dictionary between its rows", "one for all rows is read",
                "Write it without dictionaries, or as JSONL.");
  dictionaries_[id] = std::make_shared<const ipc::Batch>(*values, file_, part.body_at,
                                                         part.body_bytes, fields->second, name_);
}

std::vector<std::byte> ArrowRecords::description(const Part& part) const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(part.bytes));
  file_.read_at(part.at, bytes);
  return bytes;
}

std::shared_ptr<const ipc::Batch> ArrowRecords::batch(std::size_t b) const {
  const std::lock_guard lock(mutex_);
  if (b == kept_) return batch_;
  const Part& part = batches_[b];
  const std::vector<std::byte> bytes = description(part);
  const auto header = FlatTable::root(bytes, name_).table(ipc::message::header);
  if (!header) fail_binary(name_, "was changed while it was read", "a batch is gone");
  batch_ = std::make_shared<const ipc::Batch>(*header, file_, part.body_at, part.body_bytes,
                                              fields_, name_);
  kept_ = b;
  return batch_;
}

OrderedJson ArrowRecords::object(std::int64_t i) const {
  const auto found = std::ranges::upper_bound(batches_, i, {}, &Part::end_row);
  const auto read = batch(static_cast<std::size_t>(found - batches_.begin()));
  return read->row(i - (found->end_row - read->size()), dictionaries_, where(i));
}

std::string ArrowRecords::where(std::int64_t i) const {
  return fmt::format("{}: row {}", name_, i + 1);
}

}  // namespace finetune::data
