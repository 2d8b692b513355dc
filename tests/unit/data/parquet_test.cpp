// SPDX-License-Identifier: Apache-2.0
// Built only where Arrow's library is.
#include "data/records/detail/parquet.hpp"

#include <arrow/array/builder_binary.h>
#include <arrow/array/builder_nested.h>
#include <arrow/array/builder_primitive.h>
#include <arrow/io/file.h>
#include <arrow/table.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include "unit/data/fake.hpp"

namespace finetune::data::parquet_test {
namespace {

using tests::refusal;
using tests::TemporaryFolder;

template <typename Builder>
std::shared_ptr<arrow::Array> finish(Builder& builder) {
  return builder.Finish().ValueOrDie();
}

std::shared_ptr<arrow::Array> texts(const std::vector<const char*>& values) {
  arrow::StringBuilder builder;
  for (const char* value : values)
    EXPECT_TRUE((value == nullptr ? builder.AppendNull() : builder.Append(value)).ok());
  return finish(builder);
}

/// One conversation a row: a message {role, content} for each text.
std::shared_ptr<arrow::Array> conversations(const std::vector<std::vector<const char*>>& rows) {
  auto* pool = arrow::default_memory_pool();
  const auto type =
      arrow::struct_({arrow::field("role", arrow::utf8()), arrow::field("content", arrow::utf8())});
  auto role = std::make_shared<arrow::StringBuilder>();
  auto content = std::make_shared<arrow::StringBuilder>();
  auto message = std::make_shared<arrow::StructBuilder>(
      type, pool, std::vector<std::shared_ptr<arrow::ArrayBuilder>>{role, content});
  arrow::ListBuilder list(pool, message);
  for (const auto& row : rows) {
    EXPECT_TRUE(list.Append().ok());
    for (const char* text : row) {
      EXPECT_TRUE(message->Append().ok());
      EXPECT_TRUE(role->Append("user").ok());
      EXPECT_TRUE(content->Append(text).ok());
    }
  }
  return finish(list);
}

std::filesystem::path write(const TemporaryFolder& folder, const arrow::Table& table,
                            std::int64_t rows_a_group) {
  const auto path = folder.path() / "d.parquet";
  const auto file = arrow::io::FileOutputStream::Open(path.string()).ValueOrDie();
  EXPECT_TRUE(
      parquet::arrow::WriteTable(table, arrow::default_memory_pool(), file, rows_a_group).ok());
  EXPECT_TRUE(file->Close().ok());
  return path;
}

std::shared_ptr<arrow::Table> sample_table() {
  arrow::BinaryBuilder binary;
  EXPECT_TRUE(binary.AppendValues({"\xFF", "\x01", "x"}).ok());
  arrow::Int64Builder number;
  EXPECT_TRUE(number.AppendValues({1, 2, 3}).ok());
  const auto messages = conversations({{"a", "b"}, {}, {"c"}});
  return arrow::Table::Make(
      arrow::schema({arrow::field("prompt", arrow::utf8()), arrow::field("n", arrow::int64()),
                     arrow::field("image", arrow::binary()),
                     arrow::field("messages", messages->type())}),
      {texts({"one", nullptr, "drei \xE2\x82\xAC"}), finish(number), finish(binary), messages});
}

TEST(Parquet, RowsAreRecordsInOrderAcrossRowGroups) {
  const TemporaryFolder folder;
  const auto path = write(folder, *sample_table(), 2);
  const auto records = open_records(path);
  ASSERT_EQ(records->size(), 3);
  EXPECT_EQ(
      records->object(2).dump(),
      "{\"prompt\":\"drei \xE2\x82\xAC\",\"n\":3,\"messages\":[{\"role\":\"user\",\"content\":"
      "\"c\"}]}");
  EXPECT_EQ(records->object(0).at("messages").size(), 2u);
  EXPECT_TRUE(records->object(1).at("prompt").is_null());
  EXPECT_FALSE(records->object(1).contains("image"));
  EXPECT_EQ(records->where(2), path.string() + ": row 3");
}

TEST(Parquet, RefusesDamagedAndEmptyFiles) {
  const TemporaryFolder folder;
  EXPECT_TRUE(
      refusal([&] { open_records(folder.write("d.parquet", "PAR1 no PAR1")); }, folder.path())
          .starts_with("65: d.parquet: cannot be read as Parquet ("));
  EXPECT_TRUE(refusal([&] { open_records(folder.write("e.parquet", "")); }, folder.path())
                  .starts_with("65: e.parquet: cannot be read as Parquet ("));
  const auto path = write(folder, *sample_table()->Slice(0, 0), 2);
  EXPECT_EQ(refusal([&] { open_records(path); }, folder.path()),
            "65: d.parquet: has no rows (it holds no record). Is it the right file?");
}

}  // namespace
}  // namespace finetune::data::parquet_test
