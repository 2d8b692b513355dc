// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/parquet.hpp"

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/util/config.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::data {
namespace {

using arrow::Type;

/// Whether values of a type have a form in JSON. Others (bytes, times, ...) are passed over.
bool is_json(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::DICTIONARY:
      return is_json(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST:
    case Type::STRUCT:
      // A struct is what is left of it, a list what lies in it.
      return type.num_fields() == 0 ||
             std::any_of(type.fields().begin(), type.fields().end(),
                         [](const auto& field) { return is_json(*field->type()); });
    case Type::NA:
    case Type::BOOL:
    case Type::STRING:
    case Type::LARGE_STRING:
    case Type::INT8:
    case Type::INT16:
    case Type::INT32:
    case Type::INT64:
    case Type::UINT8:
    case Type::UINT16:
    case Type::UINT32:
    case Type::FLOAT:
    case Type::DOUBLE:
      return true;
    default:
      return false;
  }
}

/// What lies in a list has the list's name.
void list_left_out(const arrow::DataType& type, const std::string& name,
                   std::vector<std::string>& found) {
  for (const auto& field : type.fields()) {
    const std::string its = type.id() == Type::STRUCT ? name + "." + field->name() : name;
    if (is_json(*field->type()))
      list_left_out(*field->type(), its, found);
    else
      found.push_back(its);
  }
}

template <typename ArrayType>
OrderedJson number(const arrow::Array& array, std::int64_t i) {
  return static_cast<const ArrayType&>(array).Value(i);
}

OrderedJson value_at(const arrow::Array& array, std::int64_t i, const std::string& where);

OrderedJson text_at(std::string_view text, const std::string& where) {
  if (const auto bad = core::invalid_utf8(text)) {
    core::fail(core::ErrorKind::input,
               {where, fmt::format("byte {} of a text is not valid UTF-8", *bad + 1),
                "texts are UTF-8", "Write the file again from UTF-8."});
  }
  return std::string(text);
}

template <typename ListType>
OrderedJson list_at(const arrow::Array& array, std::int64_t i, const std::string& where) {
  const auto& list = static_cast<const ListType&>(array);
  OrderedJson values = OrderedJson::array();
  for (std::int64_t j = list.value_offset(i); j < list.value_offset(i) + list.value_length(i); ++j)
    values.push_back(value_at(*list.values(), j, where));
  return values;
}

OrderedJson struct_at(const arrow::Array& array, std::int64_t i, const std::string& where) {
  const auto& fields = static_cast<const arrow::StructArray&>(array);
  OrderedJson values = OrderedJson::object();
  for (int f = 0; f < fields.num_fields(); ++f) {
    const auto& field = *fields.type()->field(f);
    if (is_json(*field.type())) values[field.name()] = value_at(*fields.field(f), i, where);
  }
  return values;
}

OrderedJson value_at(const arrow::Array& array, std::int64_t i, const std::string& where) {
  if (array.IsNull(i)) return nullptr;
  switch (array.type_id()) {
    case Type::BOOL:
      return static_cast<const arrow::BooleanArray&>(array).Value(i);
    case Type::STRING:
      return text_at(static_cast<const arrow::StringArray&>(array).GetView(i), where);
    case Type::LARGE_STRING:
      return text_at(static_cast<const arrow::LargeStringArray&>(array).GetView(i), where);
    case Type::INT8:
      return number<arrow::Int8Array>(array, i);
    case Type::INT16:
      return number<arrow::Int16Array>(array, i);
    case Type::INT32:
      return number<arrow::Int32Array>(array, i);
    case Type::INT64:
      return number<arrow::Int64Array>(array, i);
    case Type::UINT8:
      return number<arrow::UInt8Array>(array, i);
    case Type::UINT16:
      return number<arrow::UInt16Array>(array, i);
    case Type::UINT32:
      return number<arrow::UInt32Array>(array, i);
    case Type::FLOAT:
      return number<arrow::FloatArray>(array, i);
    case Type::DOUBLE:
      return number<arrow::DoubleArray>(array, i);
    case Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return value_at(*coded.dictionary(), coded.GetValueIndex(i), where);
    }
    case Type::LIST:
      return list_at<arrow::ListArray>(array, i, where);
    case Type::LARGE_LIST:
      return list_at<arrow::LargeListArray>(array, i, where);
    case Type::FIXED_SIZE_LIST:
      return list_at<arrow::FixedSizeListArray>(array, i, where);
    case Type::STRUCT:
      return struct_at(array, i, where);
    default:
      return nullptr;
  }
}

class ParquetRecords final : public Records {
 public:
  explicit ParquetRecords(const std::filesystem::path& path) : path_(path) {
    auto file = arrow::io::ReadableFile::Open(path.string());
    require(file.status());
    parquet::arrow::FileReaderBuilder builder;
    require(builder.Open(*file));
    require(builder.Build(&reader_));
    std::shared_ptr<arrow::Schema> schema;
    require(reader_->GetSchema(&schema));
    for (const auto& column : schema->fields())
      if (is_json(*column->type())) list_left_out(*column->type(), column->name(), left_out_);
    const auto metadata = reader_->parquet_reader()->metadata();
    std::int64_t end = 0;
    for (int group = 0; group < metadata->num_row_groups(); ++group)
      ends_.push_back(end += metadata->RowGroup(group)->num_rows());
    if (end > 0) return;
    core::fail(core::ErrorKind::input,
               {path.string(), "has no rows", "it holds no record", "Is it the right file?"});
  }

  std::int64_t size() const override { return ends_.back(); }
  const std::filesystem::path& path() const override { return path_; }
  bool pads_nulls() const override { return true; }
  std::vector<std::string> left_out() const override { return left_out_; }
  std::string where(std::int64_t i) const override {
    return fmt::format("{}: row {}", path_.string(), i + 1);
  }

  OrderedJson object(std::int64_t i) const override {
    const auto group = std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin();
    const auto table = row_group(static_cast<int>(group));
    const std::int64_t row = i - (ends_[static_cast<std::size_t>(group)] - table->num_rows());
    OrderedJson record = OrderedJson::object();
    for (int c = 0; c < table->num_columns(); ++c) {
      const auto& field = *table->schema()->field(c);
      if (!is_json(*field.type())) continue;
      std::int64_t left = row;
      for (const auto& chunk : table->column(c)->chunks()) {
        if (left < chunk->length()) {
          record[field.name()] = value_at(*chunk, left, where(i));
          break;
        }
        left -= chunk->length();
      }
    }
    return record;
  }

 private:
  void require(const arrow::Status& status) const {
    if (status.ok()) return;
    core::fail(core::ErrorKind::input,
               {path_.string(), "cannot be read as Parquet", core::one_line(status.message()),
                "Copy or download the file again, or convert it to JSONL."});
  }

  /// One row group is kept: samples are read in order, each rank its part.
  std::shared_ptr<arrow::Table> row_group(int group) const {
    const std::lock_guard lock(mutex_);
    if (group == group_) return table_;
    read(group);
    group_ = group;
    return table_;
  }

  void read(int group) const try {
#if ARROW_VERSION_MAJOR >= 24
    auto table = reader_->ReadRowGroup(group);
    require(table.status());
    table_ = *std::move(table);
#else
    require(reader_->ReadRowGroup(group, &table_));
#endif
    require(table_->ValidateFull());
  } catch (const parquet::ParquetException& error) {
    require(arrow::Status::IOError(error.what()));
  }

  std::filesystem::path path_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<std::string> left_out_;
  std::vector<std::int64_t> ends_;  // ends_[g]: rows in row groups 0 .. g
  mutable std::mutex mutex_;
  mutable int group_ = -1;
  mutable std::shared_ptr<arrow::Table> table_;
};

}  // namespace

std::unique_ptr<Records> open_parquet(const std::filesystem::path& path) {
  try {
    return std::make_unique<ParquetRecords>(path);
  } catch (const parquet::ParquetException& error) {
    core::fail(core::ErrorKind::input,
               {path.string(), "cannot be read as Parquet", core::one_line(error.what()),
                "Copy or download the file again, or convert it to JSONL."});
  }
}

}  // namespace finetune::data
