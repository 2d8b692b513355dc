// SPDX-License-Identifier: Apache-2.0
// What the passes of a micro-batch are made of.
#include "plan/time/detail/work.hpp"

#include <gtest/gtest.h>

#include "model/cost/cost_ops.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::work_test {
namespace {

using model::visible_tokens;
using tests::DecoderTable;
using tests::round_machine;
using tests::Training;

/// Weights of a block's matrices: q and o, k and v, gate, up and down.
constexpr double block_weights = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96;
constexpr double tokens = 64, head_weights = 64000;
/// Each token sees 16.5 on average; 64 channels of queries.
constexpr double attention_forward = 4 * 64 * 16.5 * 64;

TEST(PlannedWork, IsSixFlopsAWeightAndTokenAndAttention) {
  const MicroBatchWork all = work(small_request(1));
  EXPECT_DOUBLE_EQ(all.blocks[0].forward.flops, 2 * tokens * block_weights + attention_forward);
  EXPECT_DOUBLE_EQ(all.blocks[0].backward.flops,
                   4 * tokens * block_weights + 2.5 * attention_forward);
  EXPECT_DOUBLE_EQ(all.head.forward.flops + all.head.backward.flops, 6 * tokens * head_weights);
  EXPECT_DOUBLE_EQ(all.model_flops(),
                   6 * tokens * (2 * block_weights + head_weights) + 2 * 3.5 * attention_forward);
}

TEST(PlannedWork, OfPackedSamplesAttendsToTheirOwnTokens) {
  PlanInput packed = small_request(1);
  packed.sample_tokens = 8;
  EXPECT_DOUBLE_EQ(work(packed).blocks[0].forward.flops,
                   2 * tokens * block_weights + attention_forward * 4.5 / 16.5);
  packed.sample_tokens = 1000;
  EXPECT_DOUBLE_EQ(work(packed).blocks[0].forward.flops,
                   work(small_request(1)).blocks[0].forward.flops)
      << "no sample is longer than a sequence";
}

TEST(PlannedWork, IsFourFlopsWhereAWeightIsFrozenAndSixForTheAdapter) {
  const MicroBatchWork all = work(small_request(1), {.rank = 4});
  // A has rank x inputs: of q k v o gate up, of down. B has outputs x rank: in the same order.
  const double adapter = 4 * (6 * 64 + 96 + 64 + 32 + 32 + 64 + 96 + 96 + 64);
  EXPECT_DOUBLE_EQ(all.blocks[0].forward.flops + all.blocks[0].backward.flops,
                   tokens * (4 * block_weights + 6 * adapter) + 3.5 * attention_forward);
  EXPECT_DOUBLE_EQ(all.head.forward.flops + all.head.backward.flops, 4 * tokens * head_weights);
}

TEST(PlannedWork, OfPackedWeightsUnpacksThemForwardAndBackward) {
  const Work dense = work(small_request(1), {.rank = 4}).total();
  const Work packed = work(small_request(1), {4, false, model::Packing::Kind::nf4}).total();
  EXPECT_DOUBLE_EQ(packed.flops, dense.flops);
  EXPECT_NEAR(packed.memory_s - dense.memory_s, 2 * 2 * block_weights * 2.5 / 1e12, 1e-18);
}

TEST(PlannedWork, OfEightBitsIsDoneAtTheirRateButForGradientsOfWeights) {
  PlanInput r = small_request(1);
  const DecoderTable table(r.architecture);
  Machine machine = round_machine();
  machine.memory_gb_per_s = 1e9;  // products alone take time
  const auto products_s = [&] {
    const StageWork block =
        plan_work(r, table.table(), Rates(machine, r.numbers.compute), Passes::fused).blocks[0];
    return block.forward.products_s + block.backward.products_s;
  };
  const double in_bf16 = products_s();
  EXPECT_NEAR(in_bf16, 6 * tokens * block_weights / 1e12, 1e-12 * in_bf16);
  r.numbers.fp8 = model::Fp8Recipe{};
  EXPECT_DOUBLE_EQ(products_s(), in_bf16) << "a machine that says nothing of them";
  machine.fp8_tflops = 4;
  EXPECT_NEAR(products_s(), in_bf16 / 3 * (1 + 2 / 4.0), 1e-9 * in_bf16);
  r.numbers.fp8->scaling = model::Fp8Scaling::block;
  EXPECT_DOUBLE_EQ(products_s(), in_bf16) << "sizes that blocks do not divide";
}

TEST(PlannedWork, RoundsOperandsToEightBitsInPassesOverMemory) {
  PlanInput r = small_request(1);
  const auto memory_s = [&] {
    const StageWork block = work(r).blocks[0];
    return block.forward.memory_s + block.backward.memory_s;
  };
  const double before = memory_s();
  r.numbers.fp8 = model::Fp8Recipe{};
  // Read twice and written once: inputs and matrices forward, gradients and matrices backward.
  const double inputs = 64 + 64 + 64 + 96, gradients = 64 + 2 * 32 + 64 + 2 * 96 + 64;
  const double rounding = 5 * (tokens * (inputs + gradients) + 2 * block_weights);
  // Backward multiplies gradients with the scales of the matrices' rows, and transposes these.
  const double transposing = 4 * tokens * gradients + 2 * block_weights;
  EXPECT_NEAR(memory_s() - before, (rounding + transposing) / 1e12, 1e-15);
}

TEST(PlannedWork, ComputesBlocksAgainWithFullCheckpointing) {
  PlanInput r = small_request(1);
  r.activation_checkpointing = ActivationCheckpointing::full;
  const MicroBatchWork all = work(r);
  EXPECT_DOUBLE_EQ(all.blocks[1].again.flops, all.blocks[1].forward.flops);
  EXPECT_DOUBLE_EQ(all.model_flops(), work(small_request(1)).model_flops()) << "MFU counts it once";
  r.activation_checkpointing = ActivationCheckpointing::selective;
  EXPECT_EQ(work(r).blocks[1].again.flops, 0);
  EXPECT_GT(work(r).blocks[1].again.memory_s, 0);
}

TEST(PlannedWork, CountsTheExpertsThatATokenTakes) {
  PlanInput r = small_request(1);
  r.architecture.experts = {.num = 8, .top_k = 2, .d_ff = 48};
  r.architecture.layers = {{.has_experts = true}, {}};
  DecoderTable table(r.architecture);
  const MicroBatchWork all =
      plan_work(r, table.table(), Rates(round_machine(), r.numbers.compute), Passes::fused);
  // The table's gate, up and down are those of a shared expert without width here: only q k v o.
  const double attention_weights = 2 * 64 * 64 + 2 * 64 * 32;
  const double experts = 2 * 3 * 64 * 48, router = 64 * 8;
  EXPECT_NEAR(all.blocks[0].forward.flops,
              2 * tokens * (attention_weights + experts + router) + attention_forward,
              2 * tokens * 3 * 64 * 96 + 1);
}

TEST(PlannedWork, ATokenSeesHalfOfAllItsWindowOrItsChunk) {
  EXPECT_DOUBLE_EQ(visible_tokens({}, 100), 50.5);
  EXPECT_DOUBLE_EQ(visible_tokens({.window = 100}, 100), 50.5);
  EXPECT_DOUBLE_EQ(visible_tokens({.window = 1}, 100), 1);
  EXPECT_DOUBLE_EQ(visible_tokens({.window = 2}, 4), (1 + 2 + 2 + 2) / 4.0);
  EXPECT_DOUBLE_EQ(visible_tokens({.chunk = 10}, 100), 5.5);
}

}  // namespace
}  // namespace finetune::plan::work_test
