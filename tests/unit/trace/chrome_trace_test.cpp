// SPDX-License-Identifier: Apache-2.0
#include "trace/chrome_trace.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/file.hpp"
#include "support/run_program.hpp"
#include "unit/trace/events.hpp"

namespace finetune::trace::chrome_trace_test {
namespace {

using finetune::tests::empty_folder;
using trace::tests::collective;
using trace::tests::span;

RankTrace example(int rank, std::int64_t base_ns) {
  RankTrace trace = trace::tests::rank(rank, base_ns,
                                       {span("step 1", 1'000, 900'001), span("data", 2'000, 3'000),
                                        collective(7, 4'000, 5'500, "stream of fsdp", "fsdp")});
  trace.events.push_back({.row = std::string(main_row),
                          .name = "memory",
                          .begin_ns = 6'000,
                          .end_ns = 6'000,
                          .args = {{"weights", 1.5}},
                          .is_counter = true});
  trace.more = {
      {{"name", "aten::mm"}, {"ph", "X"}, {"pid", 777}, {"tid", 1}, {"ts", 3.5}, {"dur", 1.0}}};
  return trace;
}

TEST(ChromeTrace, IsReadAsItWasWritten) {
  const auto folder = empty_folder("chrome_trace/one");
  const RankTrace written = example(3, 1'700'000'000'000'000'123);
  core::write_text_atomically(folder / file_name(written), to_chrome_trace({written}));
  const RankTrace read = read_chrome_trace(folder / "rank-00003.steps-1-1.json");
  EXPECT_EQ(read.rank, 3);
  EXPECT_EQ(read.host, "node3");
  EXPECT_EQ(read.base_ns, written.base_ns);
  ASSERT_EQ(read.events.size(), written.events.size());
  for (std::size_t i = 0; i < read.events.size(); ++i) {
    EXPECT_EQ(read.events[i].row, written.events[i].row);
    EXPECT_EQ(read.events[i].name, written.events[i].name);
    EXPECT_EQ(read.events[i].begin_ns, written.events[i].begin_ns);
    EXPECT_EQ(read.events[i].end_ns, written.events[i].end_ns);
    EXPECT_EQ(read.events[i].is_counter, written.events[i].is_counter);
    const bool has_args = !written.events[i].args.is_null();
    EXPECT_EQ(read.events[i].args, has_args ? written.events[i].args : core::Json::object());
  }
  EXPECT_EQ(read.more, written.more);
}

TEST(ChromeTrace, HasAProcessForEachRankAndOneClock) {
  const auto json =
      core::Json::parse(to_chrome_trace({example(0, 1'000'000'000), example(1, 1'000'002'000)}));
  EXPECT_EQ(json["baseTimeNanoseconds"], 1'000'000'000);
  std::map<int, double> first;
  for (const auto& event : json["traceEvents"]) {
    if (event["name"] == "step 1") first[event["pid"].get<int>()] = event["ts"].get<double>();
  }
  EXPECT_EQ(first, (std::map<int, double>{{0, 1.0}, {1, 3.0}}));
}

void put(const std::filesystem::path& folder, const RankTrace& trace) {
  core::write_text_atomically(folder / file_name(trace), to_chrome_trace({trace}));
}

TEST(ChromeTrace, TakesTheNewestStepsOfTheNewestStart) {
  const auto folder = empty_folder("chrome_trace/several");
  std::filesystem::create_directories(folder / "profile");
  const auto write = [&](int rank, std::int64_t start, std::int64_t last) {
    RankTrace trace = example(rank, 5);
    trace.start = start;
    trace.num_ranks = 3;
    trace.last_step = last;
    put(folder / "profile", trace);
  };
  // An earlier run of more steps; a window that one rank wrote alone; the newest, without rank 1.
  for (const int rank : {0, 1, 2})
    write(rank, 100, 40);
  write(0, 200, 4);
  write(1, 200, 4);
  write(0, 200, 12);
  write(2, 200, 12);
  const Profile profile = read_profile(folder);
  EXPECT_EQ(profile.folder, folder / "profile");
  ASSERT_EQ(profile.ranks.size(), 2u);
  EXPECT_EQ(profile.ranks[0].rank, 0);
  EXPECT_EQ(profile.ranks[1].rank, 2);
  EXPECT_EQ(profile.ranks[1].last_step, 12);
  EXPECT_EQ(profile.missing, std::vector<int>{1});
}

TEST(ChromeTrace, LeavesOutWhatCannotBeRead) {
  const auto folder = empty_folder("chrome_trace/damaged");
  put(folder, example(0, 5));
  core::write_text_atomically(folder / "rank-00001.steps-1-1.json", "{\"traceEvents\": [");
  core::write_text_atomically(folder / "rank-00002.steps-1-1.json.tmp", "half");
  RankTrace hostile = example(3, 5);
  hostile.events.push_back(
      {.row = "main", .name = "x", .begin_ns = 1, .end_ns = 2, .args = {{"collective", 5}}});
  put(folder, hostile);
  const Profile profile = read_profile(folder);
  EXPECT_EQ(profile.ranks.size(), 1u);
  EXPECT_EQ(profile.unreadable.size(), 2u);
}

/// As libtorch's profiler writes them: devices and arrows are numbered from 0 on every rank.
TEST(ChromeTrace, KeepsOperatorsOfRanksApart) {
  const std::vector<core::Json> kernels = {
      {{"ph", "X"}, {"name", "gemm"}, {"pid", 0}, {"tid", 7}, {"ts", 1.0}, {"dur", 1.0}},
      {{"ph", "M"}, {"name", "process_name"}, {"pid", 0}, {"args", {{"name", "GPU 0"}}}},
      {{"ph", "M"},
       {"name", "thread_name"},
       {"pid", 0},
       {"tid", 0},
       {"args", {{"name", "stream"}}}},
      {{"ph", "s"}, {"id", 1}, {"pid", 0}, {"tid", 7}, {"ts", 1.0}, {"name", "ac2g"}}};
  const auto folder = empty_folder("chrome_trace/operators");
  std::vector<RankTrace> ranks;
  for (const int rank : {0, 1}) {
    RankTrace trace = example(rank, 5);
    trace.more = of_rank(kernels, rank);
    put(folder, trace);
    ranks.push_back(read_chrome_trace(folder / file_name(trace)));
    EXPECT_EQ(ranks.back().events.size(), trace.events.size());
    EXPECT_EQ(ranks.back().events[0].row, "main");
    EXPECT_EQ(ranks.back().more, trace.more);
  }
  EXPECT_NE(ranks[0].more[0]["pid"], ranks[1].more[0]["pid"]);
  EXPECT_NE(ranks[0].more[3]["id"], ranks[1].more[3]["id"]);
  EXPECT_EQ(ranks[1].more[1]["args"]["name"], "rank 1: GPU 0");
  EXPECT_EQ(ranks[1].more[0]["pid"], ranks[1].more[1]["pid"]);
}

TEST(ChromeTrace, RefusesWhatIsNone) {
  const auto folder = empty_folder("chrome_trace/bad");
  EXPECT_THROW(read_profile(folder), core::Error);
  for (const char* text : {"", "{}", "[]", "{\"finetune\": [], \"traceEvents\": []}",
                           "{\"finetune\": [{\"rank\": \"x\"}]}"}) {
    core::write_text_atomically(folder / "rank-00000.steps-1-1.json", text);
    EXPECT_THROW(read_profile(folder), core::Error) << text;
  }
}

}  // namespace
}  // namespace finetune::trace::chrome_trace_test
