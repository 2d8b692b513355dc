// SPDX-License-Identifier: Apache-2.0
// [profile] of real runs: what traces hold, that their sums are those of metrics.jsonl, and that a
// slow rank is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "support/folders.hpp"
#include "support/run_program.hpp"
#include "trace/critical_path.hpp"

namespace finetune::tests::profile_test {
namespace {

namespace fs = std::filesystem;

/// Ranks train 10 steps, and profile 6 to 9.
fs::path train(const std::string& name, const std::vector<std::string>& words,
               const std::vector<std::string>& before = {}, int num_ranks = 2) {
  const fs::path output = empty_folder("profile/" + name);
  std::vector<std::string> all = mpirun(num_ranks);
  all.insert(all.end(), before.begin(), before.end());
  for (const std::string& word :
       {(build_folder() / "finetune").string(),
        (source_folder() / "inputs/smoke/pretraining.toml").string(),
        std::string("train.max_steps=10"), std::string("metrics.log_steps=1"),
        std::string("profile.wait=4"), std::string("profile.warmup=1"),
        std::string("profile.active=4"), "train.output=" + output.string()})
    all.push_back(word);
  all.insert(all.end(), words.begin(), words.end());
  const Outcome outcome = run_program(all, output, std::chrono::seconds(300));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  return output;
}

std::vector<core::Json> steps_of(const fs::path& output) {
  std::vector<core::Json> rows;
  std::ifstream file(output / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    core::Json row = core::Json::parse(line);
    if (row.contains("loss") && row["step"] >= 6 && row["step"] <= 9)
      rows.push_back(std::move(row));
  }
  return rows;
}

/// Seconds of a step's spans on the thread that computes, of both ranks.
struct SpansOfStep {
  double whole_of_first = 0;  ///< of the first rank alone
  double data = 0;
  double wait = 0;
  double optimizer = 0;
};

double seconds_of(const trace::Event& event) {
  return static_cast<double>(event.end_ns - event.begin_ns) * 1e-9;
}

void add_spans(const trace::RankTrace& rank, bool is_first, std::vector<SpansOfStep>& steps) {
  std::vector<const trace::Event*> wholes;
  for (const trace::Event& event : rank.events)
    if (!event.is_counter && event.row == trace::main_row && event.name.starts_with("step "))
      wholes.push_back(&event);
  ASSERT_EQ(wholes.size(), steps.size());
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    if (is_first) steps[i].whole_of_first = seconds_of(*wholes[i]);
    for (const trace::Event& event : rank.events) {
      if (event.is_counter || event.row != trace::main_row || trace::is_collective(event)) continue;
      if (event.begin_ns < wholes[i]->begin_ns || event.end_ns > wholes[i]->end_ns) continue;
      if (event.name.starts_with("wait ")) steps[i].wait += seconds_of(event);
      if (event.name.starts_with("data")) steps[i].data += seconds_of(event);
      if (event.name.starts_with("optimizer")) steps[i].optimizer += seconds_of(event);
    }
  }
}

/// In the step where the two agree best they do to 3 % and `slack_s`: between two looks at a clock
/// a busy machine may let other processes run, but not in each of the steps.
void expect_close(const std::vector<double>& found, const std::vector<double>& said, double slack_s,
                  const std::string& what) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < found.size(); ++i)
    least = std::min(least, std::abs(found[i] - said[i]) - 0.03 * said[i]);
  EXPECT_LE(least, slack_s) << what;
}

/// Each span of a row lies inside those that are open, or behind them.
void expect_nested(const trace::RankTrace& rank) {
  std::map<std::string, std::vector<const trace::Event*>> open;
  for (const trace::Event& event : rank.events) {
    if (event.is_counter) continue;
    auto& outer = open[event.row];
    while (!outer.empty() && outer.back()->end_ns <= event.begin_ns)
      outer.pop_back();
    if (!outer.empty()) {
      EXPECT_LE(event.end_ns, outer.back()->end_ns)
          << event.name << " and " << outer.back()->name << " on " << event.row;
    }
    outer.push_back(&event);
  }
}

TEST(Profile, NestsAndAddsUpToTheMetrics) {
  const fs::path output =
      train("sums", {"checkpoint.save_steps=7"}, {"env", "FINETUNE_FAULT=data.next:*:*:slow=20"});
  const trace::Profile profile = trace::read_profile(output);
  ASSERT_EQ(profile.ranks.size(), 2u);
  std::vector<SpansOfStep> spans(4);
  for (const trace::RankTrace& rank : profile.ranks) {
    EXPECT_EQ(rank.first_step, 6);
    EXPECT_EQ(rank.last_step, 9);
    expect_nested(rank);
    add_spans(rank, &rank == &profile.ranks.front(), spans);
  }
  const auto rows = steps_of(output);
  ASSERT_EQ(rows.size(), spans.size());
  // A trace has microseconds, to three digits more.
  constexpr double rounding_s = 1e-6;
  std::array<std::vector<double>, 4> found, said;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // Of two ranks the least and the most are both.
    const auto both = [&](const char* part) {
      return rows[i]["times"][part][0].get<double>() + rows[i]["times"][part][2].get<double>();
    };
    const double step = rows[i]["step_s"].get<double>(), data = both("data_s");
    // A step's span begins before the clock of the metrics and ends after it, that of its data the
    // other way round.
    EXPECT_GE(spans[i].whole_of_first, step - rounding_s) << rows[i];
    EXPECT_LE(spans[i].data, data + rounding_s) << rows[i];
    EXPECT_GT(data, 2 * 0.02) << rows[i];
    found[0].push_back(spans[i].whole_of_first), said[0].push_back(step);
    found[1].push_back(spans[i].data), said[1].push_back(data);
    found[2].push_back(spans[i].wait), said[2].push_back(both("exposed_s"));
    found[3].push_back(spans[i].optimizer), said[3].push_back(both("optimizer_s"));
  }
  expect_close(found[0], said[0], 0, "steps");
  expect_close(found[1], said[1], 0, "data");
  // Of what takes microseconds, what it takes to note it is more.
  expect_close(found[2], said[2], 5e-4, "waiting");
  expect_close(found[3], said[3], 5e-4, "optimizer");
}

TEST(Profile, HoldsStagesCollectivesMemoryAndThreads) {
  const fs::path output = train("parts", {"checkpoint.save_steps=7", "profile.stacks=true",
                                          "profile.operators=on", "parallel.sharding=FULL_SHARD"});
  const trace::RankTrace rank = trace::read_profile(output).ranks.at(0);
  std::map<std::string, int> names, rows;
  double highest_mib = 0;
  for (const trace::Event& event : rank.events) {
    ++names[event.name];
    ++rows[event.row];
    if (event.is_counter) {
      double sum = 0;
      for (const auto& [use, mib] : event.args.items())
        sum += mib.get<double>();
      highest_mib = std::max(highest_mib, sum);
    }
    if (trace::is_collective(event)) {
      EXPECT_TRUE(event.args.contains("bytes"));
      EXPECT_FALSE(event.args["stack"].empty());
    }
  }
  for (const char* name : {"forward of layers.0", "backward of layers.0", "optimizer", "data",
                           "wait of fsdp", "all_gather fsdp", "reduce_scatter fsdp", "checkpoint"})
    EXPECT_GE(names[name], 1) << name;
  for (const char* row : {"main", "data", "stream of fsdp", "checkpoint"})
    EXPECT_GE(rows[row], 1) << row;
  EXPECT_GT(highest_mib, 0.1);
  int products = 0;
  for (const core::Json& each : rank.more)
    products += each.value("name", "").find("mm") != std::string::npos;
  EXPECT_GT(products, 0);
}

/// Units and activations travel on threads of their own: none of their collectives is lost.
TEST(Profile, HasEachCollectiveOfTwoStreamsOnce) {
  const fs::path output =
      train("streams", {"parallel.tp=2", "parallel.sharding=FULL_SHARD"}, {}, 4);
  for (const trace::RankTrace& rank : trace::read_profile(output).ranks) {
    std::map<std::string, std::vector<std::int64_t>> numbers;
    for (const trace::Event& event : rank.events)
      if (trace::is_collective(event))
        numbers[event.row + event.args["axis"].get<std::string>()].push_back(
            event.args["number"].get<std::int64_t>());
    EXPECT_TRUE(numbers.contains("stream of tptp"));
    EXPECT_TRUE(numbers.contains("stream of fsdpfsdp"));
    for (auto& [row, all] : numbers) {
      std::ranges::sort(all);
      for (std::size_t i = 1; i < all.size(); ++i)
        ASSERT_EQ(all[i], all[i - 1] + 1) << row << " of rank " << rank.rank;
    }
  }
}

TEST(Profile, NamesTheSlowRank) {
  const fs::path output = train("slow", {}, {"env", "FINETUNE_FAULT=step.bwd:1:*:slow=150"});
  const Outcome merged =
      run_program({(build_folder() / "finetune").string(), "trace", "merge", output.string()},
                  output, run_limit);
  EXPECT_EQ(merged.exit_code, 0) << merged.text();
  EXPECT_NE(merged.out.find("longest wait: rank 0 for rank 1"), std::string::npos) << merged.out;
  std::vector<trace::RankTrace> ranks = trace::read_profile(output).ranks;
  const trace::CriticalPath path = trace::critical_path(ranks, trace::align_clocks(ranks));
  std::vector<double> work(2);
  for (const auto& [rank, kinds] : path.work_s)
    for (const auto& [kind, seconds] : kinds)
      work.at(static_cast<std::size_t>(rank)) += seconds;
  EXPECT_GT(work[1], 4 * 0.15);
  EXPECT_GT(work[1], work[0]);
  const core::Json file = core::Json::parse(std::ifstream(output / "profile/merged.json"));
  EXPECT_EQ(file["finetune"].size(), 2u);
}

TEST(Profile, LeavesTheRunAsItIs) {
  const auto losses = [](const fs::path& output) {
    std::vector<double> all;
    for (const core::Json& row : steps_of(output))
      all.push_back(row["loss"].get<double>());
    return all;
  };
  const fs::path with = train("with", {"profile.repeat=0"});
  const fs::path without = train("without", {"profile.active=0"});
  EXPECT_FALSE(fs::exists(without / "profile"));
  EXPECT_EQ(losses(with), losses(without));
}

/// The run ends in the midst of a window, and of one that is only warming up.
TEST(Profile, WritesTheStepsThatThereAre) {
  const fs::path output = train("short", {"profile.active=20"});
  EXPECT_EQ(trace::read_profile(output).ranks.at(1).last_step, 10);
  EXPECT_TRUE(fs::is_empty(train("warm", {"profile.warmup=20"}) / "profile"));
}

TEST(Profile, OfOneRankIsWrittenByIt) {
  const fs::path output = train("one", {"profile.ranks=[1]"});
  const auto ranks = trace::read_profile(output).ranks;
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].rank, 1);
}

TEST(Profile, OfARankThatThereIsNotIsRefused) {
  const fs::path output = empty_folder("profile/refused");
  std::vector<std::string> words = mpirun(2);
  for (const std::string& word :
       {(build_folder() / "finetune").string(),
        (source_folder() / "inputs/smoke/pretraining.toml").string(),
        "train.output=" + output.string(), std::string("profile.active=1"),
        std::string("profile.ranks=[2]")})
    words.push_back(word);
  const Outcome outcome = run_program(words, output, run_limit);
  EXPECT_EQ(count(outcome.err, "profile.ranks: there is no rank 2"), 1) << outcome.text();
}

}  // namespace
}  // namespace finetune::tests::profile_test
