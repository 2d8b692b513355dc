// SPDX-License-Identifier: Apache-2.0
#include "metrics/records.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/json.hpp"
#include "support/errors.hpp"
#include "support/files.hpp"

namespace finetune::metrics::records_test {
namespace {

void expect_same_bits(const core::Json& value, double expected) {
  EXPECT_EQ(std::bit_cast<std::uint64_t>(value.get<double>()),
            std::bit_cast<std::uint64_t>(expected))
      << value;
}

TEST(StepRecord, ReadsBackToTheSameBits) {
  const StepRecord record{.step = 3,
                          .loss = 0.1 + 0.2,
                          .grad_norm = 1.0 / 3,
                          .lr = std::numeric_limits<double>::denorm_min(),
                          .tokens = std::int64_t{1} << 60,
                          .tokens_per_s = std::numeric_limits<double>::max(),
                          .step_s = 1e-300};
  const core::Json json = core::parse_json(to_json(record), "metrics.jsonl");
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["tokens"], std::int64_t{1} << 60);
  expect_same_bits(json["loss"], record.loss);
  expect_same_bits(json["grad_norm"], record.grad_norm);
  expect_same_bits(json["lr"], record.lr);
  expect_same_bits(json["tokens_per_s"], record.tokens_per_s);
  expect_same_bits(json["step_s"], record.step_s);
}

TEST(StepRecord, HasTheEpochBehindTheKeysThatScriptsRelyOn) {
  const std::string text = to_json(StepRecord{.step = 5, .padding = 0.5, .epoch = 1.25});
  EXPECT_TRUE(text.ends_with("\"padding\": 0.5, \"epoch\": 1.25}")) << text;
  EXPECT_EQ(to_json(StepRecord{.step = 5}).find("epoch"), std::string::npos);
}

TEST(StepRecord, SaysWhatWasTrainedSoFarAndHowFastWhereThatIsKnown) {
  const core::Json json = core::parse_json(to_json(StepRecord{.step = 5,
                                                              .total_samples = 640,
                                                              .total_tokens = std::int64_t{1} << 60,
                                                              .tokens_per_s_per_rank = 1.0 / 3,
                                                              .tflops_per_rank = 0.1 + 0.2,
                                                              .mfu = 0.41,
                                                              .unix_time_s = 1790000000.25}),
                                           "metrics.jsonl");
  EXPECT_EQ(json["total_samples"], 640);
  EXPECT_EQ(json["total_tokens"], std::int64_t{1} << 60);
  expect_same_bits(json["tokens_per_s_per_rank"], 1.0 / 3);
  expect_same_bits(json["tflops_per_rank"], 0.1 + 0.2);
  expect_same_bits(json["mfu"], 0.41);
  expect_same_bits(json["unix_time_s"], 1790000000.25);
  const std::string without = to_json(StepRecord{.step = 5});
  for (const char* name : {"total_", "per_rank", "tflops", "mfu", "unix"})
    EXPECT_EQ(without.find(name), std::string::npos) << without;
}

TEST(StepRecord, HasTheNormsOfLayersByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const core::Json json = core::parse_json(
      to_json(
          StepRecord{.step = 5, .norms = {{0, "embedding", 1.0 / 3, 0.5}, {4, "block 3", 2, nan}}}),
      "metrics.jsonl");
  ASSERT_EQ(json["norms"].size(), 2u);
  expect_same_bits(json["norms"]["embedding"]["weight"], 1.0 / 3);
  EXPECT_EQ(json["norms"]["block 3"]["weight"], 2);
  EXPECT_TRUE(json["norms"]["block 3"]["gradient"].is_null());
}

TEST(AnswersRecord, SurvivesWhateverAModelSays) {
  const core::Json json = core::parse_json(
      to_json(AnswersRecord{.step = 3, .answers = {{"a \"b\"", "\xff\x1b[2J\n", "c"}}}),
      "metrics.jsonl");
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["answers"][0]["prompt"], "a \"b\"");
  EXPECT_EQ(json["answers"][0]["answer"], "\\xff\\x1b[2J\n");
}

TEST(StepRecord, WritesNullForWhatJsonCannotSay) {
  const core::Json json =
      core::parse_json(to_json(StepRecord{.step = 1,
                                          .loss = std::numeric_limits<double>::quiet_NaN(),
                                          .grad_norm = -std::numeric_limits<double>::infinity()}),
                       "metrics.jsonl");
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["grad_norm"].is_null());
}

TEST(ValidationRecord, HasExactMatchOnlyWhereThereAreAnswers) {
  const auto json = [](const ValidationRecord& record) {
    return core::parse_json(to_json(record), "metrics.jsonl");
  };
  const core::Json without = json({.step = 5, .validation_loss = 1.0 / 7, .exact_match = {}});
  EXPECT_EQ(without["step"], 5);
  expect_same_bits(without["validation_loss"], 1.0 / 7);
  EXPECT_FALSE(without.contains("exact_match"));
  const core::Json with = json({.step = 5, .validation_loss = 1, .exact_match = 2.0 / 3});
  expect_same_bits(with["exact_match"], 2.0 / 3);
}

class RecordFileTest : public testing::Test {
 protected:
  ~RecordFileTest() override {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  std::string text() const { return tests::file_text(path_); }

  const std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                      ("finetune-records-" + std::to_string(::getpid()) + ".jsonl");
};

TEST_F(RecordFileTest, AppendsLines) {
  RecordFile file(path_, 0);
  file.append("{}");
  file.append("{\"a\": 1}");
  EXPECT_EQ(text(), "{}\n{\"a\": 1}\n");
  EXPECT_EQ(file.size_bytes(), 12);
}

TEST_F(RecordFileTest, DropsWhatCameAfterTheCheckpoint) {
  RecordFile(path_, 0).append("{\"step\": 1}");
  const auto keep = static_cast<std::int64_t>(text().size());
  RecordFile(path_, keep).append("{\"step\": 2, \"of a lost\": \"step\"}");
  RecordFile again(path_, keep);
  EXPECT_EQ(again.size_bytes(), keep);
  again.append("{\"step\": 2}");
  EXPECT_EQ(text(), "{\"step\": 1}\n{\"step\": 2}\n");
}

TEST_F(RecordFileTest, DoesNotGrowAFileThatIsShorterThanItShouldBe) {
  RecordFile(path_, 0).append("{}");
  EXPECT_EQ(RecordFile(path_, 1000).size_bytes(), 3);
  EXPECT_EQ(text(), "{}\n");
}

TEST_F(RecordFileTest, SaysWhereItCannotBeMade) {
  tests::expect_error(core::ErrorKind::create, "metrics.jsonl",
                      [&] { RecordFile file(path_ / "no such folder" / "metrics.jsonl", 0); });
}

}  // namespace
}  // namespace finetune::metrics::records_test
