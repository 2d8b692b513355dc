// SPDX-License-Identifier: Apache-2.0
// The waits of a step are all needed, and the simulated device finds each that is left out. That
// none is missing, under any strategy and setting, is what simulated/training runs to the end for.
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "simulated/simulated_job.hpp"

namespace finetune::tests::simulated_races {
namespace {

struct Case {
  std::string name;
  std::string dropped;  ///< FINETUNE_SIMULATED_DROP
  std::string found;    ///< a regular expression
  int ranks = 2;
  Words settings = {"parallel.sharding=FULL_SHARD"};
};

Outcome run_without(const Case& c) {
  Words settings = short_run("bf16-mixed", 2);
  settings.insert(settings.end(), c.settings.begin(), c.settings.end());
  const Job job("simulated/races." + c.name, settings);
  const Setting dropped("FINETUNE_SIMULATED_DROP", c.dropped);
  return run_on_simulated_gpus(job, c.ranks);
}

class WithoutAWait : public testing::TestWithParam<Case> {};

TEST_P(WithoutAWait, TheRunEndsAndSaysWhichItNeeds) {
  const Outcome outcome = run_without(GetParam());
  EXPECT_EQ(outcome.exit_code, 70) << outcome.text();
  EXPECT_TRUE(std::regex_search(
      outcome.err, std::regex("simulated device: " + GetParam().found + "[^\n]* wait")))
      << outcome.text();
}

std::vector<Case> cases() {
  const std::string computed = " of the computing stream\\) may still be (writing|reading)";
  const auto follows = [&](const std::string& collective) {
    return collective + " \\(operation [0-9]+ of the communication stream\\) .*" + computed;
  };
  const auto waits = [](const std::string& collective) {
    return "aten::[^\n]* of the computing stream\\) [^\n]*which " + collective +
           " \\(operation [0-9]+ of the communication stream\\) may still be (writing|reading)";
  };
  const Words replicas = {"parallel.sharding=NO_SHARD"};
  const std::string copy = "the host touches pinned memory of [0-9]+ bytes that copy to the host ";
  // Of a block's waits: that copies to the host follow what is computed, and memory is given back
  // behind them; that copies from it follow what is computed, and what reads them behind them.
  const auto offloaded_without = [](const std::string& name, int wait, const std::string& found) {
    return Case{name,
                "block#" + std::to_string(wait),
                found,
                1,
                {"train.activation_checkpointing=none", "train.offloaded_blocks=1"}};
  };
  const std::string copies = " of stream [0-9]+\\)";
  const std::string to_host = "copy to the host \\(operation [0-9]+" + copies;
  const std::string to_device = "copy to the device \\(operation [0-9]+" + copies;
  return {
      offloaded_without("offload_follows", 1, to_host + " reads .*" + computed),
      offloaded_without("drop", 2, ".* which " + to_host + " may still be reading"),
      offloaded_without("bring_back_follows", 3, to_device + " writes .*" + computed),
      offloaded_without("arrive", 4, ".* reads .*which " + to_device + " may still be writing"),
      {"gather_follows", "all_gather.follow", follows("all_gather")},
      {"gather", "all_gather.wait", waits("all_gather")},
      {"one_gather", "all_gather.wait#9", waits("all_gather")},
      {"reduction_follows", "reduce_scatter.follow", follows("reduce_scatter")},
      {"reduction", "reduce_scatter.wait", waits("reduce_scatter")},
      // The third and fourth are covered by later gathers, which come behind them on their stream.
      {"last_reduction", "reduce_scatter.wait#8", waits("reduce_scatter")},
      {"replicas_follow", "all_reduce.follow", follows("all_reduce"), 2, replicas},
      {"replicas", "all_reduce.wait", waits("all_reduce"), 2, replicas},
      {"loss", "stream,event", copy, 1, {}},
      {"offloaded_gradient", "event", copy, 1, {"optimizer.offload=true"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Steps, WithoutAWait, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

/// Not because somebody says so, but because the numbers would be wrong.
TEST(LateCollectives, GoIntoTheNumbersOfWhoeverDoesNotWait) {
  const Setting silent("FINETUNE_SIMULATED_RACES", "0");
  const Outcome outcome = run_without({"late", "all_gather.wait", ""});
  EXPECT_EQ(outcome.exit_code, 71) << outcome.text();
  EXPECT_EQ(count(outcome.err, "loss is nan"), 1) << outcome.text();
}

}  // namespace
}  // namespace finetune::tests::simulated_races
