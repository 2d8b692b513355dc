// SPDX-License-Identifier: Apache-2.0
// What a run counts its MFU by is what a plan counts it by.
#include <gtest/gtest.h>

#include <array>

#include "plan/time/time.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::model_flops_test {
namespace {

using tests::DecoderTable;

PlanInput request(std::int64_t ranks, std::int64_t tp, std::int64_t cp) {
  return two_block_request({ranks, tp, cp, 0}, 4);
}

double flops_per_token(const PlanInput& r) {
  const DecoderTable table(r.architecture, {});
  return model_flops_per_token(make(r, table.table()), r, table.table());
}

TEST(ModelFlops, AreSixPerWeightAndTokenAndAttention) {
  // q and o, k and v, gate, up and down of two blocks, and the head; of 32 tokens each sees 16.5.
  const double weights = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) + 64 * 1000;
  const double attention = 2 * 3.5 * 4 * 16.5 * 64;
  EXPECT_DOUBLE_EQ(flops_per_token(request(1, 1, 1)), 6 * weights + attention);
}

TEST(ModelFlops, DoNotDependOnWhatIsComputedTwice) {
  PlanInput r = request(1, 1, 1);
  const double once = flops_per_token(r);
  r.activation_checkpointing = ActivationCheckpointing::full;
  EXPECT_DOUBLE_EQ(flops_per_token(r), once);
}

TEST(ModelFlops, AreThoseOfAllRanksThatShareATokenAndMakeThePlansMfu) {
  const double alone = flops_per_token(request(1, 1, 1));
  for (const auto& [ranks, tp, cp] : {std::array{2, 1, 1}, {4, 1, 1}, {2, 2, 1}, {4, 1, 2}}) {
    const PlanInput r = request(ranks, tp, cp);
    const double flops = flops_per_token(r);
    EXPECT_NEAR(flops / alone, 1, 1e-9) << tp << ' ' << cp;
    const DecoderTable table(r.architecture, {});
    const Machine machine = tests::round_machine();
    const TimePlan t = plan_time(make(r, table.table()), r, table.table(), machine, Passes::fused);
    EXPECT_NEAR(t.tokens_per_s_of_rank * flops / (1e12 * machine.peak_tflops) / t.mfu, 1, 1e-9);
  }
}

}  // namespace
}  // namespace finetune::plan::model_flops_test
