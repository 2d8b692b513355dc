// SPDX-License-Identifier: Apache-2.0
#include "weights/model_files.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <limits>
#include <vector>

#include "support/folders.hpp"
#include "unit/weights/support.hpp"
#include "weights/finite.hpp"

namespace finetune::weights::model_files_test {
namespace {

namespace fs = std::filesystem;

/// One U8 tensor `name` of one byte.
std::string one_tensor(const std::string& name, char value = 'v') {
  return file_of("{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 std::string(1, value));
}

std::string index_of(const std::string& weight_map) {
  return "{\"metadata\":{\"total_size\":2},\"weight_map\":{" + weight_map + "}}";
}

/// A model of two files, `a` in one.safetensors and `b` in two.safetensors.
void put_two(const TestFolder& folder) {
  folder.put("one.safetensors", one_tensor("a", '1'));
  folder.put("two.safetensors", one_tensor("b", '2'));
  folder.put("model.safetensors.index.json",
             index_of("\"a\":\"one.safetensors\",\"b\":\"two.safetensors\""));
}

Thrown refusal(const fs::path& path) {
  const Thrown thrown = thrown_by([&] { ModelFiles::open(path); });
  EXPECT_EQ(thrown.kind, core::ErrorKind::input) << thrown.message;
  return thrown;
}

#define EXPECT_FOLDER_REFUSED(path, text) \
  EXPECT_TRUE(refusal(path).says(text)) << refusal(path).message

// Written by the Python package safetensors 0.8.0: matrix[i] = i / 7, rounded the
// same in BF16, cube[i] = i / 4 - 3 in F16.
const fs::path python_file = tests::source_folder() / "tests/golden/weights/python.safetensors";

TEST(ModelFiles, ReadsAFileOfThePythonPackage) {
  const ModelFiles files = ModelFiles::open(python_file);
  EXPECT_EQ(files.names(), (std::vector<std::string>{"cube", "empty", "hollow", "ids", "matrix",
                                                     "one", "rounded", "scalar"}));
  const auto cube = read_all<float>(files, "cube", core::DType::f32);
  const auto matrix = read_all<float>(files, "matrix", core::DType::f32);
  const auto rounded = read_all<float>(files, "rounded", core::DType::f32);
  ASSERT_EQ(cube.size(), 30u);
  for (std::size_t i = 0; i < cube.size(); ++i)
    EXPECT_EQ(cube[i], static_cast<float>(i) / 4 - 3);
  ASSERT_EQ(matrix.size(), 21u);
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    EXPECT_EQ(matrix[i], static_cast<float>(i) / 7);
    EXPECT_EQ(rounded[i], core::bf16_to_float(core::float_to_bf16(matrix[i])));
  }
  EXPECT_EQ(read_all<float>(files, "scalar", core::DType::f32), std::vector<float>{1.5f});
  EXPECT_EQ(read_all<float>(files, "one", core::DType::f32), std::vector<float>{-2.0f});
  EXPECT_EQ(read_all<std::int64_t>(files, "ids", core::DType::i64),
            (std::vector<std::int64_t>{1, -1, std::int64_t{1} << 40}));
  EXPECT_TRUE(read_all<float>(files, "empty", core::DType::f32).empty());
  EXPECT_TRUE(read_all<float>(files, "hollow", core::DType::f32).empty());
}

TEST(ModelFiles, ConvertsToWhatIsWanted) {
  const ModelFiles files = ModelFiles::open(python_file);
  const auto matrix = read_all<float>(files, "matrix", core::DType::f32);
  const auto bf16 = read_all<std::uint16_t>(files, "matrix", core::DType::bf16);
  const auto f16 = read_all<std::uint16_t>(files, "matrix", core::DType::f16);
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    EXPECT_EQ(bf16[i], core::float_to_bf16(matrix[i]));
    EXPECT_EQ(f16[i], core::float_to_f16(matrix[i]));
  }
}

TEST(ModelFiles, EverySliceHoldsItsPartOfTheTensor) {
  const ModelFiles files = ModelFiles::open(python_file);
  const auto all = read_all<float>(files, "cube", core::DType::f32);
  const auto& shape = files.entry("cube").shape;
  for (std::int64_t begin = 0; begin <= 30; ++begin) {
    for (std::int64_t count = 0; begin + count <= 30; ++count) {
      std::vector<float> part(static_cast<std::size_t>(count));
      files.read({"cube", shape, core::DType::f32, begin, count},
                 std::as_writable_bytes(std::span(part)));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + begin));
    }
  }
}

TEST(ModelFiles, ReadsOnlyTheBytesOfTheSlice) {
  const ModelFiles files = ModelFiles::open(python_file);
  EXPECT_EQ(files.bytes_read(), 0);
  std::vector<float> part(4);
  files.read({"cube", {2, 3, 5}, core::DType::f32, 7, 4}, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(files.bytes_read(), 4 * 2);
  files.read({"matrix", {7, 3}, core::DType::f32, 20, 1},
             std::as_writable_bytes(std::span(part).first(1)));
  EXPECT_EQ(files.bytes_read(), 4 * 2 + 4);
}

TEST(ModelFiles, SlicesLongerThanOnePieceAreConvertedWhole) {
  const TestFolder folder;
  const std::size_t count = (std::size_t{5} << 20) + 3;  // F16: ten MiB and three elements
  std::string data(2 * count, '\0');
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::uint16_t>(i % 0x7C00);
    std::memcpy(data.data() + 2 * i, &bits, 2);
  }
  // A header of odd length: elements are not aligned in the file.
  folder.put("model.safetensors",
             file_of("{\"a\":{\"dtype\":\"F16\",\"shape\":[" + std::to_string(count) +
                         "],\"data_offsets\":[0," + std::to_string(2 * count) + "]}}",
                     data));
  const auto values = read_all<float>(ModelFiles::open(folder.path()), "a", core::DType::f32);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i)
    wrong += values[i] != core::f16_to_float(static_cast<std::uint16_t>(i % 0x7C00));
  EXPECT_EQ(wrong, 0u);
}

TEST(ModelFiles, RefusesOtherShapesAndDtypes) {
  const ModelFiles files = ModelFiles::open(python_file);
  std::vector<std::byte> target(84);
  EXPECT_TRUE(thrown_by([&] {
                files.read({"matrix", {3, 7}, core::DType::f32, 0, 21}, target);
              }).says("tensor \"matrix\" has shape [7, 3] ([3, 7] is needed)"));
  EXPECT_TRUE(thrown_by([&] {
                files.read({"ids", {3}, core::DType::f32, 0, 3}, std::span(target).first(12));
              }).says("tensor \"ids\" has dtype I64 (F32 is needed)"));
  EXPECT_TRUE(thrown_by([&] { files.entry("matrox"); }).says("has no tensor \"matrox\""));
  for (const auto& [offset, count] : {std::pair{-1, 2}, {20, 2}, {0, 22}, {0, -1}}) {
    EXPECT_EQ(thrown_by([&, o = offset, c = count] {
                files.read({"matrix", {7, 3}, core::DType::f32, o, c}, target);
              }).kind,
              core::ErrorKind::bug);
  }
}

TEST(ModelFiles, FindsTensorsInTheFilesThatTheIndexNames) {
  const TestFolder folder;
  put_two(folder);
  const ModelFiles files = ModelFiles::open(folder.path());
  EXPECT_EQ(files.files(), (std::vector<std::string>{"one.safetensors", "two.safetensors"}));
  EXPECT_EQ(raw(files, "a")[0], std::byte{'1'});
  EXPECT_EQ(raw(files, "b")[0], std::byte{'2'});
  EXPECT_EQ(files.size_bytes(), 2);
}

TEST(ModelFiles, SaysWhatAFolderLacks) {
  const TestFolder folder;
  EXPECT_FOLDER_REFUSED(folder / "none", "no such model folder");
  EXPECT_FOLDER_REFUSED(folder.path(),
                        "has neither model.safetensors nor model.safetensors.index.json");
  folder.put("pytorch_model.bin", "x");
  EXPECT_FOLDER_REFUSED(folder.path(), "has pytorch_model.bin but no safetensors files");
}

TEST(ModelFiles, TruncatedFileIsNamed) {
  const TestFolder folder;
  const std::string whole = one_tensor("a");
  folder.put("model.safetensors", std::string_view(whole).substr(0, whole.size() - 1));
  EXPECT_FOLDER_REFUSED(folder.path(), (folder / "model.safetensors").string() + ": ends at byte " +
                                           std::to_string(whole.size() - 1) +
                                           " (the header promises " + std::to_string(whole.size()) +
                                           "). The file is truncated");
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{8}, whole.size() / 2}) {
    folder.put("model.safetensors", std::string_view(whole).substr(0, size));
    EXPECT_EQ(refusal(folder.path()).kind, core::ErrorKind::input) << size;
  }
}

/// Whoever copies files hears of all that are not whole, not of one per start.
TEST(ModelFiles, AllFilesThatAreMissingOrTruncatedAreNamed) {
  const TestFolder folder;
  put_two(folder);
  for (const char* name : {"one.safetensors", "two.safetensors"}) {
    fs::resize_file(folder / name, fs::file_size(folder / name) - 1);
    fs::last_write_time(folder / name, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  Thrown thrown = refusal(folder.path());
  for (const char* part : {"one.safetensors", "two.safetensors", "2 problems"})
    EXPECT_TRUE(thrown.says(part)) << thrown.message;
  EXPECT_FALSE(thrown.says("minute")) << thrown.message;
  // One that was written to just now may still be on its way.
  fs::last_write_time(folder / "two.safetensors", fs::file_time_type::clock::now());
  thrown = refusal(folder.path());
  EXPECT_TRUE(thrown.says("copy or download it again. It was written to within the last minute"))
      << thrown.message;
  fs::remove(folder / "one.safetensors");
  fs::remove(folder / "two.safetensors");
  EXPECT_FOLDER_REFUSED(folder.path(),
                        "lacks one.safetensors, two.safetensors, and has 0 of its 2 ");
}

TEST(ModelFiles, ValuesThatAreNotFiniteAreNamed) {
  const TestFolder folder;
  // 1, infinity, NaN, 2 in BF16.
  const std::string bytes("\x80\x3f\x80\x7f\xc0\x7f\x00\x40", 8);
  folder.put("model.safetensors",
             file_of("{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
                     "\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[8,10]},"
                     "\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[10,12]}}",
                     bytes + std::string("\x80\x3f\xff\xff", 4)));
  const ModelFiles files = ModelFiles::open(folder.path());
  const Thrown thrown = thrown_by([&] { require_finite(files, "a"); });
  EXPECT_EQ(thrown.kind, core::ErrorKind::input);
  for (const char* part : {"/model.safetensors: ", "tensor \"a\" ", " inf ", "element 1 of [2, 2]"})
    EXPECT_TRUE(thrown.says(part)) << part << ": " << thrown.message;
  EXPECT_NO_THROW(require_finite(files, "b"));
  EXPECT_NO_THROW(require_finite(files, "c")) << "codes are no numbers";
  std::vector<float> values(10'000, 3e38f);
  EXPECT_FALSE(find_not_finite(values)) << "their sum would be infinite";
  values[9'999] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(find_not_finite(values), std::size_t{9'999});
  values[5'000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(find_not_finite(values), std::size_t{5'000});
}

TEST(ModelFiles, IndexCannotLeaveItsFolder) {
  const TestFolder folder;
  for (const char* name : {"../secret", "/etc/passwd", "a/b.safetensors", "..", ".hidden", "",
                           "a\\\\b", "-rf", "a\\u0000b", "ü"}) {
    folder.put("model.safetensors.index.json", index_of("\"a\":\"" + std::string(name) + "\""));
    EXPECT_FOLDER_REFUSED(folder.path(), "weight_map puts tensor \"a\" into ");
  }
  folder.put("model.safetensors.index.json", index_of("\"a\":\"" + std::string(256, 'a') + "\""));
  EXPECT_FOLDER_REFUSED(folder.path(), "weight_map puts tensor \"a\" into ");
}

TEST(ModelFiles, IndexAndFilesBelongTogether) {
  const TestFolder folder;
  put_two(folder);
  const auto index = [&](const std::string& text) {
    folder.put("model.safetensors.index.json", text);
    return refusal(folder.path()).message;
  };
  const auto says = [](const std::string& message, std::string_view text) {
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  const std::string both = "\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"";
  says(index(index_of(both + ",\"c\":\"one.safetensors\"")),
       "tensor \"c\" is not in one.safetensors (weight_map says so, but no file has it)");
  says(index(index_of("\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"")),
       "tensor \"a\" is not in two.safetensors (weight_map says so, but another file has it)");
  says(index(index_of(both + ",\"c\":\"three.safetensors\"")),
       "lacks three.safetensors, and has 2 of its 3 ");
  says(index(index_of(both + ",\"a\":\"one.safetensors\"")), "names tensor \"a\" twice");
  says(index(index_of("")), "its weight_map is empty");
  says(index("{}"), "has no weight_map");
  says(index("[]"), "the index: an array does not belong here");
  says(index("{\"weight_map\":[]}"), "an array does not belong here");
  says(index("{\"weight_map\":{},\"weight_map\":{}}"), "weight_map occurs twice");
  says(index("{\"weight_map\":{\"a\":1}}"), "weight_map \"a\": a number does not belong here");
  says(index("{\"weight_map\":{\"a\":{\"b\":\"c\"}}}"), "an object does not belong here");
  says(index("{\"metadata\":" + std::string(9, '[')), "nested deeper than 8 levels");
  says(index("{\"weight_map\":{" + both), "broken JSON");
}

TEST(ModelFiles, MutatedIndexesAreReadOrRefused) {
  const TestFolder folder;
  put_two(folder);
  const std::string good = content(folder / "model.safetensors.index.json");
  int refused = 0;
  for (std::uint64_t number = 0; number < 500; ++number) {
    folder.put("model.safetensors.index.json", mutated(good, number));
    try {
      EXPECT_EQ(ModelFiles::open(folder.path()).size_bytes(), 2) << number;
    } catch (const core::Error& error) {
      EXPECT_EQ(error.kind(), core::ErrorKind::input) << number << ": " << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 250);
  EXPECT_LT(refused, 500);
}

TEST(ModelFiles, TensorInTwoFilesIsRefused) {
  const TestFolder folder;
  put_two(folder);
  folder.put("two.safetensors",
             file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                     "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                     "12"));
  EXPECT_FOLDER_REFUSED(folder.path(), "two.safetensors: tensor \"a\" is also in one.safetensors");
}

TEST(ModelFiles, FollowsLinksOnlyAsTheHuggingFaceCacheHasThem) {
  const TestFolder cache;
  const std::string digest(64, 'e');
  fs::create_directories(cache / "blobs");
  fs::create_directories(cache / "snapshots/main");
  cache.put("blobs/" + digest, one_tensor("a"));
  const fs::path model = cache / "snapshots/main";
  fs::create_symlink("../../blobs/" + digest, model / "model.safetensors");
  EXPECT_EQ(raw(ModelFiles::open(model), "a")[0], std::byte{'v'});

  const auto relink = [&](const fs::path& target) {
    fs::remove(model / "model.safetensors");
    fs::create_symlink(target, model / "model.safetensors");
  };
  relink(cache / ("blobs/" + digest));
  EXPECT_FOLDER_REFUSED(model, "is a symbolic link to \"" + cache.path().string());
  relink("../../blobs/../blobs/" + digest);
  EXPECT_FOLDER_REFUSED(model, "is a symbolic link to");
  // A link behind an allowed link.
  const std::string second(40, 'f');
  fs::create_symlink(digest, cache / ("blobs/" + second));
  relink("../../blobs/" + second);
  EXPECT_FOLDER_REFUSED(model, "is not a file");
  relink("../../blobs/" + std::string(40, 'a'));
  EXPECT_FOLDER_REFUSED(model, "cannot be opened");
}

TEST(ModelFiles, FoldersAndPipesAreNotRead) {
  const TestFolder folder;
  fs::create_directory(folder / "model.safetensors");
  EXPECT_FOLDER_REFUSED(folder.path(), "is not a file");
  put_two(folder);
  fs::remove(folder / "model.safetensors");
  fs::remove(folder / "one.safetensors");
  ASSERT_EQ(::mkfifo((folder / "one.safetensors").c_str(), 0600), 0);
  EXPECT_FOLDER_REFUSED(folder.path(), "is not a file");
}

TEST(ModelFiles, FileThatChangedSinceOpeningIsRefused) {
  const TestFolder folder;
  folder.put("model.safetensors", one_tensor("a"));
  const ModelFiles files = ModelFiles::open(folder.path());
  folder.put("model.safetensors", one_tensor("a") + "more");
  EXPECT_TRUE(thrown_by([&] { raw(files, "a"); }).says("when the model was opened"));
}

}  // namespace
}  // namespace finetune::weights::model_files_test
