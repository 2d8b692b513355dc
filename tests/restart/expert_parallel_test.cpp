// SPDX-License-Identifier: Apache-2.0
// Whole runs whose ranks share experts out: they train as one rank does, stop, and continue on
// others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "restart/job.hpp"

namespace finetune::tests::expert_parallel_test {
namespace {

constexpr int exit_deck = 78;
constexpr int exit_resubmit = 75;

/// Experts that are tensors of their own, and experts in one tensor.
class SharedExperts : public testing::TestWithParam<const char*> {
 protected:
  static Job job(const std::string& name, const Words& settings = {}) {
    const std::string family = GetParam();
    Words all =
        with(short_run("32-true", 6), {"train.validate_steps=3", "checkpoint.save_steps=3"});
    if (family == "qwen3_moe") all.push_back("model.router_aux_loss_coef=0.1");
    return family_job(family, "expert_parallel." + family + "." + name, with(all, settings));
  }

  static void expect_success(const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  }

  /// One rank's run with these settings: once for all that are compared with it.
  static const Job& on_one_rank(const std::string& name, const Words& settings = {}) {
    static std::map<std::pair<std::string, Words>, Job> known;
    const std::pair<std::string, Words> key(GetParam(), settings);
    if (const auto found = known.find(key); found != known.end()) return found->second;
    const Job& reference = known.emplace(key, job(name, settings)).first->second;
    expect_success(reference.run(1));
    return reference;
  }

  static void expect_close(const Job& job, const Job& reference, double tolerance = 1e-5) {
    const auto rows = job.metrics(), expected = reference.metrics();
    ASSERT_EQ(rows.size(), expected.size());
    ASSERT_FALSE(rows.empty());
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (const char* field : {"loss", "grad_norm", "validation_loss", "balance_loss"}) {
        ASSERT_EQ(rows[i].contains(field), expected[i].contains(field)) << field;
        if (!rows[i].contains(field)) continue;
        const double wanted = expected[i][field].get<double>();
        EXPECT_NEAR(rows[i][field].get<double>(), wanted, tolerance * std::abs(wanted))
            << field << " in row " << i;
      }
  }
};

/// 5 sequences are 3 micro-batches: in every step some ranks have none. The first two families,
/// whose experts lie in files in the two ways, run on every layout; the others on half of them, so
/// that each layout has two more.
TEST_P(SharedExperts, TrainAsOnOneRank) {
  const Job& reference = on_one_rank("one");
  const Words shard = {"parallel.sharding=FULL_SHARD"};
  const struct {
    const char* name;
    int ranks;
    Words settings;
  } runs[] = {
      {"two", 2, with(shard, {"parallel.ep=2"})},
      {"four", 4, with(shard, {"parallel.ep=4"})},
      {"shards", 4, with(shard, {"parallel.ep=2", "train.activation_checkpointing=full"})},
      {"copies", 4, {"parallel.ep=2", "parallel.dp_shard=2"}},
      {"parts", 3, with(shard, {"parallel.ep=3", "parallel.bucket=LAYER"})},
      {"whole", 2, {"parallel.ep=2", "parallel.sharding=SHARD_GRAD_OP", "parallel.bucket=NONE"}},
      {"tensor", 2, {"parallel.tp=2"}},
  };
  const std::map<std::string, Words> some = {
      {"gpt_oss", {"two", "shards", "parts"}},       {"glm4_moe", {"four", "copies", "whole"}},
      {"deepseek_v2", {"shards", "parts", "whole"}}, {"gemma4_a4b", {"four", "tensor"}},
      {"minimax_m2", {"two", "four", "copies"}},
  };
  const auto chosen = some.find(GetParam());
  for (const auto& run : runs) {
    if (chosen != some.end() && std::ranges::count(chosen->second, run.name) == 0) continue;
    SCOPED_TRACE(run.name);
    const Job shared = job(run.name, run.settings);
    expect_success(shared.run(run.ranks));
    expect_close(shared, reference);
  }
}

TEST_P(SharedExperts, StopAndContinueOnOtherRanks) {
  for (const Words& settings :
       {Words{}, Words{"adapter.name=qlora", "adapter.lora_r=4", "optimizer.lr=2e-2"}}) {
    const Job& reference = on_one_rank(settings.empty() ? "one" : "qlora", settings);
    const Words two = {"parallel.sharding=FULL_SHARD", "parallel.ep=2"};
    const Words stop = {"train.stop_after_steps=3"};
    const Job to_one = job("to_one", settings);
    EXPECT_EQ(to_one.run(2, with(two, stop)).exit_code, exit_resubmit);
    expect_success(to_one.run(1));
    expect_close(to_one, reference);
    const Job from_one = job("from_one", settings);
    EXPECT_EQ(from_one.run(1, stop).exit_code, exit_resubmit);
    expect_success(from_one.run(2, two));
    expect_close(from_one, reference);
  }
}

TEST_P(SharedExperts, KeepQuantisedMoments) {
  const Job& reference = on_one_rank("moments", {"optimizer.name=adamw8bit"});
  const Words two = {"parallel.sharding=FULL_SHARD", "parallel.ep=2", "optimizer.name=adamw8bit"};
  const Job shared = job("moments_of_two", two);
  EXPECT_EQ(shared.run(2, {"train.stop_after_steps=3"}).exit_code, exit_resubmit);
  expect_success(shared.run(2));
  // Blocks are cut elsewhere.
  expect_close(shared, reference, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Families, SharedExperts,
                         testing::Values("qwen3_moe", "llama4", "gpt_oss", "glm4_moe",
                                         "deepseek_v2", "gemma4_a4b", "minimax_m2"));

/// Matrices of experts in 8 bits are the same on any ranks: those of a frozen base have the hash
/// that a checkpoint says, and trained ones are made of the masters that it has.
TEST(SharedExpertsInEightBits, StopAndContinueOnOtherRanks) {
  for (const Words& settings : {Words{}, Words{"adapter.name=lora", "optimizer.lr=2e-2"}}) {
    const auto job = [&](const std::string& name) {
      return family_job("qwen3_moe", "expert_parallel.fp8." + name,
                        with(with(short_run("fp8-mixed", 6),
                                  {"train.validate_steps=3", "checkpoint.save_steps=3"}),
                             settings));
    };
    const Words two = {"parallel.sharding=FULL_SHARD", "parallel.ep=2"};
    const Job reference = job("one"), shared = job("two"), to_one = job("to_one");
    for (const auto& [run, ranks, words] :
         {std::tuple(&reference, 1, Words{}), std::tuple(&shared, 2, two)}) {
      const Outcome outcome = run->run(ranks, words);
      EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
      EXPECT_EQ(count(outcome.text(), "stay in bf16"), 0) << outcome.text();
    }
    EXPECT_EQ(to_one.run(2, with(two, {"train.stop_after_steps=3"})).exit_code, exit_resubmit);
    const Outcome outcome = to_one.run(1);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
    const auto expected = reference.metrics();
    for (const Job* other : {&shared, &to_one}) {
      const auto rows = other->metrics();
      ASSERT_EQ(rows.size(), expected.size());
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (const char* field : {"loss", "validation_loss"}) {
          if (!expected[i].contains(field)) continue;
          const double wanted = expected[i][field].get<double>();
          EXPECT_NEAR(rows[i][field].get<double>(), wanted, 1e-2 * wanted) << field << " " << i;
        }
    }
  }
}

TEST(SharedExpertsOfNobody, AreRefused) {
  const Job dense("expert_parallel.dense", with(short_run("32-true", 2), {"parallel.ep=2"}));
  const Outcome outcome = dense.run(2, {"parallel.sharding=FULL_SHARD"});
  EXPECT_EQ(outcome.exit_code, exit_deck);
  EXPECT_EQ(count(outcome.err, "the model has no experts"), 1) << outcome.text();
  const Job moe = family_job("qwen3_moe", "expert_parallel.many", short_run("32-true", 2));
  const Outcome many = moe.run(5, {"parallel.sharding=FULL_SHARD", "parallel.ep=5"});
  EXPECT_EQ(many.exit_code, exit_deck);
  EXPECT_EQ(count(many.err, "Use a number up to 4 that divides"), 1) << many.text();
}

}  // namespace
}  // namespace finetune::tests::expert_parallel_test
