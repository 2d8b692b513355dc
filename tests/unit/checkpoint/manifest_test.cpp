// SPDX-License-Identifier: Apache-2.0
// Manifests as an attacker would write them: the fingerprint fits, the content does not.
#include "checkpoint/format/detail/manifest.hpp"

#include <gtest/gtest.h>

#include <tuple>

#include "core/error.hpp"
#include "support/errors.hpp"
#include "unit/checkpoint/support.hpp"

namespace finetune::checkpoint::manifest_test {
namespace {

Manifest small() {
  Manifest m;
  m.step = 3;
  m.world_size = 2;
  m.block_bytes = 64;
  m.created_by = "a \"test\"\n";
  m.state_bytes = 2;
  m.state_fingerprint = "00";
  m.files = {{"node00000.h5", 4096, 1}, {"node00001.h5", 4096, 4294967295}};
  m.tensors = {{"exp_avg", "w", core::DType::bf16, {0, 9}},
               {"param", "w", core::DType::f32, {5, 8}}};
  m.boxes = {{1, {{0, 0}, {5, 8}}}};
  m.extents = {{0, 0, 0, 24, 1000, {1, 2}}, {0, 1, 24, 16, 1000, {3}}};
  return m;
}

/// The same tensors, the second one in two boxes: columns 0 to 4 and columns 5 to 7.
Manifest two_boxes() {
  Manifest m = small();
  m.boxes = {{1, {{0, 0}, {5, 5}}}, {1, {{0, 5}, {5, 3}}}};
  m.extents = {{0, 0, 0, 25, 1000, {1, 2}}, {1, 1, 0, 10, 1000, {3}}, {1, 0, 10, 5, 2000, {4}}};
  return m;
}

/// The text that format version 1 has for `small`.
std::string version_one() {
  std::string text = to_text(small());
  const std::size_t boxes = text.find(",\n\"boxes\"");
  text.erase(boxes, text.find(",\n\"slices\"") - boxes);
  text.replace(text.find("\"version\":2"), 11, "\"version\":1");
  text.replace(text.find("[0,0,0,24,"), 10, "[1,0,0,24,");
  text.replace(text.find("[0,1,24,16,"), 11, "[1,1,24,16,");
  return tests::sealed(text);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  return finetune::tests::refusal_of(
      core::ErrorKind::input, [&] { parse_manifest(text, "MANIFEST.json"); }, "accepted");
}

TEST(Manifest, ReadsWhatItWrites) {
  const Manifest m = parse_manifest(to_text(small()), "test");
  EXPECT_EQ(to_text(m), to_text(parse_manifest(to_text(m), "test")));
  EXPECT_EQ(m.files[1].skeleton_crc32c, 4294967295u);
  EXPECT_EQ(m.extents[0].crc32c, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(m.find("param", "w"), 1);
  EXPECT_EQ(m.find("exp_avg", "w"), 0);
  EXPECT_EQ(m.find("param", "v"), -1);
  EXPECT_EQ(m.boxes_of(0).size(), 0u);
  EXPECT_EQ(m.boxes_of(1).size(), 1u);
  EXPECT_EQ(m.extents_of(m.boxes[0]).size(), 2u);
  EXPECT_EQ(m.payload_bytes(), 160);
}

TEST(Manifest, ReadsTensorsThatAreCutIntoBoxes) {
  const Manifest m = parse_manifest(to_text(two_boxes()), "test");
  EXPECT_EQ(to_text(m), to_text(two_boxes()));
  EXPECT_EQ(m.boxes_of(1).size(), 2u);
  EXPECT_EQ(m.extents_of(m.boxes[0]).size(), 1u);
  EXPECT_EQ(m.extents_of(m.boxes[1]).size(), 2u);
  EXPECT_EQ(m.first_element(m.extents[1]), 5);
  EXPECT_EQ(m.first_element(m.extents[2]), 3 * 8 + 6);  // row 3 of a box 3 wide, its second element
  EXPECT_EQ(m.payload_bytes(), 160);
}

TEST(Manifest, ReadsFormatVersionOneInWhichEachTensorIsOneBox) {
  EXPECT_EQ(to_text(parse_manifest(version_one(), "test")), to_text(small()));
}

TEST(Manifest, FormatVersionOneHasNoBoxesAndVersionTwoCannotDoWithout) {
  const std::string one = version_one();
  EXPECT_NE(refusal(tests::sealed(replaced(one, ",\n\"slices\"", ",\"boxes\":[],\n\"slices\""))),
            "accepted");
  EXPECT_NE(refusal(tests::sealed(replaced(one, "\"version\":1", "\"version\":2"))), "accepted");
  EXPECT_NE(refusal(tests::sealed(replaced(one, "[1,0,0,24,", "[2,0,0,24,"))), "accepted");
  EXPECT_NE(refusal(tests::sealed(replaced(one, "[1,0,0,24,", "[0,0,0,24,"))), "accepted");
}

TEST(Manifest, RefusesATextWhoseFingerprintDoesNotFit) {
  const std::string good = to_text(small());
  EXPECT_NE(refusal(good + "\n"), "accepted");
  EXPECT_NE(refusal(" " + good), "accepted");
  EXPECT_NE(refusal(good.substr(0, good.size() - 1)), "accepted");
  EXPECT_NE(refusal(""), "accepted");
  EXPECT_NE(refusal("{}"), "accepted");
}

TEST(Manifest, SaysWhichFormatVersionItCannotRead) {
  const std::string text =
      tests::sealed(replaced(to_text(small()), "\"version\":2", "\"version\":3"));
  EXPECT_EQ(refusal(text),
            "MANIFEST.json: the checkpoint has format version 3 (this program reads versions 1 to "
            "2). Use the program that wrote it, or export its weights with that one.");
}

TEST(Manifest, RefusesOtherForms) {
  const std::string good = to_text(small());
  const std::pair<const char*, const char*> cases[] = {
      {"\"step\":3", "\"step\":-3"},
      {"\"step\":3", "\"step\":3.0"},
      {"\"step\":3", "\"step\":99999999999"},
      {"\"step\":3", "\"step\":18446744073709551615"},
      {"\"step\":3", "\"step\":1e3"},
      {"\"step\":3", "\"step\":null"},
      {"\"step\":3", "\"step\":true"},
      {"\"step\":3", "\"step\":\"3\""},
      {"\"step\":3", "\"step\":[3]"},
      {"\"step\":3", "\"step\":{}"},
      {"\"step\":3", "\"step\":3,\"step\":3"},
      {"\"step\":3,\n", ""},
      {"\"step\":3", "\"step\":3,\"new\":1"},
      {"\"step\":3", "\"step\":3,\"new\":[[1]]"},
      {"finetune checkpoint", "something else"},
      {"\"world_size\":2", "\"world_size\":0"},
      {"\"block_bytes\":64", "\"block_bytes\":0"},
      {"\"block_bytes\":64", "\"block_bytes\":68"},
      {"\"block_bytes\":64", "\"block_bytes\":1099511627776"},
      {"node00001.h5", "../../../etc"},
      {"node00001.h5", "node00000.h5"},
      {"[\"node00001.h5\",4096,4294967295]", "[\"node00001.h5\",4096,4294967296]"},
      {"[\"node00001.h5\",4096,4294967295]", "[\"node00001.h5\",4096]"},
      {"[\"node00001.h5\",4096,4294967295]", "[\"node00001.h5\",4096,1,1,1,1,1,1,1,1]"},
      {"[\"node00001.h5\",4096,4294967295]", "[]"},
      {"[\"node00001.h5\",4096,4294967295]", "[[[[]]]]"},
      {"[\"node00001.h5\",4096,4294967295]", "1"},
      {"\"BF16\"", "\"Q4\""},
      {"[0,9]", "[0,9,1,1,1,1,1,1,1]"},
      {"[0,9]", "[0,4611686018427387904]"},
      {"[5,8]", "[5,9223372036854775807]"},
      {"[5,8]", "[5,9]"},
      {"[5,8]", "[4,8]"},
      {"[5,8]", "[[5],8]"},
      {"[5,8]", "[5,\"8\"]"},
      {"\"param\",\"w\"", "\"param\",\"../w\""},
      {"\"param\",\"w\"", "\"exp_avg\",\"w\""},
      {"\"param\",\"w\"", "\"a\",\"w\""},
      {"[0,0,0,24,1000,[1,2]]", "[0,2,0,24,1000,[1,2]]"},
      {"[0,0,0,24,1000,[1,2]]", "[0,0,1,23,1000,[1,2]]"},
      {"[0,0,0,24,1000,[1,2]]", "[0,0,0,25,1000,[1,2]]"},
      {"[0,0,0,24,1000,[1,2]]", "[0,0,0,23,1000,[1,2]]"},
      {"[0,0,0,24,1000,[1,2]]", "[0,0,0,0,1000,[1,2]]"},
      {"[0,0,0,24,1000,[1,2]]", "[0,0,0,24,4001,[1,2]]"},
      {"[0,0,0,24,1000,[1,2]]", "[0,0,0,24,9223372036854775807,[1,2]]"},
      {"[0,0,0,24,1000,[1,2]]", "[0,0,0,9223372036854775807,1000,[1,2]]"},
      {"[0,0,0,24,1000,[1,2]]", "[0,0,0,24,1000,[1]]"},
      {"[0,0,0,24,1000,[1,2]]", "[0,0,0,24,1000,[1,2,3]]"},
      {"[0,0,0,24,1000,[1,2]]", "[0,0,0,24,1000,[1,[2]]]"},
      {"[0,0,0,24,1000,[1,2]]", "[0,0,0,24,1000]"},
      {"[0,1,24,16,1000,[3]]", "[0,0,24,16,1010,[3]]"},  // inside the bytes of the other
      {"\"tensors\":[", "\"tensors\":[,"},
      {"{\"format\"", "[{\"format\""},
      {"\xff", "\xff"},
  };
  for (const auto& [from, to] : cases) {
    const std::string text = *from == '\xff'
                                 ? replaced(good, "created_by\":\"a", "created_by\":\"\xff")
                                 : replaced(good, from, to);
    EXPECT_NE(refusal(tests::sealed(text)), "accepted") << to;
  }
  EXPECT_EQ(refusal(tests::sealed(good)), "accepted");
}

TEST(Manifest, RefusesBoxesThatNoTensorHas) {
  const std::string good = to_text(two_boxes());
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"[1,[0,0],[5,5]]", "[1,[0,0],[5,6]]", "element 5 of param w is stored twice"},
      {"[1,[0,0],[5,5]]", "[1,[0,0],[5,4]]", "element 4 of param w is missing"},
      {"[1,[0,0],[5,5]]", "[1,[0,1],[5,4]]", "element 0 of param w is missing"},
      {"[1,[0,0],[5,5]]", "[1,[1,0],[4,5]]", "not in order"},
      {"[1,[0,5],[5,3]]", "[1,[0,5],[4,3]]", "element 37 of param w is missing"},
      {"[1,[0,5],[5,3]]", "[1,[0,0],[5,5]]", "element 0 of param w is stored twice"},
      {"[1,[0,5],[5,3]]", "[1,[0,5],[5,4]]", "outside its tensor"},
      {"[1,[0,5],[5,3]]", "[1,[1,5],[5,3]]", "outside its tensor"},
      {"[1,[0,5],[5,3]]", "[1,[0,9],[5,0]]", "outside its tensor"},
      {"[1,[0,5],[5,3]]", "[1,[0,5],[5,0]]", "empty"},
      {"[1,[0,5],[5,3]]", "[1,[0,5],[5,9223372036854775807]]", "outside its tensor"},
      {"[1,[0,5],[5,3]]", "[1,[0,9223372036854775807],[5,3]]", "outside its tensor"},
      {"[1,[0,5],[5,3]]", "[1,[9223372036854775807,5],[9223372036854775807,3]]", "outside"},
      {"[1,[0,5],[5,3]]", "[1,[0,5],[5,-3]]", "negative number"},
      {"[1,[0,5],[5,3]]", "[1,[5],[3]]", "of another rank"},
      {"[1,[0,5],[5,3]]", "[1,[0,5,0],[5,3,1]]", "of another rank"},
      {"[1,[0,5],[5,3]]", "[1,[0,5],[5]]", "of another rank"},
      {"[1,[0,5],[5,3]]", "[1,[],[]]", "of another rank"},
      {"[1,[0,5],[5,3]]", "[0,[0,5],[5,3]]", "element 5 of param w is missing"},
      {"[1,[0,5],[5,3]]", "[2,[0,5],[5,3]]", "element 5 of param w is missing"},
      {"[1,[0,5],[5,3]]", "[1,[0,5]]", "a wrong form"},
      {"[1,[0,5],[5,3]]", "[1,0,5,5,3]", "a wrong form"},
      {"[1,[0,5],[5,3]]", "[1,[0,5],[5,3],[1]]", "a wrong form"},
      {"[1,[0,5],[5,3]]", "[1,[0,[5]],[5,3]]", "nested"},
      {",\n[1,[0,5],[5,3]]", "", "element 5 of param w is missing"},
      {"[1,1,0,10,1000,[3]]", "[0,1,0,10,1000,[3]]", "element 0 of param w is stored twice"},
      {"[1,1,0,10,1000,[3]]", "[1,1,1,9,1000,[3]]", "element 5 of param w is missing"},
      {"[1,1,0,10,1000,[3]]", "[1,1,0,9,1000,[3]]", "element 29 of param w is missing"},
      {"[1,1,0,10,1000,[3]]", "[1,1,0,16,1000,[3]]", "a wrong count"},
      {"[1,0,10,5,2000,[4]]", "[2,0,10,5,2000,[4]]", "not in order of their boxes"},
  };
  for (const auto& [from, to, problem] : cases) {
    const std::string result = refusal(tests::sealed(replaced(good, from, to)));
    EXPECT_NE(result.find(problem), std::string::npos) << to << "\n" << result;
  }
  EXPECT_EQ(refusal(good), "accepted");
}

TEST(Manifest, RefusesMoreBoxesThanAnyAxesCutATensorInto) {
  Manifest m = small();
  m.tensors = {{"param", "w", core::DType::u8, {5000}}};
  m.boxes.clear();
  m.extents.clear();
  for (std::int64_t i = 0; i < 5000; ++i) {
    m.boxes.push_back({0, {{i}, {1}}});
    m.extents.push_back({i, i / 2500, 0, 1, i % 2500, {4000000000}});
  }
  EXPECT_NE(refusal(to_text(m)).find("more than 4096 boxes"), std::string::npos);

  m = small();
  m.tensors = {{"param", "w", core::DType::u8, {2, 2, 2, 2, 2}}};
  m.boxes = {{0, {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}}};
  m.extents = {{0, 0, 0, 1, 0, {4000000000}}};
  EXPECT_NE(refusal(to_text(m)).find("more than 4 dims"), std::string::npos);
}

TEST(Manifest, NamesTheElementThatIsMissingOrDouble) {
  Manifest m = small();
  m.extents.pop_back();
  EXPECT_NE(refusal(to_text(m)).find("element 24 of param w is missing"), std::string::npos);
  m = small();
  m.extents[1].offset = 20;
  EXPECT_NE(refusal(to_text(m)).find("element 20 of param w is stored twice"), std::string::npos);
}

TEST(Manifest, NothingHidesBehindANulByte) {
  std::string text = to_text(small());
  text.resize(text.rfind("\"fingerprint\""));
  text += "\"fingerprint\":\"\"}";
  text += '\0';
  text += "\"fingerprint\":\"\"}\n";
  EXPECT_NE(refusal(tests::sealed(text)).find("is NUL"), std::string::npos);
}

TEST(Manifest, SizesOfAllFilesCanBeAdded) {
  Manifest m = small();
  for (FileEntry& file : m.files)
    file.size_bytes = std::int64_t{1} << 61;
  EXPECT_NE(refusal(to_text(m)).find("sizes are absurd"), std::string::npos);
}

TEST(Manifest, ListsThatGrowInMemoryAreRefusedWhileTheyAreRead) {
  std::string ones = "1";
  for (int i = 0; i < 100'000; ++i)
    ones += ",1";
  const std::string text = replaced(to_text(small()), "[3]", "[" + ones + "]");
  EXPECT_NE(refusal(tests::sealed(text)).find("too many short numbers"), std::string::npos);
}

TEST(Manifest, DeepNestingIsRefusedAtOnce) {
  const std::string text = "{\"files\":" + std::string(1000000, '[') + ",";
  EXPECT_NE(refusal(tests::sealed(text)).find("nested"), std::string::npos);
}

}  // namespace
}  // namespace finetune::checkpoint::manifest_test
