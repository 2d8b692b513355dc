// SPDX-License-Identifier: Apache-2.0
// What a run writes for scripts: metrics.jsonl and the resolved deck.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "core/text.hpp"
#include "optim/schedule.hpp"
#include "restart/job.hpp"

namespace finetune::tests::metrics_test {
namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    lines.push_back(line);
  return lines;
}

/// The names of a row in the order in which they stand there.
std::vector<std::string> names_in(const std::string& line) {
  static const std::regex name(R"re("([a-z_]+)": )re");
  std::vector<std::string> names;
  for (std::sregex_iterator i(line.begin(), line.end(), name), end; i != end; ++i)
    names.push_back((*i)[1]);
  return names;
}

class MetricsFile : public testing::Test {
 protected:
  // One run for all tests.
  static void SetUpTestSuite() {
    job_ = new Job("metrics", short_run("32-true"));
    const Outcome outcome = job_->run(2);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  }
  static void TearDownTestSuite() { delete job_; }

  static Job* job_;
};
Job* MetricsFile::job_ = nullptr;

TEST_F(MetricsFile, RowsHaveTheNamesThatScriptsRelyOn) {
  const std::vector<std::string> step = {"step",         "loss",   "grad_norm", "lr",   "tokens",
                                         "tokens_per_s", "step_s", "padding",   "epoch"};
  const std::vector<std::string> validation = {"step", "validation_loss", "exact_match"};
  const std::vector<std::string> checkpoint = {"step",      "checkpoint", "level",       "bytes",
                                               "blocked_s", "write_s",    "read_back_s", "total_s"};
  int num_steps = 0;
  int num_validations = 0;
  int num_checkpoints = 0;
  for (const std::string& line : lines_of(job_->output() / "metrics.jsonl")) {
    if (line.find("\"checkpoint\"") != std::string::npos) {
      EXPECT_EQ(names_in(line), checkpoint) << line;
      ++num_checkpoints;
      continue;
    }
    if (line.starts_with("{\"data\":")) continue;
    const bool is_step = line.find("\"loss\"") != std::string::npos;
    // Every tenth step also tells where the time went.
    const std::size_t times = line.find(", \"times\": {");
    EXPECT_EQ(names_in(line.substr(0, times)), is_step ? step : validation) << line;
    if (is_step) {
      EXPECT_EQ(times != line.npos, (num_steps + 1) % 10 == 0) << line;
    }
    ++(is_step ? num_steps : num_validations);
  }
  EXPECT_EQ(num_steps, 20);
  EXPECT_EQ(num_checkpoints, 4);  // after 6, 12, 18 and 20 steps
  EXPECT_EQ(num_validations, 4);  // before, after 8 and 16 steps, at the end
}

TEST_F(MetricsFile, NumbersReadBackToTheSameBits) {
  static const std::regex field(R"re("([a-z_]+)": ([^,}]+))re");
  int num_reals = 0;
  for (const std::string& line : lines_of(job_->output() / "metrics.jsonl")) {
    const core::Json row = core::parse_json(line, "metrics.jsonl");
    if (row.contains("checkpoint") || row.contains("data")) continue;
    const std::string top = line.substr(0, line.find(", \"times\": {"));
    for (std::sregex_iterator i(top.begin(), top.end(), field), end; i != end; ++i) {
      const core::Json& value = row.at((*i)[1]);
      if (!value.is_number_float()) continue;
      EXPECT_EQ(core::round_trip(value.get<double>()), (*i)[2]) << line;
      ++num_reals;
    }
  }
  EXPECT_GE(num_reals, 20 * 4);
}

TEST_F(MetricsFile, HoldsTheLearningRatesOfTheSchedule) {
  optim::OptimizerSettings settings;
  settings.lr = 1e-3;
  settings.warmup_steps = 3;
  const optim::Schedule schedule(settings, 20);
  const auto rows = job_->steps();
  ASSERT_EQ(rows.size(), 20u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("step"), i + 1);
    EXPECT_EQ(rows[i].at("lr").get<double>(), schedule.lr(static_cast<std::int64_t>(i)));
  }
}

TEST_F(MetricsFile, ResolvedDeckStartsTheSameRun) {
  Job again("metrics.again", {});
  std::filesystem::copy_file(job_->output() / "input.resolved.toml", again.folder() / "job.toml",
                             std::filesystem::copy_options::overwrite_existing);
  const Outcome outcome = again.run(2);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  expect_same_metrics(again, *job_);
}

}  // namespace
}  // namespace finetune::tests::metrics_test
