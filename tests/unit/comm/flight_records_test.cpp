// SPDX-License-Identifier: Apache-2.0
#include "comm/watch/flight_records.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "comm/activity.hpp"
#include "comm/watch/flight_recorder.hpp"
#include "core/error.hpp"

namespace finetune::comm::flight_records_test {
namespace {

namespace fs = std::filesystem;

class FlightRecords : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(output); }
  void TearDown() override { fs::remove_all(output); }
  fs::path output =
      fs::path(testing::TempDir()) /
      (std::string("flight.") + testing::UnitTest::GetInstance()->current_test_info()->name() +
       "." + std::to_string(::getpid()));

  /// Of three ranks; `collectives` were entered and left, the last of them maybe not.
  void record(int rank, int collectives, bool is_inside, const std::string& reason,
              std::vector<Heard> heard = {}) const {
    Activity activity;
    activity.set_step(7);
    const Activity::Work work(&activity, "backward", "layers.4");
    for (int i = 1; i <= collectives; ++i) {
      const auto entry =
          activity.enter(Track::main, "all_gather", "fsdp", {.num_ranks = 3, .bytes = 64});
      if (i < collectives || !is_inside) activity.leave(entry);
    }
    FlightRecorder recorder(activity, rank, 3, "node" + std::to_string(rank));
    recorder.write_to(output / flight_folder_name);
    ASSERT_TRUE(recorder.write(reason, 60, std::move(heard)));
  }
  /// In the record of `rank`, the first time that `from` is there.
  void replace_in(int rank, const std::string& from, const std::string& to) const {
    std::ifstream in(file(rank));
    std::string text((std::istreambuf_iterator<char>(in)), {});
    ASSERT_NE(text.find(from), std::string::npos) << text;
    text.replace(text.find(from), from.size(), to);
    std::ofstream(file(rank)) << text;
  }
  static std::ptrdiff_t count_of(const std::string& text, const std::string& part) {
    std::ptrdiff_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++count;
    return count;
  }
  std::string told() const { return describe(read_flight_records(output)); }

  fs::path file(int rank) const {
    return output / flight_folder_name / ("rank-0000" + std::to_string(rank) + ".jsonl");
  }
};

TEST_F(FlightRecords, SayWhoEndedTheJobAndWhere) {
  record(0, 5, true, "asked by rank 1, which ends the job");
  record(1, 4, false, "the disk is full");
  record(2, 5, true, "asked by rank 1, which ends the job");
  EXPECT_EQ(told(),
            "rank 1 on node1 ended the job: the disk is full\n"
            "it was in step 7, backward of layers.4, after all_gather on fsdp");
}

TEST_F(FlightRecords, SayThatNobodyWaited) {
  for (int rank = 0; rank < 3; ++rank)
    record(rank, 3, rank == 2, asked_by_signal);
  EXPECT_EQ(told(),
            "no rank had waited for longer than 1 s when this was written (SIGUSR2)\n"
            "rank 0 on node0 was in step 7, backward of layers.4, after all_gather on fsdp");
}

TEST_F(FlightRecords, NameWhoKeptTheOthersWaitingFromWhatAnotherHeardOfIt) {
  Doing last = {
      .step = 7, .sequence = 4, .collective = "all_gather", .axis = "fsdp", .seconds = 90};
  record(0, 5, true, asked_by_watchdog,
         {{.rank = 1, .host = "node1", .silent_s = 80, .main = last, .stream = {}}});
  // As if it had waited: a test does not.
  replace_in(0, "\"seconds\": 0.", "\"seconds\": 65.");
  EXPECT_EQ(told(),
            "step 7: rank 1 on node1 is late in all_gather on fsdp: no answer for 80 s, "
            "stopped or its node is dead\n"
            "rank 0 on node0 has been inside it for 65 s; no record of rank 2");
}

TEST_F(FlightRecords, TakeWhatIsNewest) {
  const auto heard_of_1 = [](double silent_s) {
    const Doing last = {.step = 7, .sequence = 1, .collective = "broadcast", .axis = "dp"};
    return std::vector<Heard>{
        {.rank = 1, .host = "node1", .silent_s = silent_s, .main = last, .stream = {}}};
  };
  const auto collective_of_1 = [&] {
    return read_flight_records(output).ranks.at(1).tracks[0].collective;
  };
  record(1, 3, false, asked_by_signal);
  record(0, 3, false, asked_by_watchdog, heard_of_1(1000));
  EXPECT_EQ(collective_of_1(), "all_gather") << "its own is newer";
  replace_in(1, "\"unix_s\": 1", "\"unix_s\": ");
  EXPECT_EQ(collective_of_1(), "broadcast") << "its own is older";
}

TEST_F(FlightRecords, NameTheErrorThatCameFirst) {
  record(0, 4, false, "a message was cut off");
  record(1, 4, false, "asked by rank 2, which ends the job");
  record(2, 4, false, "the disk is full");
  EXPECT_EQ(count_of(told(), "a message was cut off"), 1);
  replace_in(2, "\"unix_s\": 1", "\"unix_s\": ");
  EXPECT_EQ(told(),
            "rank 2 on node2 ended the job: the disk is full\n"
            "it was in step 7, backward of layers.4, after all_gather on fsdp");
}

TEST_F(FlightRecords, SayWhatARankWasInWhoseErrorLeftIt) {
  Activity activity;
  try {
    const Activity::Work outer(&activity, "step", "");
    const Activity::Work work(&activity, "backward", "layers.4");
    throw std::runtime_error("planted");
  } catch (const std::exception&) {
  }
  EXPECT_EQ(activity.look(Track::main).work, "backward of layers.4");
  { const Activity::Work next(&activity, "saving", ""); }
  const Activity::Work after(&activity, "forward", "layers.1");
  EXPECT_EQ(activity.look(Track::main).work, "forward of layers.1");
}

TEST_F(FlightRecords, TellOfTheTrackThatIsInsideACollective) {
  Activity activity;
  FlightRecorder recorder(activity, 0, 1, "node0");
  for (int i = 0; i < 5; ++i) {
    activity.leave(activity.enter(Track::main, "barrier", "world"));
  }
  static_cast<void>(activity.enter(Track::stream, "reduce_scatter", "fsdp"));
  recorder.write_to(output / flight_folder_name);
  ASSERT_TRUE(recorder.write(asked_by_signal, 60));
  EXPECT_EQ(
      count_of(told(), "rank 0 on node0 was before the first step, inside reduce_scatter on fsdp"),
      1)
      << told();
}

TEST_F(FlightRecords, OfAnEarlierStartAreSaidToBe) {
  for (int rank = 0; rank < 3; ++rank)
    record(rank, 3, false, asked_by_signal);
  fs::rename(output / flight_folder_name, output / earlier_flight_folder_name);
  EXPECT_EQ(count_of(told(), "; from an earlier start: the last one left no records"), 1) << told();
}

TEST_F(FlightRecords, HoldTheLastThousandCollectivesNewestFirst) {
  record(0, 1500, true, asked_by_signal);
  std::ifstream in(file(0));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  ASSERT_EQ(lines.size(), 1 + Activity::num_remembered);
  EXPECT_NE(lines[1].find("\"number\": 1500,"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("\"end_s\": null"), std::string::npos) << lines[1];
  EXPECT_NE(lines.back().find("\"number\": 501,"), std::string::npos) << lines.back();
}

TEST_F(FlightRecords, AreMissedWithARemedy) {
  try {
    told();
    ADD_FAILURE() << "nothing thrown";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::input);
    EXPECT_NE(std::string(error.what()).find("holds no flight records"), std::string::npos);
  }
  fs::create_directories(output / flight_folder_name);
  std::ofstream(file(0)) << "{\"rank\": 5, \"num_ranks\": 2}\n";
  EXPECT_THROW(told(), core::Error);
  std::ofstream(file(0)) << "not JSON\n";
  EXPECT_THROW(told(), core::Error);
}

}  // namespace
}  // namespace finetune::comm::flight_records_test
