// SPDX-License-Identifier: Apache-2.0
// TensorBoard's own readers, where Python has them, see one curve over starts and kills.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/json.hpp"
#include "metrics/tensorboard/event_file.hpp"
#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::metrics::event_reader_test {
namespace {

namespace fs = std::filesystem;

using Curve = std::vector<std::pair<std::int64_t, double>>;

Curve curve(std::int64_t last) {
  Curve points;
  for (std::int64_t step = 1; step <= last; ++step)
    points.emplace_back(step, 0.25 * static_cast<double>(step));
  return points;
}

class EventReader : public testing::Test {
 protected:
  EventReader() : folder_(tests::build_folder() / "tests/event_reader") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~EventReader() override { fs::remove_all(folder_); }

  void SetUp() override {
    if (tests::run_program({"env", "python3", "-c", "import tensorboard"}, folder_).exit_code != 0)
      GTEST_SKIP() << "no Python with tensorboard here (pip install tensorboard)";
  }

  /// A start that trains these steps, with values `more` above those of `curve`.
  fs::path train(std::int64_t first, std::int64_t last, double more = 0) const {
    EventFile file(folder_, first);
    file.add({.wall_time_s = 1, .step = first - 1, .numbers = {}, .texts = {{"deck", "seed = 1"}}});
    for (std::int64_t step = first; step <= last; ++step)
      file.add({.wall_time_s = 1,
                .step = step,
                .numbers = {{"train/loss", 0.25 * static_cast<double>(step) + more}}});
    return file.path();
  }

  core::Json read() const {
    const auto outcome = tests::run_program(
        {"env", "python3", tests::source_folder() / "tests/unit/metrics/read_events.py", folder_},
        folder_);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    return core::parse_json(outcome.out, "read_events.py");
  }

  Curve read_curve() const { return read().at("numbers").at("train/loss").get<Curve>(); }

  fs::path folder_;
};

TEST_F(EventReader, FindsNumbersAndTexts) {
  train(1, 3);
  const core::Json found = read();
  EXPECT_EQ(found.at("numbers").at("train/loss").get<Curve>(), curve(3));
  EXPECT_EQ(found.at("texts").at("deck"), core::Json::parse(R"([[0, "seed = 1"]])"));
}

TEST_F(EventReader, FindsBars) {
  EventFile file(folder_, 1);
  file.add({.wall_time_s = 1, .step = 4, .bars = {{"norms/a", -1, {0.5, 0, 2.25}}}});
  file.add({.wall_time_s = 2, .step = 8, .bars = {{"norms/a", 2, {1}}}});
  EXPECT_EQ(read().at("bars"), core::Json::parse(R"({"norms/a":
      [[4, [[-1.0, 0.0, 0.5], [0.0, 1.0, 0.0], [1.0, 2.0, 2.25]]], [8, [[2.0, 3.0, 1.0]]]]})"));
}

TEST_F(EventReader, ShowsOneCurveOverStarts) {
  train(1, 10, 100);
  cut_event_files(folder_, 0);
  train(1, 10);
  cut_event_files(folder_, 6);
  train(7, 9, 100);
  cut_event_files(folder_, 6);
  train(7, 12);
  EXPECT_EQ(read_curve(), curve(12));
}

TEST_F(EventReader, ForgetsLostStepsThatItHasReadBeforeTheyWereCut) {
  train(1, 6);
  train(7, 10, 100);
  train(7, 12);
  EXPECT_EQ(read_curve(), curve(12));
}

TEST_F(EventReader, ReadsAFileThatAKillCutShort) {
  const fs::path file = train(1, 10);
  fs::resize_file(file, fs::file_size(file) - 5);
  EXPECT_EQ(read_curve(), curve(9));
  cut_event_files(folder_, 9);
  train(10, 12);
  EXPECT_EQ(read_curve(), curve(12));
}

}  // namespace
}  // namespace finetune::metrics::event_reader_test
