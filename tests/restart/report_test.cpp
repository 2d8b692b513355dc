// SPDX-License-Identifier: Apache-2.0
// What `finetune report` and `finetune watch` make of a run that was stopped, killed and finished.
#include <gtest/gtest.h>

#include <sstream>

#include "report/run_history.hpp"
#include "restart/job.hpp"
#include "support/folders.hpp"
#include "support/xml.hpp"

namespace finetune::tests::report_test {
namespace {

namespace fs = std::filesystem;

Outcome finetune(const Job& job, Words words) {
  words.insert(words.begin(), (build_folder() / "finetune").string());
  return run_program(words, job.folder());
}

int watch(const Job& job) {
  return finetune(job, {"watch", "--once", job.output()}).exit_code;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

/// The values of a column of a table, of the rows that have one.
std::vector<double> column_of(const std::string& csv, const std::string& name) {
  std::vector<double> values;
  std::size_t index = 0;
  for (const std::string& line : lines_of(csv)) {
    std::vector<std::string> cells;
    std::stringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');)
      cells.push_back(cell);
    if (line.starts_with("run,"))
      index = static_cast<std::size_t>(std::ranges::find(cells, name) - cells.begin());
    else if (index < cells.size() && !cells[index].empty())
      values.push_back(std::stod(cells[index]));
  }
  return values;
}

TEST(Report, OfARunThatWasStoppedAndKilledIsOneCurve) {
  const Job job("report.curve", short_run("32-true"));
  EXPECT_EQ(job.run(2, {"train.stop_after_steps=4"}).exit_code, 75);
  EXPECT_EQ(watch(job), 12) << "waiting";
  EXPECT_TRUE(fs::exists(job.output() / "report.html")) << "also of a run that stops early";
  ASSERT_TRUE(kill_after(job, 2, 14));
  EXPECT_EQ(watch(job), 14) << "dead";
  const Outcome last = job.run(2);
  ASSERT_EQ(last.exit_code, 0) << last.text();
  EXPECT_EQ(watch(job), 0) << "finished";
  const Outcome line = finetune(job, {"watch", job.output()});
  EXPECT_EQ(line.exit_code, 0) << "ends by itself, and writes one line where nobody looks";
  EXPECT_EQ(lines_of(line.out).size(), 1u) << line.text();

  const report::RunHistory run = report::read_run(job.output());
  ASSERT_EQ(run.steps.size(), 20u);
  for (std::size_t i = 0; i < run.steps.size(); ++i)
    EXPECT_EQ(run.steps[i].step, static_cast<std::int64_t>(i + 1));
  ASSERT_EQ(run.starts.size(), 3u);
  EXPECT_EQ(run.starts[0].end->exit_code, 75);
  EXPECT_EQ(run.starts[1].step, 4);
  EXPECT_FALSE(run.starts[1].end) << "killed";
  EXPECT_GE(run.starts[2].step, 6);
  EXPECT_EQ(run.starts[2].end->exit_code, 0);
  EXPECT_EQ(run.num_steps(), 20);

  const std::string page = read_file(job.output() / "report.html");
  EXPECT_EQ(markup_problem(page), "");
  EXPECT_NE(page.find("finished"), page.npos) << "the run wrote it last";
  EXPECT_NE(page.find("train.stop_after_steps are done"), page.npos);
  EXPECT_NE(page.find("restarted after step 4"), page.npos);
}

TEST(Watch, EndsWithTheStateThatItSawWhenItIsInterrupted) {
  const Job job("report.interrupted", short_run("32-true", 6));
  ASSERT_EQ(job.run(1, {"train.stop_after_steps=2"}).exit_code, 75);
  // The first line says that it watches.
  const std::string script =
      "$0 watch --every 0.1 output >seen & until [ -s seen ]; do :; done; kill -TERM $!; wait $!";
  const Outcome outcome =
      run_program({"env", "bash", "-c", script, build_folder() / "finetune"}, job.folder());
  EXPECT_EQ(outcome.exit_code, 12) << outcome.text();
  EXPECT_EQ(lines_of(read_file(job.folder() / "seen")).size(), 1u) << "nothing new, nothing said";
}

TEST(Watch, LeavesTheTerminalAsItWas) {
  const Job job("report.terminal", short_run("32-true", 2));
  ASSERT_EQ(job.run(1).exit_code, 0);
  const std::string command =
      (build_folder() / "finetune").string() + " watch --every 0.1 " + job.output().string();
  const Outcome outcome =
      run_program({"env", "script", "-qec", command, "/dev/null"}, job.folder());
  if (outcome.exit_code == 127) GTEST_SKIP() << "no script here (apt-get install bsdutils)";
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  const std::string begin = "\x1b[?1049h\x1b[?25l", end = "\x1b[?25h\x1b[?1049l";
  ASSERT_TRUE(outcome.out.starts_with(begin)) << outcome.text();
  const std::size_t left = outcome.out.find(end);
  ASSERT_NE(left, std::string::npos);
  const std::string after = outcome.out.substr(left + end.size());
  EXPECT_EQ(after.find('\x1b'), std::string::npos) << after;
  EXPECT_NE(after.find("finished"), std::string::npos) << after;
}

TEST(Report, AsATableHasTheNumbersOfMetrics) {
  const Job job("report.table", short_run("32-true", 6));
  ASSERT_EQ(job.run(1).exit_code, 0);
  const Outcome outcome = finetune(job, {"report", job.output(), "--csv"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  for (const char* name : {"loss", "grad_norm", "lr", "tokens_per_s", "validation_loss"}) {
    std::vector<double> expected;
    for (const core::Json& row : job.metrics())
      if (row.contains(name)) expected.push_back(row.at(name).get<double>());
    ASSERT_FALSE(expected.empty()) << name;
    EXPECT_EQ(column_of(outcome.out, name), expected) << name;
  }
}

TEST(Report, IsWrittenWhereTheCommandSays) {
  const Job job("report.files", short_run("32-true", 3));
  ASSERT_EQ(job.run(1).exit_code, 0);
  const fs::path page = job.folder() / "page.html", picture = job.folder() / "loss.svg";
  EXPECT_EQ(finetune(job, {"report", job.output(), job.output(), "-o", page}).exit_code, 0);
  EXPECT_EQ(markup_problem(read_file(page)), "");
  EXPECT_EQ(
      finetune(job, {"report", job.output(), "--svg", "loss", "--log", "-o", picture}).exit_code,
      0);
  EXPECT_EQ(markup_problem(read_file(picture)), "");
  EXPECT_EQ(finetune(job, {"report", job.output(), "-o", "/proc/page.html"}).exit_code, 73);
  EXPECT_EQ(finetune(job, {"report", job.output(), "--svg", "mfu"}).exit_code, 65)
      << "this run has none";
  EXPECT_EQ(finetune(job, {"report", job.output(), "--svg", "nothing"}).exit_code, 64);
  EXPECT_EQ(finetune(job, {"report", job.folder()}).exit_code, 65) << "no run";
  EXPECT_EQ(finetune(job, {"watch", "--once", job.folder()}).exit_code, 65);
}

TEST(Report, ThatCannotBeWrittenEndsNoRun) {
  const Job job("report.none", short_run("32-true", 3));
  fs::create_directories(job.output() / "report.html" / "in the way");
  const Outcome outcome = job.run(2);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_NE(outcome.text().find("report.html is not written"), std::string::npos) << outcome.text();
}

TEST(Report, IsLeftOutWhereTheDeckSaysSo) {
  const Job job("report.off", short_run("32-true", 2));
  ASSERT_EQ(job.run(1, {"metrics.report=false"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(job.output() / "report.html"));
}

TEST(Report, OfARunThatFailsSaysWhy) {
  const Job job("report.failed", short_run("32-true", 4));
  const Outcome outcome = job.run(2, {"optimizer.lr=1e30", "optimizer.max_grad_norm=0"});
  ASSERT_EQ(outcome.exit_code, 71) << outcome.text();
  EXPECT_EQ(watch(job), 15);
  const report::RunHistory run = report::read_run(job.output());
  ASSERT_EQ(run.starts.size(), 1u);
  EXPECT_EQ(run.starts[0].end->exit_code, 71);
  EXPECT_NE(read_file(job.output() / "report.html").find("failed"), std::string::npos);
}

}  // namespace
}  // namespace finetune::tests::report_test
