// SPDX-License-Identifier: Apache-2.0
#include "plan/fits.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"
#include "support/errors.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::fits_test {
namespace {

using tests::block_table;

/// Long sequences of a small model: activations are most of it.
PlanInput long_sequences() {
  PlanInput request = tests::request(4);
  request.micro_batch = 8;
  request.max_seq_length = 4096;
  return request;
}

/// A few tokens of a large model, whole on each of four ranks.
PlanInput replicas() {
  PlanInput request = tests::request(4);
  request.parallel.sharding = sharding_named("NO_SHARD");
  return request;
}

std::vector<std::string> changes(const std::vector<Remedy>& remedies) {
  std::vector<std::string> names;
  for (const Remedy& remedy : remedies)
    names.push_back(remedy.change);
  return names;
}

bool names(const std::vector<Remedy>& remedies, const std::string& change) {
  const auto all = changes(remedies);
  return std::find(all.begin(), all.end(), change) != all.end();
}

TEST(Remedies, SayWhatReplanningSays) {
  const PlanInput request = long_sequences();
  const std::int64_t now = make(request, block_table(4)).memory_bytes();
  for (const Remedy& remedy : remedies(request, block_table(4), now / 2)) {
    EXPECT_EQ(remedy.saved_bytes, now - remedy.bytes) << remedy.change;
    EXPECT_GT(remedy.saved_bytes, now / 100) << remedy.change;
  }
  PlanInput half = request;
  half.micro_batch = 4;
  const auto found = remedies(request, block_table(4), now - 1);
  const auto it = std::find_if(found.begin(), found.end(), [](const Remedy& remedy) {
    return remedy.change == "train.micro_batch = 4";
  });
  ASSERT_NE(it, found.end());
  EXPECT_EQ(it->bytes, make(half, block_table(4)).memory_bytes());
}

TEST(Remedies, AreThreeOrderedByWhatTheySave) {
  const auto found = remedies(long_sequences(), block_table(4), 1);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_GE(found[0].saved_bytes, found[1].saved_bytes);
  EXPECT_GE(found[1].saved_bytes, found[2].saved_bytes);
}

TEST(Remedies, FollowWhatTheRunIsFullOf) {
  const auto activations = remedies(long_sequences(), block_table(4), 1);
  EXPECT_TRUE(names(activations, "train.activation_checkpointing = \"full\""));
  const auto weights = remedies(replicas(), block_table(32), 1);
  EXPECT_TRUE(names(weights, "parallel.sharding = \"FULL_SHARD\""));
  EXPECT_FALSE(names(weights, "train.activation_checkpointing = \"full\""));
}

TEST(Remedies, ThatFitAndCostLittleComeBeforeThoseThatSaveMore) {
  const PlanInput request = long_sequences();
  const std::int64_t now = make(request, block_table(4)).memory_bytes();
  const auto found = remedies(request, block_table(4), now - now / 100);
  EXPECT_TRUE(names(found, "train.activation_checkpointing = \"selective\""));
  EXPECT_TRUE(names(found, "train.micro_batch = 4"));
  EXPECT_FALSE(names(found, "data.max_seq_length = 2048")) << "that trains something else";
}

TEST(Remedies, NameFixedPointAndFp32WhereTheyAreUsed) {
  PlanInput request = replicas();
  request.parallel.sharding = sharding_named("FULL_SHARD");
  request.numbers.determinism = Determinism::topology;
  request.numbers.compute = core::DType::f32;
  const std::int64_t now = make(request, block_table(32)).memory_bytes();
  const auto found = remedies(request, block_table(32), now - 1);
  EXPECT_TRUE(names(found, "train.determinism = \"run\""))
      << testing::PrintToString(changes(found));
}

TEST(Remedies, OfAGpuIncludeItsHost) {
  PlanInput request = tests::request(1);
  request.on_gpu = true;
  EXPECT_TRUE(names(remedies(request, block_table(32), 1), "optimizer.offload = true"));
  request.on_gpu = false;
  EXPECT_FALSE(names(remedies(request, block_table(32), 1), "optimizer.offload = true"));
}

TEST(Remedies, OfAGpuHaveActivationsOnTheHostWhereThatIsEnough) {
  PlanInput request = tests::request(1);
  request.on_gpu = true;
  request.architecture.num_layers = 32;
  request.micro_batch = request.global_batch = 64;
  request.max_seq_length = 512;
  PlanInput offloaded = request;
  offloaded.offloaded_blocks = 16;
  const std::int64_t enough = make(offloaded, block_table(32)).memory_bytes();
  const std::string remedy = "train.offloaded_blocks = 16";
  EXPECT_TRUE(names(remedies(request, block_table(32), enough), remedy));
  request.chooses_activations = true;
  EXPECT_TRUE(names(remedies(request, block_table(32), enough),
                    remedy + " with activation_checkpointing = \"none\""));
  request.on_gpu = false;
  EXPECT_FALSE(names(remedies(request, block_table(32), enough), remedy));
}

TEST(RequireFits, AcceptsWhatFitsExactly) {
  const PlanInput request = replicas();
  const Plan plan = make(request, block_table(4));
  EXPECT_NO_THROW(require_fits(plan, request, block_table(4), plan.memory_bytes()));
}

TEST(RequireFits, NamesNeedSupplyAndRemedies) {
  PlanInput request = replicas();
  request.deck = "input.toml";
  const Plan plan = make(request, block_table(32));
  const std::string text = tests::error_of(core::ErrorKind::environment, [&] {
    require_fits(plan, request, block_table(32), std::int64_t{512} << 20);
  });
  EXPECT_TRUE(
      text.starts_with("input.toml: needs 892 MiB of memory per rank (512 MiB are there). "
                       "The cheapest remedies for this run: "))
      << text;
  EXPECT_NE(text.find("parallel.sharding = \"FULL_SHARD\" saves "), std::string::npos) << text;
  EXPECT_NE(text.find(" and fits"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(".")) << text;
}

TEST(RequireFits, SaysSoWhereNoSingleChangeIsEnough) {
  const PlanInput request = replicas();
  const std::string text = tests::error_of(core::ErrorKind::environment, [&] {
    require_fits(make(request, block_table(32)), request, block_table(32), 1);
  });
  EXPECT_NE(text.find("No single change is enough; the cheapest for this run: "), std::string::npos)
      << text;
  EXPECT_EQ(text.find("and fits"), std::string::npos) << text;
}

TEST(AvailableBytes, AreTheDecksIfItNamesThem) {
  PlanInput request = replicas();
  EXPECT_EQ(available_bytes(request, 7), 7);
  request.parallel.memory_gib = 1.5;
  EXPECT_EQ(available_bytes(request, 7), std::int64_t{3} << 29);
}

TEST(RequireHostFits, ComparesWhatIsNotOnTheGpu) {
  PlanInput request = replicas();
  request.deck = "input.toml";
  request.on_gpu = request.offloads_optimizer = true;
  const Plan plan = make(request, block_table(32));
  EXPECT_NO_THROW(require_host_fits(plan, request, plan.host_bytes()));
  const std::string text = tests::error_of(core::ErrorKind::environment, [&] {
    require_host_fits(plan, request, plan.host_bytes() - 1);
  });
  EXPECT_TRUE(text.starts_with("input.toml: needs ")) << text;
  EXPECT_NE(text.find("of host memory per rank"), std::string::npos) << text;
}

}  // namespace
}  // namespace finetune::plan::fits_test
