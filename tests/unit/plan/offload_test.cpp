// SPDX-License-Identifier: Apache-2.0
// Activations on the host: how long their copies take, and when the plan chooses them.
#include <gtest/gtest.h>

#include <string>

#include "plan/memory/buffers.hpp"
#include "plan/memory/detail/activations.hpp"
#include "plan/time/time.hpp"
#include "support/errors.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::offload_test {
namespace {

using enum ActivationCheckpointing;

PlanInput with(ActivationCheckpointing mode, std::int64_t offloaded, std::int64_t recomputed = 0) {
  PlanInput request = open_8b();
  request.chooses_activations = false;
  request.activation_checkpointing = mode;
  request.recomputed_blocks = recomputed;
  request.offloaded_blocks = offloaded;
  request.max_seq_length = 16384;
  return request;
}

Plan plan_of(const PlanInput& request) {
  return make(request, tests::DecoderTable(request.architecture).table());
}

TimePlan time_of(const PlanInput& request, double link_gb_per_s) {
  Machine machine = shipped("h100-8");
  machine.host_link_gb_per_s = link_gb_per_s;
  const tests::DecoderTable table(request.architecture);
  return plan_time(make(request, table.table()), request, table.table(), machine, Passes::fused);
}

std::int64_t kept_by_a_block(const PlanInput& request) {
  return kept_by_blocks(request, tests::DecoderTable(request.architecture).table()).back();
}

/// Of 16 of 32 one leaves or returns while blocks between them compute.
TEST(OffloadedMemory, IsTheHostsButForOneOrTwoBlocks) {
  const Plan without = plan_of(with(none, 0)), half = plan_of(with(none, 16));
  const std::int64_t block = kept_by_a_block(with(none, 0));
  EXPECT_EQ(without.bytes_of(Category::activations) - half.bytes_of(Category::activations),
            (16 - 1) * block);
  EXPECT_EQ(without.bytes_of(Category::activations) -
                plan_of(with(none, 32)).bytes_of(Category::activations),
            (32 - 2) * block);
  EXPECT_EQ(half.host_bytes() - without.host_bytes(), 16 * offloaded_host_bytes(block));
  EXPECT_EQ(without.bytes_of(Category::weights), half.bytes_of(Category::weights));
}

TEST(OffloadedMemory, OfOneBlockSavesNothing) {
  EXPECT_EQ(plan_of(with(none, 0)).bytes_of(Category::activations),
            plan_of(with(none, 1)).bytes_of(Category::activations));
}

TEST(OffloadedMemory, OfRecomputedBlocksIsThatOfTheirInputs) {
  const Plan without = plan_of(with(full, 0)), all = plan_of(with(full, 32));
  const std::int64_t input = 16384 * 4096 * 2;
  EXPECT_EQ(kept_by_a_block(with(full, 0)), input);
  // A block that is computed again has all that it keeps beside it.
  EXPECT_EQ(without.bytes_of(Category::activations) - all.bytes_of(Category::activations),
            (32 - 2) * input);
}

TEST(OffloadedMemory, IsPinnedInLargePiecesAndARest) {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  EXPECT_EQ(offloaded_host_bytes(0), 0);
  EXPECT_EQ(offloaded_host_bytes(3 * mib), 4 * mib);
  EXPECT_EQ(offloaded_host_bytes(32 * mib), 32 * mib);
  EXPECT_EQ(offloaded_host_bytes(100 * mib), 3 * 32 * mib + 4 * mib);
}

TEST(OffloadedMemory, IsRejectedWhereRanksComputeOnTheHost) {
  PlanInput request = with(none, 4);
  request.on_gpu = false;
  tests::expect_error(core::ErrorKind::deck,
                      "train.offloaded_blocks = 4 needs ranks that compute on GPUs",
                      [&] { plan_of(request); });
}

TEST(OffloadedTime, KeepsTheLinkBusyInBothDirections) {
  const PlanInput request = with(none, 8);
  const TimePlan time = time_of(request, 50);
  const double bytes = 8.0 * static_cast<double>(kept_by_a_block(request));
  EXPECT_NEAR(time.copying_s, 2 * bytes / 50e9, 1e-6);
  PlanInput two_passes = request;
  two_passes.global_batch *= 4;
  EXPECT_NEAR(time_of(two_passes, 50).copying_s, 4 * time.copying_s, 1e-6);
}

TEST(OffloadedTime, IsHiddenBehindOtherBlocksIfTheLinkIsFastEnough) {
  const double without_s = time_of(with(none, 0), 50).step_s;
  EXPECT_NEAR(time_of(with(none, 8), 1e6).step_s, without_s, 1e-4 * without_s);
  const TimePlan slower = time_of(with(none, 8), 50);
  EXPECT_NEAR(slower.step_s, without_s + slower.held_up_s, 1e-9);
  EXPECT_LT(slower.held_up_s, 0.5 * slower.copying_s);
}

TEST(OffloadedTime, IsThatOfTheLinkIfThatIsSlow) {
  const TimePlan time = time_of(with(none, 31), 1);
  EXPECT_GT(time.step_s, time.copying_s);
  EXPECT_LT(time.step_s, time.copying_s + time_of(with(none, 0), 1).step_s);
}

TEST(OffloadedTime, OfSpreadBlocksIsShorterThanOfAllOfThemPerByte) {
  const TimePlan half = time_of(with(none, 16), 50), all = time_of(with(none, 31), 50);
  EXPECT_LT(half.held_up_s / half.copying_s, all.held_up_s / all.copying_s);
}

TEST(OffloadedTime, NeedsTheRateOfTheLink) {
  Machine machine = shipped("h100-8");
  EXPECT_TRUE(missing_rates(machine, with(none, 1)).empty());
  machine.host_link_gb_per_s = 0;
  EXPECT_EQ(machine.link_to_host_gb_per_s(), machine.host_gb_per_s);
  machine.host_gb_per_s = 0;
  EXPECT_TRUE(missing_rates(machine, with(none, 0)).empty());
  EXPECT_EQ(missing_rates(machine, with(none, 1)), std::vector<std::string>{"host_link_gb_per_s"});
}

/// LoRA of 65,536 tokens, where a block computes for long.
struct Long {
  LongSequence run;
  Long() { run.request.max_seq_length = 65536; }
  PlanInput chosen() const { return run.choose().request; }
};

TEST(AutomaticOffloading, IsTakenWhereItIsClearlyFaster) {
  Long fast, slow;
  slow.run.site.machine.host_link_gb_per_s = 1;
  const Choice choice = fast.run.choose();
  EXPECT_GT(choice.request.offloaded_blocks, 0);
  EXPECT_TRUE(choice.strategies.front().is_comfortable);
  EXPECT_EQ(slow.chosen().offloaded_blocks, 0);
  EXPECT_LT(choice.strategies.front().time.step_s,
            0.98 * slow.run.choose().strategies.front().time.step_s);
  const std::string text = to_string(choice, fast.run.request, fast.run.site);
  EXPECT_NE(text.find(" offloaded "), std::string::npos) << text;
}

TEST(AutomaticOffloading, StaysWithinTheHostsMemory) {
  Long run;
  const std::int64_t most = run.run.choose().strategies.front().host_bytes;
  run.run.site.available_host_bytes = most;
  const Choice less = run.run.choose();
  EXPECT_LE(less.strategies.front().host_bytes, most / 10 * 9) << "a tenth stays free";
  EXPECT_TRUE(less.strategies.front().fits);
}

TEST(AutomaticOffloading, IsNotForWhatFits) {
  EXPECT_EQ(choose_8b({}, 75 * gib).request.offloaded_blocks, 0);
}

TEST(AutomaticOffloading, OfInputsIsTheLastResort) {
  LongSequence run;
  EXPECT_GT(run.choose().request.parallel.num_cp(), 1) << "ranks can share sequences instead";
  run.request.parallel.tp = run.request.parallel.cp = 1;
  const Choice choice = run.choose();
  EXPECT_EQ(choice.request.activation_checkpointing, full);
  EXPECT_GT(choice.request.offloaded_blocks, 0);
  EXPECT_TRUE(choice.strategies.front().fits);
}

}  // namespace
}  // namespace finetune::plan::offload_test
