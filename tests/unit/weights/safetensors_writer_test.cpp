// SPDX-License-Identifier: Apache-2.0
#include "weights/safetensors_writer.hpp"

#include <gtest/gtest.h>

#include "unit/weights/support.hpp"

namespace finetune::weights::safetensors_writer_test {
namespace {

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(SafetensorsWriter, WritesTheBytesOfTheFormat) {
  const TestFolder folder;
  SafetensorsWriter writer(folder / "a.safetensors", {{"x\"", core::DType::bf16, {1, 3}},
                                                      {"none", core::DType::f32, {0}},
                                                      {"y", core::DType::u8, {}}});
  writer.write("x\"", bytes("abcd"));
  writer.write("x\"", bytes("ef"));
  writer.write("none", {});
  writer.write("y", bytes("z"));
  writer.finish();
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"x\\\"\":{\"dtype\":\"BF16\",\"shape\":[1,3],\"data_offsets\":[0,6]},"
      "\"none\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[6,6]},"
      "\"y\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[6,7]}}";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(content(folder / "a.safetensors"), file_of(padded, "abcdefz"));
}

TEST(SafetensorsWriter, LeavesNothingUnlessFinished) {
  const TestFolder folder;
  {
    SafetensorsWriter writer(folder / "a.safetensors", {{"x", core::DType::u8, {4}}});
    writer.write("x", bytes("ab"));
    EXPECT_FALSE(std::filesystem::exists(folder / "a.safetensors"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsWriter, RefusesPiecesOutOfOrderOrBeyond) {
  const TestFolder folder;
  SafetensorsWriter writer(folder / "a.safetensors",
                           {{"x", core::DType::u8, {2}}, {"y", core::DType::u8, {2}}});
  EXPECT_TRUE(thrown_by([&] { writer.write("y", bytes("a")); }).says("in order"));
  EXPECT_TRUE(thrown_by([&] { writer.write("x", bytes("abc")); }).says("inside its tensor"));
  writer.write("x", bytes("ab"));
  writer.write("y", bytes("c"));
  EXPECT_TRUE(thrown_by([&] { writer.finish(); }).says("all tensors are written"));
  writer.write("y", bytes("d"));
  writer.finish();
  EXPECT_TRUE(content(folder / "a.safetensors").ends_with("abcd"));
}

TEST(SafetensorsWriter, RefusesNamesTwice) {
  const TestFolder folder;
  EXPECT_TRUE(thrown_by([&] {
                SafetensorsWriter(folder / "a.safetensors",
                                  {{"x", core::DType::u8, {}}, {"x", core::DType::u8, {}}});
              }).says("different names"));
}

TEST(SafetensorsWriter, FolderThatIsMissingCannotBeWrittenTo) {
  const TestFolder folder;
  const Thrown thrown = thrown_by([&] {
    SafetensorsWriter(folder / "none/a.safetensors", {{"x", core::DType::u8, {}}});
  });
  EXPECT_EQ(thrown.kind, core::ErrorKind::create);
}

}  // namespace
}  // namespace finetune::weights::safetensors_writer_test
