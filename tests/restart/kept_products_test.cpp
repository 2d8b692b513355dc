// SPDX-License-Identifier: Apache-2.0
// Samples of all lengths are products of many shapes, and what libraries keep of each does not grow
// beyond the plan. Where the processor has no instructions for bf16 nothing is kept, nor planned.
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <string>

#include "restart/job.hpp"

namespace finetune::tests::kept_products_test {
namespace {

/// "planned 349 MiB" of the last lines.
double planned_bytes(const std::string& text) {
  static const std::regex planned(R"(needed most: planned ([0-9.]+) (MiB|GiB))");
  std::smatch found;
  if (!std::regex_search(text, found, planned)) return 0;
  return std::stod(found[1]) * (found[2] == "GiB" ? 1 << 30 : 1 << 20);
}

TEST(KeptProducts, OfManyShapesTakeWhatIsPlanned) {
  const Job job("kept_products",
                {"precision.mode=bf16-mixed", "train.max_steps=30", "train.global_batch=4",
                 "train.micro_batch=1", "data.max_seq_length=512", "optimizer.lr=1e-3"});
  core::Json samples = core::Json::array();
  for (int i = 0; i < 120; ++i) {
    std::string answer;
    for (int k = 0; k < 4 + (37 * i) % 420; ++k)
      answer += static_cast<char>('a' + (i + k * k) % 26);
    samples.push_back({{"instruction", "Say " + std::to_string(i)}, {"output", answer}});
  }
  write_file(job.data(), samples.dump());
  ::setenv("OMP_NUM_THREADS", "1", 1);
  const Outcome outcome = run_program(job.command(1), job.folder());
  ::unsetenv("OMP_NUM_THREADS");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const double planned = planned_bytes(outcome.out);
  ASSERT_GT(planned, 0) << outcome.text();
  EXPECT_LE(static_cast<double>(outcome.peak_bytes), 1.2 * planned) << outcome.text();
}

}  // namespace
}  // namespace finetune::tests::kept_products_test
