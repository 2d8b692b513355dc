// SPDX-License-Identifier: Apache-2.0
// A run that goes back to an older checkpoint, or to the model, begins a branch of its own. From
// then on everything speaks of that one, and what it left lies in a folder of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "restart/job.hpp"
#include "support/messages.hpp"

namespace finetune::tests::branches_test {
namespace {

namespace fs = std::filesystem;

constexpr int exit_resubmit = 75;

using Names = std::vector<std::string>;

/// Checkpoints at 3, 6, 9 and 12, of which 6 stays for good; no validation.
Words short_steps() {
  return {"precision.mode=32-true",   "train.max_steps=12",
          "train.global_batch=4",     "train.micro_batch=2",
          "optimizer.lr=1e-3",        "train.validate_steps=0",
          "checkpoint.save_steps=3",  "checkpoint.save_total_limit=2",
          "checkpoint.keep_every=6",  "data.validation_fraction=0",
          "checkpoint.when_busy=wait"};
}

std::string step_name(int step) {
  const std::string digits = std::to_string(step);
  return "step-" + std::string(10 - digits.size(), '0') + digits;
}

Names names_of(const std::vector<int>& steps) {
  Names names;
  for (const int step : steps)
    names.push_back(step_name(step));
  return names;
}

/// Checkpoints in the job's folder, or in `folder` of it.
Names checkpoints(const Job& job, const std::string& folder = "") {
  Names names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(job.output() / folder, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-")) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::string run_id(const Job& job, const std::string& checkpoint) {
  return core::parse_json(read_file(job.output() / checkpoint / "state.json"), checkpoint)
      .at("run_id")
      .get<std::string>();
}

/// Where `finetune export` takes it from, in words of its last line.
std::string exported_from(const Job& job, const fs::path& what, const Words& more = {}) {
  fs::remove_all(job.folder() / "out");
  const Outcome outcome =
      run_finetune(1, with({"export", what.string(), "out"}, more), job.folder());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  const std::size_t from = outcome.out.rfind(" from ");
  return outcome.out.substr(from + 6, outcome.out.find(':', from) - from - 6);
}

/// Lines of `text` that hold all of `facts`.
std::int64_t num_lines(const std::string& text, const Facts& facts) {
  std::istringstream lines(text);
  std::int64_t num = 0;
  for (std::string line; std::getline(lines, line);)
    num += std::ranges::all_of(facts, [&](const auto& fact) { return holds_fact(line, fact); });
  return num;
}

std::int64_t num_continued(const Outcome& outcome, int step) {
  return num_lines(outcome.out, {"continues", "output/" + step_name(step)});
}

Outcome with_fault(const Job& job, int ranks, const std::string& fault, const Words& more) {
  ::setenv("FINETUNE_FAULT", fault.c_str(), 1);
  Outcome outcome = job.run(ranks, more);
  ::unsetenv("FINETUNE_FAULT");
  return outcome;
}

TEST(Branch, GoneBackToIsContinuedKeptAndExported) {
  const Job job("branches.back", short_steps());
  ASSERT_EQ(job.run(2).exit_code, 0);
  ASSERT_EQ(checkpoints(job), names_of({6, 9, 12}));
  const std::string left = job.checkpoint_bytes(12);
  // Why one goes back: the data were wrong.
  write_file(job.data(), R"([{"instruction": "Count.", "output": "One, two, three."}])");
  const Words back = {"checkpoint.resume=" + step_name(6), "data.allow_changed=true"};
  Outcome outcome = job.run(2, with(back, {"train.stop_after_steps=4"}));
  EXPECT_EQ(outcome.exit_code, exit_resubmit) << outcome.text();
  EXPECT_EQ(num_lines(outcome.out, {step_name(12), step_name(9), "output/branch-1"}), 1)
      << outcome.text();
  EXPECT_EQ(num_lines(outcome.out, {"stopped", "same", "command"}), 1) << outcome.text();
  EXPECT_EQ(checkpoints(job), names_of({6, 9, 10}));
  EXPECT_EQ(checkpoints(job, "branch-1"), names_of({9, 12}));
  EXPECT_EQ(exported_from(job, "output"), "output/" + step_name(10));

  // The same command goes on with the branch that it began, on other ranks as well.
  outcome = job.run(1, back);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(num_continued(outcome, 10), 1) << outcome.text();
  EXPECT_EQ(num_lines(outcome.out, {"checkpoint.resume", step_name(6) + "#2"}), 1)
      << outcome.text();
  EXPECT_EQ(num_lines(outcome.out, {"branches", "output", "branch-1", step_name(12), step_name(9)}),
            2)
      << "at the start and at the end: " << outcome.text();
  EXPECT_EQ(checkpoints(job), names_of({6, 10, 12}));
  EXPECT_TRUE(read_file(job.output() / "branch-1" / step_name(12) / "node00000.h5") == left);
  EXPECT_FALSE(job.checkpoint_bytes(12) == left) << "other data";
  EXPECT_EQ(exported_from(job, "output"), "output/" + step_name(12));

  // What was left is whole: its metrics reach to its end, and it is exported like any run.
  EXPECT_EQ(exported_from(job, "output/branch-1"), "output/branch-1/" + step_name(12));
  EXPECT_EQ(count(read_file(job.output() / "branch-1/metrics.jsonl"), "\"step\": 12, \"loss\""), 1);
}

TEST(Branch, GoesBackOnceMoreIfThatIsAskedFor) {
  const Job job("branches.again", short_steps());
  ASSERT_EQ(job.run(1).exit_code, 0);
  const auto back_to = [&](const std::string& resume) {
    const Outcome outcome = job.run(1, {"checkpoint.resume=" + resume, "train.stop_after_steps=1"});
    EXPECT_EQ(outcome.exit_code, exit_resubmit) << outcome.text();
  };
  back_to(step_name(6));
  back_to(step_name(6));
  EXPECT_EQ(checkpoints(job), names_of({6, 7, 8}));
  back_to(step_name(6) + "#2");
  EXPECT_EQ(checkpoints(job), names_of({6, 7}));
  EXPECT_EQ(checkpoints(job, "branch-2"), names_of({7, 8}));
  EXPECT_NE(run_id(job, step_name(7)), run_id(job, "branch-2/" + step_name(7)));
  // Neither number begins anew by being submitted again.
  back_to(step_name(6) + "#2");
  back_to(step_name(6));
  EXPECT_EQ(checkpoints(job), names_of({6, 8, 9}));
  EXPECT_FALSE(fs::exists(job.output() / "branch-3"));
}

TEST(Branch, ThatBeginsAnewGoesOnUntilItsEnd) {
  const Job job("branches.never", short_steps());
  ASSERT_EQ(job.run(2).exit_code, 0);
  const Words anew = {"checkpoint.resume=never"};
  Outcome outcome = job.run(2, with(anew, {"train.stop_after_steps=2"}));
  EXPECT_EQ(outcome.exit_code, exit_resubmit) << outcome.text();
  EXPECT_EQ(checkpoints(job), names_of({2}));
  EXPECT_EQ(checkpoints(job, "branch-1"), names_of({6, 9, 12}));
  outcome = job.run(2, anew);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(num_continued(outcome, 2), 1) << outcome.text();
  EXPECT_EQ(checkpoints(job), names_of({6, 9, 12}));
  EXPECT_EQ(num_lines(job.run(2).out, {"nothing", "12"}), 1);
  EXPECT_EQ(checkpoints(job, "branch-1"), names_of({6, 9, 12}));
}

TEST(Branch, IsFoundWhereverAStartThatGoesBackIsKilled) {
  const Job job("branches.killed", short_steps());
  ASSERT_EQ(job.run(2).exit_code, 0);
  const Words back = {"train.stop_after_steps=1"};
  const auto resume = [](int times) {
    return "checkpoint.resume=" + step_name(6) + (times > 1 ? "#" + std::to_string(times) : "");
  };
  const std::string left = run_id(job, step_name(12));
  // Before the first of two is moved, between them, and behind the last.
  int times = 0;
  for (const char* moment : {"ckpt.aside:0:1", "ckpt.aside:0:2", "ckpt.aside_done:0:1"}) {
    SCOPED_TRACE(moment);
    const std::string folder = "branch-" + std::to_string(++times);
    const Names before = checkpoints(job);
    Outcome outcome =
        with_fault(job, 2, std::string(moment) + ":kill", with(back, {resume(times)}));
    EXPECT_NE(outcome.exit_code, exit_resubmit) << outcome.text();
    Names together = checkpoints(job);
    for (const std::string& name : checkpoints(job, folder))
      together.push_back(name);
    std::ranges::sort(together);
    EXPECT_EQ(together, before) << "each is in one of two places";
    // What goes on is the branch that was asked for, whoever asks now.
    EXPECT_EQ(exported_from(job, "output"), "output/" + step_name(6));
    outcome = job.run(2, back);
    EXPECT_EQ(num_continued(outcome, 6), 1) << outcome.text();
    EXPECT_EQ(checkpoints(job), names_of({6, 7}));
    outcome = job.run(2, with(back, {resume(times)}));
    EXPECT_EQ(num_continued(outcome, 7), 1) << outcome.text();
    EXPECT_EQ(checkpoints(job), names_of({6, 7, 8}));
  }
  EXPECT_EQ(checkpoints(job, "branch-1"), names_of({9, 12}));
  EXPECT_EQ(checkpoints(job, "branch-2"), names_of({7, 8}));
  EXPECT_EQ(count(read_file(job.output() / "branch-1/metrics.jsonl"), "\"step\": 12, \"loss\""), 1);

  // The first run goes on in the folder that it was moved to.
  const Outcome outcome = job.run(2, {"train.output=output/branch-1", "train.max_steps=13"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(num_lines(outcome.out, {"continues", "output/branch-1/" + step_name(12)}), 1)
      << outcome.text();
  EXPECT_EQ(run_id(job, "branch-1/" + step_name(13)), left);
}

TEST(Branch, OfAStartThatCannotBeDoneLeavesEverythingWhereItWas) {
  const Job job("branches.refused", short_steps());
  ASSERT_EQ(job.run(1).exit_code, 0);
  const Outcome outcome =
      job.run(1, {"checkpoint.resume=" + step_name(6), "optimizer.name=\"lion\""});
  EXPECT_EQ(outcome.exit_code, 78) << outcome.text();
  EXPECT_EQ(checkpoints(job), names_of({6, 9, 12}));
  EXPECT_EQ(exported_from(job, "output"), "output/" + step_name(12));
  EXPECT_EQ(num_lines(job.run(1).out, {"nothing", "12"}), 1);
}

TEST(Branch, OfAnEarlierVersionIsTheOneOfTheLastStart) {
  // Two runs in one folder, as earlier versions left them: no lineage, and the newer run is behind.
  const Job job("branches.earlier", short_steps());
  ASSERT_EQ(job.run(1).exit_code, 0);
  ASSERT_EQ(job.run(1, {"checkpoint.resume=" + step_name(6), "train.stop_after_steps=2"}).exit_code,
            exit_resubmit);
  fs::rename(job.output() / "branch-1" / step_name(12), job.output() / step_name(12));
  core::Json note = core::parse_json(read_file(job.output() / ".run.json"), ".run.json");
  note.erase("lineage");
  write_file(job.output() / ".run.json", note.dump());

  EXPECT_EQ(exported_from(job, "output"), "output/" + step_name(8));
  const std::string left = run_id(job, step_name(12));
  const Outcome outcome = job.run(1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(num_continued(outcome, 8), 1) << outcome.text();
  // The step that both have: nothing is replaced.
  EXPECT_NE(run_id(job, step_name(12)), left);
  const Names moved = checkpoints(job, "branch-1");
  ASSERT_TRUE(std::ranges::find(moved, step_name(12)) != moved.end()) << outcome.text();
  EXPECT_EQ(run_id(job, "branch-1/" + step_name(12)), left);
}

}  // namespace
}  // namespace finetune::tests::branches_test
