// SPDX-License-Identifier: Apache-2.0
// `finetune check` and the quick check of training: faults that are planted on one node. Two nodes:
// tests/cluster/check_test.sh.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <regex>

#include "core/host.hpp"
#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::check_test {
namespace {

namespace fs = std::filesystem;

const std::string program = build_folder() / "finetune";
const std::string deck = "inputs/smoke/pretraining.toml";
constexpr int refused = 69;
constexpr int hung = 74;

std::string output(const std::string& name) {
  return "train.output=" + (empty_folder("check/" + name) / "output").string();
}

Outcome run(std::vector<std::string> words) {
  return run_program(words, source_folder());
}

/// The words that start the ranks each with `before` in front of the program.
std::vector<std::string> with(int ranks, const std::vector<std::string>& before,
                              const std::vector<std::string>& arguments) {
  std::vector<std::string> words = mpirun(ranks);
  words.insert(words.end(), before.begin(), before.end());
  words.push_back(program);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

void expect_named(const Outcome& outcome, const std::string& problem) {
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, refused) << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: " + problem), 1) << outcome.text();
}

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Check, OfAGoodJobIsReadyAndWritesWhatItMeasured) {
  const fs::path machine = empty_folder("check/good") / "machine.toml";
  const Outcome outcome =
      run(finetune_on(2, {"check", deck, output("good.output"), "--save", machine.string()}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  EXPECT_EQ(count(outcome.out, "\nready"), 1) << outcome.text();
  for (const char* row :
       {"  launch ", "  program ", "  files ", "  cores ", "  load ", "  GPUs ", "  memory ",
        "  output ", "  clocks ", "  network ", "  links ", "  collectives ", "  rates "})
    EXPECT_EQ(count(outcome.out, row), 1) << row << outcome.text();
  const std::string text = read(machine);
  EXPECT_EQ(count(text, "[machine]"), 1) << text;
  EXPECT_EQ(count(text, "ranks_per_node = 2"), 1) << text;
  EXPECT_EQ(count(text, "bf16_tflops = 0.0\n"), 0) << text;
  EXPECT_EQ(count(text, "intra_gb_per_s = 0.0\n"), 0) << text;
}

/// "tp (2 ranks, 32 MiB): all_gather 1.2 GB/s, ..." with a figure for each collective.
std::regex swept(const std::string& axis, const std::vector<std::string>& collectives) {
  std::string text = "[ ;]" + axis + R"( \(2 ranks, [^)]*\):)";
  for (const std::string& collective : collectives) {
    const bool is_first = collective == collectives.front();
    text += (is_first ? " " : ", ") + collective + R"( (?!0 )[0-9.e+-]+ GB/s)";
  }
  return std::regex(text + "(;|\n)");
}

TEST(Check, MeasuresWhatARunDoesOverEachOfItsAxes) {
  const fs::path model = empty_folder("check/axes") / "model";
  fs::create_directories(model);
  fs::copy_file(source_folder() / "tests/golden/models/qwen3_moe/config.json",
                model / "config.json");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(source_folder() / "inputs/smoke/model" / file, model / file);
  const Outcome outcome = run(finetune_on(
      4, {"check", deck, output("axes.output"), "model.path=" + model.string(), "parallel.tp=2",
          "parallel.cp=2", "parallel.ep=2", "parallel.sharding=FULL_SHARD"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  const std::vector<std::string> sums = {"all_gather", "reduce_scatter", "all_reduce"};
  EXPECT_TRUE(std::regex_search(outcome.out, swept("fsdp", sums))) << outcome.text();
  EXPECT_TRUE(std::regex_search(outcome.out, swept("tp", sums))) << outcome.text();
  EXPECT_TRUE(std::regex_search(outcome.out, swept("cp", {"all_to_all", "hand_on"})))
      << outcome.text();
  EXPECT_TRUE(std::regex_search(outcome.out, swept("ep", {"all_to_all"}))) << outcome.text();
}

TEST(Check, RefusesAPathThatCannotBeWrittenBeforeItMeasures) {
  const fs::path folder = empty_folder("check/save");
  const auto check = [](const fs::path& path) {
    return run(finetune_on(2, {"check", deck, output("save.output"), "--save", path.string()}));
  };
  for (const fs::path& path : {folder / "gone/machine.toml", folder}) {
    const Outcome outcome = check(path);
    EXPECT_EQ(outcome.exit_code, 73) << outcome.text();
    EXPECT_EQ(count(outcome.err, "error: " + folder.string()), 1) << outcome.text();
    EXPECT_EQ(count(outcome.out, "check of "), 0) << outcome.text();
  }
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(Check, RefusesAnotherNumberOfRanks) {
  const auto check = [](const std::string& key) {
    return run(finetune_on(2, {"check", deck, "--quick", output("count"), key}));
  };
  expect_named(check("parallel.expect_ranks_per_node=4"), core::host_name() + ": has 2 ranks");
  expect_named(check("parallel.expect_nodes=2"), "launch: the job has 1 node");
}

TEST(Check, TellsAWrongNumberOfRanksRatherThanTheMeshThatItBreaks) {
  expect_named(run(finetune_on(2, {"check", deck, "--quick", output("mesh"), "parallel.dp_shard=4",
                                   "parallel.expect_ranks_per_node=4"})),
               core::host_name() + ": has 2 ranks");
}

TEST(Check, RefusesTooLittleMemory) {
  expect_named(run(finetune_on(2, {"check", deck, output("memory"), "parallel.memory_gib=0.01"})),
               core::host_name() + ": rank 0: needs ");
}

TEST(Check, RefusesAnotherBinaryOnOneRank) {
  const fs::path other = empty_folder("check/binary") / "finetune";
  fs::copy_file(program, other);
  std::ofstream(other, std::ios::app) << "x";
  for (const bool is_training : {false, true}) {
    std::vector<std::string> arguments = {deck, output("binary.output"), "train.max_steps=1"};
    if (!is_training) arguments.insert(arguments.begin(), "check");
    std::vector<std::string> words = with(2, {}, arguments);
    words.insert(words.end(), {":", "-n", "1", other.string()});
    words.insert(words.end(), arguments.begin(), arguments.end());
    expect_named(run(words), core::host_name() + ": rank 2: has another program");
  }
}

TEST(Check, RefusesAFullDisk) {
  const fs::path folder = empty_folder("check/disk");
  const std::vector<std::string> mount = {
      "unshare",      "-m", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs \"$0\" && exec \"$@\"",
      folder.string()};
  std::vector<std::string> probe = mount;
  probe.emplace_back("true");
  if (run(probe).exit_code != 0) GTEST_SKIP() << "mounting a small file system needs root";
  std::vector<std::string> words = mount;
  for (const std::string& word :
       finetune_on(2, {"check", deck, "train.output=" + (folder / "output").string()}))
    words.push_back(word);
  expect_named(run(words), core::host_name() + ": " + folder.string() + ": has ");
}

/// Those that this process may use.
std::vector<std::string> own_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ::sched_getaffinity(0, sizeof mask, &mask);
  std::vector<std::string> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &mask)) cores.push_back(std::to_string(core));
  return cores;
}

TEST(Check, RefusesRanksOnOneCore) {
  const auto cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "needs two cores";
  expect_named(
      run(with(2, {"taskset", "-c", cores[0]}, {"check", deck, "--quick", output("core")})),
      core::host_name() + ": all 2 ranks are bound to core " + cores[0]);
}

TEST(Check, RefusesARankOnABusyCore) {
  const auto cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "needs two cores";
  const std::vector<std::string> busy = {"taskset", "-c", cores[0],
                                         "sh",      "-c", "while :; do :; done"};
  const Process first(busy, "/"), second(busy, "/"), third(busy, "/");
  expect_named(run(with(1, {"taskset", "-c", cores[0]}, {"check", deck, output("busy")})),
               core::host_name() + ": rank 0: other processes compute on its core " + cores[0]);
}

class StoppedRank : public testing::TestWithParam<std::string> {};

TEST_P(StoppedRank, IsNamedAndTheJobEnds) {
  const bool is_training = GetParam() == "training";
  std::vector<std::string> arguments = {deck, output("stopped." + GetParam()),
                                        "train.hang_timeout_s=15"};
  if (is_training) {
    arguments.insert(arguments.end(), {"train.max_steps=1", "train.preflight=full"});
  } else {
    arguments.insert(arguments.begin(), "check");
  }
  const Outcome outcome = run(with(3, {"env", "FINETUNE_FAULT=check.measure:1:1:stop"}, arguments));
  EXPECT_TRUE(outcome.ended_with(hung)) << outcome.exit_code << outcome.text();
  EXPECT_EQ(count(outcome.err, "rank 1 on " + core::host_name() + " is late in "), 1)
      << outcome.text();
  EXPECT_EQ(count(outcome.err, ": no answer for "), 1) << outcome.text();
}

INSTANTIATE_TEST_SUITE_P(Of, StoppedRank, testing::Values("check", "training"),
                         [](const auto& info) { return info.param; });

TEST(Training, IsCheckedUnlessItIsTurnedOff) {
  const auto train = [](const std::string& preflight) {
    return run(finetune_on(2, {deck, output("train"), "train.max_steps=1",
                               "parallel.expect_nodes=2", "train.preflight=" + preflight}));
  };
  expect_named(train("quick"), "launch: the job has 1 node");
  EXPECT_EQ(train("off").exit_code, 0);
}

}  // namespace
}  // namespace finetune::tests::check_test
