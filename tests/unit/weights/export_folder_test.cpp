// SPDX-License-Identifier: Apache-2.0
#include "weights/export_folder.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "core/json.hpp"
#include "unit/weights/support.hpp"

namespace finetune::weights::export_folder_test {
namespace {

namespace fs = std::filesystem;
using core::DType;

/// Gives element i of every tensor the value i / 4.
void count_up(std::string_view, std::int64_t first, std::span<float> piece) {
  for (std::size_t i = 0; i < piece.size(); ++i)
    piece[i] = static_cast<float>(first + static_cast<std::int64_t>(i)) / 4;
}

std::vector<std::vector<std::string>> names_of(const std::vector<ExportFile>& files) {
  std::vector<std::vector<std::string>> names;
  for (const ExportFile& file : files) {
    names.push_back({file.name});
    for (const TensorSpec& tensor : file.tensors)
      names.back().push_back(tensor.name);
  }
  return names;
}

TEST(ExportFolder, FillsFilesInOrderUpToTheLimit) {
  using Names = std::vector<std::vector<std::string>>;
  ExportPlan plan{{{"a", DType::f32, {2}},
                   {"b", DType::f32, {1}},
                   {"c", DType::f32, {9}},
                   {"d", DType::f32, {}}},
                  12};
  EXPECT_EQ(names_of(plan_files(plan)), (Names{{"model-00001-of-00003.safetensors", "a", "b"},
                                               {"model-00002-of-00003.safetensors", "c"},
                                               {"model-00003-of-00003.safetensors", "d"}}));
  plan.max_shard_size_bytes = 52;
  EXPECT_EQ(names_of(plan_files(plan)), (Names{{"model.safetensors", "a", "b", "c", "d"}}));
}

TEST(ExportFolder, LargerElementsComeFirst) {
  const ExportPlan plan{{{"a", DType::bf16, {3}}, {"b", DType::f32, {1}}, {"c", DType::f32, {}}}};
  EXPECT_EQ(names_of(plan_files(plan)),
            (std::vector<std::vector<std::string>>{{"model.safetensors", "b", "c", "a"}}));
}

TEST(ExportFolder, WritesEachDtypeInOneFile) {
  const TestFolder folder;
  export_folder(folder / "out",
                {{{"a", DType::f32, {2, 3}},
                  {"b", DType::bf16, {5}},
                  {"c", DType::f16, {}},
                  {"d", DType::f32, {0, 4}}}},
                count_up, "");
  const ModelFiles files = ModelFiles::open(folder / "out");
  EXPECT_EQ(files.files(), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(files.entry("a").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(files.entry("b").dtype, DType::bf16);
  EXPECT_EQ(files.entry("d").shape, (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(read_all<float>(files, "a", DType::f32),
            (std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1, 1.25f}));
  EXPECT_EQ(read_all<float>(files, "b", DType::f32),
            (std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1}));
  EXPECT_EQ(read_all<float>(files, "c", DType::f32), std::vector<float>{0});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(ExportFolder, WritesAnIndexForSeveralFiles) {
  const TestFolder folder;
  export_folder(folder / "deep/out", {{{"a", DType::f32, {2}}, {"b", DType::bf16, {3}}}, 8},
                count_up, "");
  const auto index = core::read_json(folder / "deep/out/model.safetensors.index.json", 1 << 20);
  EXPECT_EQ(index, core::Json::parse(R"({
    "metadata": {"total_parameters": 5, "total_size": 14},
    "weight_map": {"a": "model-00001-of-00002.safetensors",
                   "b": "model-00002-of-00002.safetensors"}})"));
  const ModelFiles files = ModelFiles::open(folder / "deep/out");
  EXPECT_EQ(files.files().size(), 2u);
  EXPECT_EQ(read_all<float>(files, "b", DType::f32), (std::vector<float>{0, 0.25f, 0.5f}));
}

TEST(ExportFolder, AsksForPiecesOfAtMost16MiB) {
  const TestFolder folder;
  std::vector<std::pair<std::int64_t, std::size_t>> pieces;
  export_folder(
      folder / "out", {{{"a", DType::bf16, {(4 << 20) + 3}}}},
      [&](std::string_view name, std::int64_t first, std::span<float> piece) {
        EXPECT_EQ(name, "a");
        pieces.emplace_back(first, piece.size());
        piece.back() = 7;
      },
      "");
  EXPECT_EQ(pieces,
            (std::vector<std::pair<std::int64_t, std::size_t>>{{0, 4 << 20}, {4 << 20, 3}}));
  const ModelFiles files = ModelFiles::open(folder / "out");
  float last = 0;
  files.read({"a", {(4 << 20) + 3}, DType::f32, (4 << 20) + 2, 1},
             std::as_writable_bytes(std::span(&last, 1)));
  EXPECT_EQ(last, 7);
}

/// All 16-bit patterns that are numbers or infinities: NaNs have many encodings for one meaning.
std::string every_pattern(std::uint32_t infinity) {
  std::string data;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7FFF) > infinity) continue;
    data += static_cast<char>(bits & 0xFF);
    data += static_cast<char>(bits >> 8);
  }
  return data;
}

TEST(ExportFolder, UntouchedTensorsKeepEveryBit) {
  const TestFolder folder;
  const std::string bf16 = every_pattern(0x7F80);
  const std::string f16 = every_pattern(0x7C00);
  const std::string f32 = bf16.substr(bf16.size() - 4 * 15);  // any 15 floats
  const auto header = [](const char* name, const char* dtype, const std::string& shape,
                         std::size_t begin, std::size_t end) {
    return fmt::format("\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", name,
                       dtype, shape, begin, end);
  };
  const std::size_t a = bf16.size();
  const std::size_t b = a + f16.size();
  const std::size_t c = b + f32.size();
  const std::string text =
      "{" + header("a", "BF16", fmt::format("{}", a / 2), 0, a) + "," +
      header("b", "F16", fmt::format("2,1,{}", f16.size() / 4), a, b) + "," +
      header("c", "F32", "5,1,3", b, c) + "," + header("none", "F16", "0", c, c) + "," +
      header("one", "BF16", "1", c, c + 2) + "," + header("scalar", "F32", "", c + 2, c + 6) + "}";
  folder.put("model.safetensors", file_of(text, bf16 + f16 + f32 + "abcdef"));
  expect_round_trip(folder.path(), 5'000'000'000);
  expect_round_trip(folder.path(), 100'000);
}

TEST(ExportFolder, CopiesWhatDescribesTheModelByteForByte) {
  const TestFolder folder;
  fs::create_directory(folder / "model");
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "chat_template.jinja", "tokenizer.model", "model.safetensors",
        "pytorch_model.bin", "README.md", "evil.py"}) {
    folder.put("model/" + std::string(name), std::string(name) + "\r\n \0x");
  }
  export_folder(folder / "out", {{{"a", DType::f32, {1}}}}, count_up, folder / "model");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "out"))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"chat_template.jinja", "config.json",
                                             "generation_config.json", "model.safetensors",
                                             "special_tokens_map.json", "tokenizer.json",
                                             "tokenizer.model", "tokenizer_config.json"}));
  for (const std::string& name : names) {
    if (name == "model.safetensors") continue;
    EXPECT_EQ(content(folder / ("out/" + name)), content(folder / ("model/" + name))) << name;
  }
}

TEST(ExportFolder, CopiesTheOtherChatTemplates) {
  const TestFolder folder;
  fs::create_directories(folder / "model/additional_chat_templates");
  folder.put("model/config.json", "{}");
  folder.put("model/additional_chat_templates/rag.jinja", "{{ messages }}");
  folder.put("model/additional_chat_templates/notes.txt", "x");
  export_folder(folder / "out", {{{"a", DType::f32, {1}}}}, count_up, folder / "model");
  EXPECT_EQ(content(folder / "out/additional_chat_templates/rag.jinja"), "{{ messages }}");
  EXPECT_FALSE(fs::exists(folder / "out/additional_chat_templates/notes.txt"));
}

TEST(ExportFolder, TextsLieBesideCopiesOrTakeTheirPlace) {
  const TestFolder folder;
  fs::create_directory(folder / "model");
  folder.put("model/config.json", "old");
  folder.put("model/tokenizer.json", "copied");
  ExportPlan plan{{{"a", DType::f32, {1}}}};
  plan.texts = {{"config.json", "new"}, {"README.md", "card"}};
  export_folder(folder / "out", plan, count_up, folder / "model");
  EXPECT_EQ(content(folder / "out/config.json"), "new");
  EXPECT_EQ(content(folder / "out/README.md"), "card");
  EXPECT_EQ(content(folder / "out/tokenizer.json"), "copied");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "out"), {}), 4);
}

TEST(ExportFolder, OverwritesNothing) {
  const TestFolder folder;
  const ExportPlan plan{{{"a", DType::f32, {1}}}};
  const auto refusal = [&] {
    const Thrown thrown = thrown_by([&] { export_folder(folder / "out", plan, count_up, ""); });
    EXPECT_EQ(thrown.kind, core::ErrorKind::create);
    return thrown.message;
  };
  folder.put("out", "a file");
  EXPECT_NE(refusal().find("is not a folder"), std::string::npos);
  fs::remove(folder / "out");
  fs::create_directory(folder / "out");
  folder.put("out/precious", "x");
  EXPECT_NE(refusal().find("is not empty (nothing is overwritten)"), std::string::npos);
  EXPECT_EQ(content(folder / "out/precious"), "x");
  fs::remove(folder / "out/precious");
  export_folder(fs::path((folder / "out").string() + "/"), plan, count_up, "");  // empty: fine
  EXPECT_TRUE(ModelFiles::open(folder / "out").contains("a"));
}

TEST(ExportFolder, LeavesNothingWhenItFails) {
  const TestFolder folder;
  const auto fails_at_b = [](std::string_view name, std::int64_t, std::span<float>) {
    if (name == "b") core::fail(core::ErrorKind::io, {"b", "gone", "", ""});
  };
  EXPECT_THROW(export_folder(folder / "out", {{{"a", DType::f32, {1}}, {"b", DType::f32, {1}}}, 4},
                             fails_at_b, ""),
               core::Error);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(ExportFolder, RefusesValuesThatF16CannotHold) {
  const TestFolder folder;
  const auto constant = [](float value) {
    return [value](std::string_view, std::int64_t, std::span<float> piece) { piece[0] = value; };
  };
  const ExportPlan plan{{{"a", DType::f16, {}}}};
  EXPECT_EQ(thrown_by([&] { export_folder(folder / "out", plan, constant(-65520), ""); }).kind,
            core::ErrorKind::numbers);
  EXPECT_NO_THROW(export_folder(folder / "out", plan, constant(65519), ""));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_NO_THROW(export_folder(folder / "out2", plan, constant(infinity), ""));
}

}  // namespace
}  // namespace finetune::weights::export_folder_test
