// SPDX-License-Identifier: Apache-2.0
// The quickstart's model, 200 steps with products of 8 bits: no worse than bf16, as far as seeds
// can tell.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::fp8_test {
namespace {

struct Result {
  double late_loss = 0;  ///< mean of the last hundred steps
  double validation_loss = 0;
};

Result train(const std::string& precision, int seed) {
  const auto output = empty_folder("quickstart_fp8/" + precision + "." + std::to_string(seed));
  const Outcome outcome = run_program(
      {(build_folder() / "finetune").string(),
       (source_folder() / "inputs/quickstart.toml").string(), "precision.mode=" + precision,
       "train.seed=" + std::to_string(seed), "train.max_steps=200", "train.validate_steps=200",
       "checkpoint.save_steps=0", "metrics.answers=0", "train.output=" + output.string()},
      output, std::chrono::seconds(1800));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  Result result;
  int num = 0;
  std::ifstream metrics(output / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const core::Json row = core::Json::parse(line);
    if (row.contains("validation_loss"))
      result.validation_loss = row["validation_loss"].get<double>();
    if (!row.contains("loss") || row["step"].get<int>() <= 100) continue;
    result.late_loss += row["loss"].get<double>();
    ++num;
  }
  EXPECT_EQ(num, 100);
  result.late_loss /= std::max(num, 1);
  return result;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values)
    sum += value;
  return sum / static_cast<double>(values.size());
}

double spread(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  return most - least;
}

TEST(Quickstart, WithProductsOfEightBitsLearnsAsMuchAsInBf16) {
  std::vector<double> late, late_of_bf16, held_out, held_out_of_bf16;
  for (const int seed : {1, 2, 3}) {
    const Result narrow = train("fp8-mixed", seed), wide = train("bf16-mixed", seed);
    std::printf("seed %d: fp8 %.4f, held out %.4f; bf16 %.4f, held out %.4f\n", seed,
                narrow.late_loss, narrow.validation_loss, wide.late_loss, wide.validation_loss);
    EXPECT_NE(narrow.late_loss, wide.late_loss);
    late.push_back(narrow.late_loss);
    late_of_bf16.push_back(wide.late_loss);
    held_out.push_back(narrow.validation_loss);
    held_out_of_bf16.push_back(wide.validation_loss);
  }
  EXPECT_LE(mean(late), mean(late_of_bf16) + spread(late_of_bf16));
  EXPECT_LE(mean(held_out), mean(held_out_of_bf16) + spread(held_out_of_bf16));
}

}  // namespace
}  // namespace finetune::tests::fp8_test
