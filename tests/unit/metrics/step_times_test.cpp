// SPDX-License-Identifier: Apache-2.0
#include "metrics/step_times.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/json.hpp"
#include "support/ranks.hpp"

namespace finetune::metrics::step_times_test {
namespace {

/// Two steps in which rank r computed 2 (r + 1) s and waited for the last one.
TimeReport report() {
  const comm::Communicator& world = tests::world();
  const StepTimes sum{.compute_s = 2.0 * (world.rank() + 1),
                      .exposed_s = 2.0 * (world.size() - 1 - world.rank()),
                      .optimizer_s = 1.0};
  return gather_times(world, sum, 2, "node" + std::to_string(world.rank()),
                      {.tensors = 100 + world.rank(), .process = 1000 - world.rank()});
}

TEST(StepTimes, AreMeansAStepOfTheFastestTheMiddleAndTheSlowestRank) {
  const double size = tests::world().size();
  const TimeReport r = report();
  EXPECT_EQ(r.num_steps, 2);
  EXPECT_EQ(r.parts[0].min, 1);
  EXPECT_EQ(r.parts[0].median, std::floor(size / 2) + 1);
  EXPECT_EQ(r.parts[0].max, size);
  EXPECT_EQ(r.parts[1].min, 0);
  EXPECT_EQ(r.parts[1].max, size - 1);
  EXPECT_EQ(r.parts[3].median, 0.5);
}

TEST(StepTimes, NameTheRankThatWaitsForNobody) {
  const int last = tests::world().size() - 1;
  const TimeReport r = report();
  EXPECT_EQ(r.slowest_rank, last);
  EXPECT_EQ(r.slowest_host, "node" + std::to_string(last));
}

TEST(StepTimes, HaveTheMemoryOfTheRankThatUsesMost) {
  const TimeReport r = report();
  EXPECT_EQ(r.peak.tensors, 100 + tests::world().size() - 1);
  EXPECT_EQ(r.peak.process, 1000);
  const core::Json json = core::parse_json("{" + to_json_fields(r) + "}", "metrics.jsonl");
  EXPECT_EQ(json["peak_bytes"]["tensors"], r.peak.tensors);
  EXPECT_EQ(json["peak_bytes"]["process"], 1000);
}

TEST(StepTimes, AreFieldsOfAStepsObject) {
  TimeReport r = report();
  r.sent_bytes = {{"fsdp", 12}, {"dp_replicate", 0}};
  const core::Json json = core::parse_json("{" + to_json_fields(r) + "}", "metrics.jsonl");
  EXPECT_EQ(json["times"]["steps"], 2);
  EXPECT_EQ(json["times"]["compute_s"][2], tests::world().size());
  EXPECT_EQ(json["times"]["slowest_host"], r.slowest_host);
  EXPECT_EQ(json["sent_bytes"]["fsdp"], 12);
  EXPECT_EQ(json["sent_bytes"]["dp_replicate"], 0);
}

TEST(StepTimes, SayHowManyBytesLeftTheNodeWhereAnyDid) {
  TimeReport r = report();
  r.sent_bytes = {{"fsdp", 12}, {to_other_nodes, 0}};
  EXPECT_EQ(to_json_fields(r).find(to_other_nodes), std::string::npos);
  EXPECT_EQ(to_string(r).find("other nodes"), std::string::npos);
  r.sent_bytes.back().second = 5;
  const core::Json json = core::parse_json("{" + to_json_fields(r) + "}", "metrics.jsonl");
  EXPECT_EQ(json["sent_bytes"][to_other_nodes], 5);
  EXPECT_NE(to_string(r).find("of which to other nodes: 5 B"), std::string::npos) << to_string(r);
}

}  // namespace
}  // namespace finetune::metrics::step_times_test
