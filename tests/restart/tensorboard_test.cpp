// SPDX-License-Identifier: Apache-2.0
// Event files over stops and kills: one curve, with the numbers of metrics.jsonl.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

#include "metrics/tensorboard/event.hpp"
#include "restart/job.hpp"
#include "support/folders.hpp"

namespace finetune::tests::tensorboard_test {
namespace {

namespace fs = std::filesystem;

/// In the order in which TensorBoard reads them.
std::vector<fs::path> event_files(const Job& job, const std::string& part = "tfevents") {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(job.output()))
    if (entry.path().filename().string().find(part) != std::string::npos)
      files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

/// Steps of the events that hold `tag`, as they lie in the files.
std::vector<std::int64_t> steps_of(const Job& job, const std::string& tag) {
  std::vector<std::int64_t> steps;
  for (const fs::path& file : event_files(job)) {
    const std::string bytes = read_file(file);
    std::uint64_t length = 0;
    for (std::size_t at = 0; at + 12 <= bytes.size(); at += 16 + length) {
      std::memcpy(&length, bytes.data() + at, sizeof(length));
      const std::string event = bytes.substr(at + 12, length);
      if (event.find(tag) != std::string::npos) steps.push_back(metrics::step_of_event(event));
    }
  }
  return steps;
}

std::vector<std::int64_t> one_to(std::int64_t last) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 1; step <= last; ++step)
    steps.push_back(step);
  return steps;
}

/// What TensorBoard's own reader finds; null without one.
core::Json read_by_tensorboard(const Job& job) {
  if (run_program({"env", "python3", "-c", "import tensorboard"}, job.folder()).exit_code != 0)
    return {};
  const Outcome outcome = run_program(
      {"env", "python3", source_folder() / "tests/unit/metrics/read_events.py", job.output()},
      job.folder());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  return core::parse_json(outcome.out, "read_events.py");
}

/// `points` of a tag are those of `field` in the rows of metrics.jsonl that have it.
void expect_curve(const core::Json& points, const Job& job, const char* field) {
  std::size_t i = 0;
  for (const core::Json& row : job.metrics()) {
    if (!row.contains(field)) continue;
    ASSERT_LT(i, points.size()) << field;
    EXPECT_EQ(points[i][0], row.at("step")) << field;
    EXPECT_EQ(points[i][1].get<float>(), row.at(field).get<float>()) << field;
    ++i;
  }
  EXPECT_EQ(i, points.size()) << field;
}

/// A bar for each layer in every fifth step, with the norms of metrics.jsonl.
void expect_bars_of_norms(const core::Json& bars, const Job& job) {
  std::size_t i = 0;
  for (const core::Json& row : job.steps()) {
    ASSERT_EQ(row.contains("norms"), row.at("step").get<int>() % 5 == 0) << row;
    if (!row.contains("norms")) continue;
    double squares = 0;
    for (const char* kind : {"weight", "gradient"}) {
      const core::Json& point = bars.at(std::string("norms_by_layer/") + kind).at(i);
      EXPECT_EQ(point.at(0), row.at("step"));
      std::vector<float> heights, norms;
      for (const core::Json& bar : point.at(1))
        heights.push_back(bar.at(2));
      for (const char* layer : {"embedding", "block 0", "block 1", "head"}) {
        const double norm = row.at("norms").at(layer).at(kind);
        norms.push_back(static_cast<float>(norm));
        if (kind == std::string("gradient")) squares += norm * norm;
      }
      EXPECT_EQ(heights, norms);
    }
    const double whole = row.at("grad_norm");
    EXPECT_NEAR(std::sqrt(squares), whole, 1e-9 * whole);
    ++i;
  }
  EXPECT_EQ(i, 4u);
}

TEST(TensorBoard, ShowsOneCurveOverAStopAKillAndARestart) {
  const Job job("tensorboard.curve", with(short_run("32-true"), {"metrics.norms_steps=5"}));
  EXPECT_EQ(job.run(2, {"train.stop_after_steps=4"}).exit_code, 75);
  ASSERT_TRUE(kill_after(job, 2, 14));
  const Outcome last = job.run(2);
  ASSERT_EQ(last.exit_code, 0) << last.text();

  EXPECT_GE(event_files(job).size(), 3u);
  EXPECT_EQ(steps_of(job, "train/loss"), one_to(20));
  EXPECT_EQ(steps_of(job, "validation/loss"), (std::vector<std::int64_t>{0, 8, 16, 20}));
  const core::Json found = read_by_tensorboard(job);
  if (found.is_null()) GTEST_SKIP() << "no Python with tensorboard here (pip install tensorboard)";
  const core::Json& numbers = found.at("numbers");
  expect_curve(numbers.at("train/loss"), job, "loss");
  expect_curve(numbers.at("train/grad_norm"), job, "grad_norm");
  expect_curve(numbers.at("train/lr"), job, "lr");
  expect_curve(numbers.at("train/epoch"), job, "epoch");
  expect_curve(numbers.at("train/total_tokens"), job, "total_tokens");
  expect_curve(numbers.at("validation/loss"), job, "validation_loss");
  EXPECT_EQ(numbers.at("time/compute_s").size(), 2u);
  EXPECT_EQ(numbers.at("memory/peak_process_gib").size(), 2u);
  EXPECT_GE(numbers.at("checkpoint/write_s").size(), 2u);
  expect_bars_of_norms(found.at("bars"), job);
  std::vector<std::string> starts;
  for (const core::Json& start : found.at("texts").at("start"))
    starts.push_back(start.at(1));
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_EQ(starts[0], "    start 1 in this folder, at step 0 of 20");
  EXPECT_NE(starts[2].find("; start 2: said nothing: killed"), std::string::npos) << starts[2];
  EXPECT_EQ(found.at("texts").at("end"),
            core::Json::parse(R"([[4, "    train.stop_after_steps are done"],
                                  [20, "    all 20 steps are done"]])"));
  const std::string deck = found.at("texts").at("deck").at(0).at(1);
  EXPECT_NE(deck.find("\n    max_steps = 20"), std::string::npos) << deck;
}

TEST(TensorBoard, ShowsOneCurveWhereverKillsCome) {
  const Job job("tensorboard.kills",
                with(short_run("32-true"), {"checkpoint.save_steps=3", "checkpoint.async=false"}));
  ASSERT_EQ(job.run(1, {"train.stop_after_steps=3"}).exit_code, 75);
  // Of each start 1 begins the file, 2 is the row of the restart, 3 the deck, 4 what start it is;
  // behind them are steps, validations and saves. From step 3 on 9 is step 7; from 6 on 7 is a
  // validation and 11 step 11.
  for (const char* hit : {"1", "2", "4", "6", "9", "7", "11"}) {
    Words words = job.command(1);
    words.insert(words.begin(),
                 {"env", std::string("FINETUNE_FAULT=events.append:0:") + hit + ":kill"});
    ASSERT_EQ(run_program(words, job.folder()).exit_code, 128 + SIGKILL) << hit;
    // As if the kill had come in the midst of the write before, which no checkpoint counts on.
    const fs::path last = event_files(job).back();
    if (fs::file_size(last) > 3) fs::resize_file(last, fs::file_size(last) - 3);
  }
  const Outcome outcome = job.run(1);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(steps_of(job, "train/loss"), one_to(20));
  EXPECT_EQ(steps_of(job, "validation/loss"), (std::vector<std::int64_t>{0, 8, 16, 20}));
  const core::Json found = read_by_tensorboard(job);
  if (found.is_null()) GTEST_SKIP() << "no Python with tensorboard here (pip install tensorboard)";
  expect_curve(found.at("numbers").at("train/loss"), job, "loss");
}

TEST(TensorBoard, HasNothingNewOfAFinishedRun) {
  const Job job("tensorboard.finished", short_run("32-true", 2));
  ASSERT_EQ(job.run(1).exit_code, 0);
  const auto files = event_files(job);
  ASSERT_EQ(files.size(), 1u);
  const std::string bytes = read_file(files[0]);
  EXPECT_EQ(job.run(1).exit_code, 0);
  EXPECT_EQ(event_files(job), files);
  EXPECT_EQ(read_file(files[0]), bytes);
}

TEST(TensorBoard, ShowsANewRunInAnOldFolderAlone) {
  const Job job("tensorboard.anew", short_run("32-true", 3));
  ASSERT_EQ(job.run(1).exit_code, 0);
  ASSERT_EQ(job.run(1, {"checkpoint.resume=never", "train.max_steps=2"}).exit_code, 0);
  EXPECT_EQ(steps_of(job, "train/loss"), one_to(2));
  EXPECT_EQ(event_files(job, "events.old-1.").size(), 1u);
}

TEST(TensorBoard, IsLeftOutWhereTheDeckSaysSo) {
  const Job job("tensorboard.off", short_run("32-true", 2));
  ASSERT_EQ(job.run(1, {"metrics.tensorboard=false"}).exit_code, 0);
  EXPECT_TRUE(event_files(job).empty());
}

}  // namespace
}  // namespace finetune::tests::tensorboard_test
