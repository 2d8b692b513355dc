// SPDX-License-Identifier: Apache-2.0
#include "formats/labelled/labelled.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "train/corpus/detail/labels.hpp"
#include "unit/data/fake.hpp"

namespace finetune::formats::labelled::labelled_test {
namespace {

using model::HeadKind;
using tests::TemporaryFolder;

std::string refusal_of(std::string_view content, const data::Columns& columns = {}) {
  const TemporaryFolder folder;
  const auto path = folder.write("d.jsonl", content);
  return tests::refusal([&] { format().open(path, columns)->sample(0); }, folder.path());
}

TEST(Labelled, IsATextAndWhatTheFileSaysOfIt) {
  const TemporaryFolder folder;
  const auto path = folder.write("d.jsonl", R"({"text": "A fine day.", "label": ["a", 1]})");
  const auto sample = format().open(path, {})->sample(0);
  ASSERT_EQ(sample.segments.size(), 1u);
  EXPECT_EQ(sample.segments[0].text, "A fine day.");
  EXPECT_FALSE(sample.segments[0].trained);
  EXPECT_EQ(sample.label, core::Json({"a", 1}));
}

TEST(Labelled, TheDeckNamesTheColumns) {
  const TemporaryFolder folder;
  data::Columns columns;
  columns.text = "review";
  columns.label = "stars";
  const auto path = folder.write("d.json", R"([{"review": "r", "stars": 4.5, "text": 7}])");
  const auto sample = format().open(path, columns)->sample(0);
  EXPECT_EQ(sample.segments[0].text, "r");
  EXPECT_EQ(sample.label, 4.5);
}

TEST(Labelled, ColumnsAreMappedAndATemplateWritesTheText) {
  const TemporaryFolder folder;
  data::Columns columns;
  columns.mapped = {{"label", "stars"}};
  columns.prompt_template = "{{ title }}: {{ body }}";
  const auto path = folder.write("d.json", R"([{"title": "t", "body": "b", "stars": 4}])");
  const auto sample = format().open(path, columns)->sample(0);
  EXPECT_EQ(sample.segments.at(0).text, "t: b");
  EXPECT_EQ(sample.label, 4);
}

TEST(Labelled, RefusesColumnsThatAreNotThere) {
  EXPECT_EQ(
      refusal_of(R"({"text": "t", "lable": 1})"),
      "65: d.jsonl:1: field \"label\" is missing (the fields are \"text\", \"lable\"). Did you "
      "mean \"lable\"? Set data.label_column = \"lable\".");
  EXPECT_EQ(refusal_of(R"({"text": ["t"], "label": 1})"),
            "65: d.jsonl:1: field \"text\" is of type array (text is needed). Make it a string.");
}

TEST(LabelCoder, KnowsLabelsByNameAndNumber) {
  const auto coder = train::label_coder({HeadKind::one_label, 3}, {"a", "b", "c"});
  EXPECT_EQ(coder.num_codes, 3);
  EXPECT_EQ(coder.code("c", "w"), 2);
  EXPECT_EQ(coder.code(1, "w"), 1);
  EXPECT_EQ(coder.code("1", "w"), 1) << "a table has texts alone";
  EXPECT_EQ(train::label_coder({HeadKind::one_label, 3}, {"2", "1", "0"}).code("2", "w"), 0);
  EXPECT_EQ(coder.text(1), "b");
  for (const core::Json& other : {core::Json("d"), core::Json(3), core::Json(-1), core::Json(1.5),
                                  core::Json(), core::Json({"a"})})
    EXPECT_NE(tests::refusal([&] { coder.code(other, "d.jsonl:1"); }, "").find("model.labels are"),
              std::string::npos)
        << other;
}

TEST(LabelCoder, OfSeveralHasABitEach) {
  const auto coder = train::label_coder({HeadKind::labels, 3}, {"a", "b", "c"});
  EXPECT_EQ(coder.num_codes, 8);
  EXPECT_EQ(coder.code({"c", 0}, "w"), 5);
  EXPECT_EQ(coder.code(core::Json::array(), "w"), 0);
  EXPECT_EQ(coder.text(5), "[a, c]");
  EXPECT_NE(tests::refusal([&] { coder.code("a", "w"); }, "").find("they are a list"),
            std::string::npos);
}

TEST(LabelCoder, OfNumbersKeepsAllButTheLastBit) {
  const auto coder = train::label_coder({HeadKind::value, 1}, {"stars"});
  for (const float value : {0.0F, -0.75F, 1.5F, 3.14159265F, -1e-30F, 1e30F}) {
    const std::int32_t code = coder.code(value, "w");
    EXPECT_GE(code, 0);
    EXPECT_NEAR(model::value_of_code(code), value, 2e-7 * std::abs(value));
  }
  EXPECT_EQ(coder.text(coder.code(-0.75, "w")), "-0.75");
  EXPECT_EQ(coder.code("-0.75", "w"), coder.code(-0.75, "w"));
  for (const core::Json& other :
       {core::Json("one"), core::Json("[1]"), core::Json(1e300), core::Json(true)})
    EXPECT_NE(tests::refusal([&] { coder.code(other, "w"); }, "").find("finite numbers"),
              std::string::npos)
        << other;
}

}  // namespace
}  // namespace finetune::formats::labelled::labelled_test
