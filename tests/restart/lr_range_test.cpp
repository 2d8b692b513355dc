// SPDX-License-Identifier: Apache-2.0
// finetune lr-range: the program, on ranks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "restart/job.hpp"
#include "support/folders.hpp"

namespace finetune::tests::lr_range_test {
namespace {

namespace fs = std::filesystem;

class LrRange : public testing::Test {
 protected:
  // A micro-batch has the same bits only from as many threads.
  void SetUp() override { ::setenv("OMP_NUM_THREADS", "1", 1); }
  void TearDown() override { ::unsetenv("OMP_NUM_THREADS"); }

  static Job job(const std::string& name) {
    return {"lr_range." + name,
            {"train.max_steps=6", "train.global_batch=6", "train.micro_batch=2",
             "train.determinism=topology", "precision.mode=32-true", "checkpoint.save_steps=2"}};
  }

  static Outcome find(const Job& job, int ranks, const Words& options) {
    const Words words = {"lr-range",
                         "job.toml",
                         "train.global_batch=6",
                         "train.micro_batch=2",
                         "train.determinism=topology",
                         "precision.mode=32-true"};
    return run_finetune(ranks, with(words, options), job.folder());
  }

  static std::vector<core::Json> rows(const fs::path& folder) {
    std::vector<core::Json> rows;
    std::ifstream file(folder / "lr_range.jsonl");
    for (std::string line; std::getline(file, line);)
      rows.push_back(core::parse_json(line, "lr_range.jsonl"));
    return rows;
  }
};

TEST_F(LrRange, HasTheSameCurveOnAnyRanksAndLeavesTheRunAlone) {
  const Job job = LrRange::job("curve");
  ASSERT_EQ(job.run(1).exit_code, 0);
  const std::string metrics = read_file(job.output() / "metrics.jsonl");
  const std::string log = read_file(job.output() / "finetune.log");
  const Words options = {"--from", "1e-5", "--to", "1e-2", "--steps", "16"};
  const Outcome outcome = find(job, 1, options);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  ASSERT_EQ(find(job, 3, with(options, {"-o", "three"})).exit_code, 0);
  EXPECT_EQ(read_file(job.output() / "metrics.jsonl"), metrics);
  EXPECT_EQ(read_file(job.output() / "finetune.log"), log);

  const fs::path own = job.folder() / "output-lr-range";
  EXPECT_EQ(read_file(own / "lr_range.jsonl"), read_file(job.folder() / "three/lr_range.jsonl"));
  EXPECT_NE(read_file(own / "lr_range.svg").find("log10 of the learning rate"), std::string::npos);
  for (const auto& entry : fs::directory_iterator(own))
    EXPECT_NE(entry.path().filename().string().substr(0, 5), "step-");

  const auto lines = rows(own);
  ASSERT_EQ(lines.size(), 17u);
  EXPECT_EQ(lines.front().at("lr").get<double>(), 1e-5);
  EXPECT_EQ(lines[15].at("lr").get<double>(), 1e-2);
  EXPECT_EQ(lines.front().at("loss"), lines.front().at("smoothed_loss"));
  // The first step is that of the run: the weights of the deck, on its data.
  EXPECT_EQ(lines.front().at("loss"), job.steps().front().at("loss"));
  EXPECT_EQ(lines.back().at("ended"), "all steps are done");
  ASSERT_TRUE(lines.back().at("advice").is_number()) << lines.back();
  EXPECT_NEAR(lines.back().at("advice").get<double>() * 10,
              lines.back().at("lowest_lr").get<double>(), 1e-12);
  EXPECT_EQ(count(outcome.out, "optimizer.lr = "), 1) << outcome.out;
  EXPECT_EQ(count(outcome.out, "log10 of lr"), 1) << outcome.out;
}

TEST_F(LrRange, EndsWhereTheLossDiverges) {
  const Job job = LrRange::job("diverges");
  const Outcome outcome = find(job, 2, {"--from", "1e-5", "--to", "1e6", "--steps", "40"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const auto lines = rows(job.folder() / "output-lr-range");
  EXPECT_LT(lines.size(), 40u);
  EXPECT_EQ(lines.back().at("ended").get<std::string>().find("diverged at lr = "), 0u);
  EXPECT_FALSE(fs::exists(job.output()));
}

TEST_F(LrRange, RefusesTheFolderOfTheRunAndRangesThatFall) {
  const Job job = LrRange::job("refused");
  const Outcome own = find(job, 2, {"--out", "output/"});
  EXPECT_EQ(own.exit_code, 64) << own.text();
  EXPECT_EQ(count(own.err,
                  "--out output/ is the folder of the run (the test leaves that alone). "
                  "Name another one."),
            1)
      << own.text();
  const Outcome falls = find(job, 1, {"--from", "1", "--to", "1e-3"});
  EXPECT_EQ(falls.exit_code, 64) << falls.text();
  EXPECT_EQ(count(falls.err, "--from has to be smaller than --to"), 1) << falls.text();
  EXPECT_FALSE(fs::exists(job.output()));
}

}  // namespace
}  // namespace finetune::tests::lr_range_test
