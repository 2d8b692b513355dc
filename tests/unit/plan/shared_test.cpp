// SPDX-License-Identifier: Apache-2.0
// Plans of ranks that share matrices (tp), sequences (cp) and experts (ep), against formulas
// computed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/fits.hpp"
#include "plan/layout/mesh_text.hpp"
#include "plan/memory/detail/activations.hpp"
#include "plan/time/time.hpp"
#include "plan/time/traffic.hpp"
#include "unit/plan/requests.hpp"

namespace finetune::plan::shared_test {
namespace {

using tests::DecoderTable;
using tests::round_machine;
using tests::Training;

using tests::two_blocks;
constexpr double layers = 2, width = 64, tokens = 64, element = 2;
/// Keys and values of a token, in bytes.
constexpr double keys = 2 * 2 * 16 * element;

PlanInput request(const Sharing& sharing) {
  return two_block_request(sharing, 4);
}

/// Experts in every layer, in matrices of their own.
void add_experts(PlanInput& r, std::int64_t num) {
  r.architecture.experts = {.num = num, .top_k = 2, .d_ff = 48};
  r.architecture.layers = {{.has_experts = true}, {.has_experts = true}};
}

std::map<std::string, double> sent(const PlanInput& r, const Training& training = {}) {
  const DecoderTable table(r.architecture, training);
  std::map<std::string, double> bytes;
  for (const GroupTraffic& group : plan_traffic(make(r, table.table()), r, table.table()))
    bytes[group.name] = group.sent_bytes;
  return bytes;
}

TEST(SharedTraffic, OfOneRankIsNone) {
  EXPECT_TRUE(sent(request({})).empty());
}

TEST(SharedTraffic, OfTpGathersAndScattersTokensAroundEveryProduct) {
  const auto bytes = sent(request({.ranks = 2, .tp = 2}));
  ASSERT_EQ(bytes.size(), 1u);
  const double activations = tokens * width * element / 2;
  // Forward before and after attention and feed-forward; backward the same, and the inputs again.
  const double blocks = layers * (4 + 6) * activations;
  const double embedding = 2 * activations, head = 2 * activations;
  // Largest logits of both, and two sums of a number a token.
  const double scores = 4 * tokens + 2 * 4 * tokens;
  // Norms: each rank has a term.
  const double in_common = 4 * (2 * layers + 1) * width;
  EXPECT_DOUBLE_EQ(bytes.at("tp"), blocks + embedding + head + scores + in_common);
}

TEST(SharedTraffic, OfTpGathersNoInputAgainThatNoGradientNeeds) {
  // Adapters read inputs; a frozen embedding has no gradient.
  const auto all = sent(request({.ranks = 2, .tp = 2}), {.rank = 4});
  const auto attention = sent(request({.ranks = 2, .tp = 2}), {4, true});
  const double activations = tokens * width * element / 2;
  // A of gate and up, B of down: rank x width each, in fp32 there and back.
  const double adapters = layers * 4 * 3 * 4 * width;
  EXPECT_DOUBLE_EQ(all.at("tp") - attention.at("tp"), layers * activations + adapters);
}

TEST(SharedTraffic, OfCpFetchesWhatIsSeenForwardAndBackwardAndReturnsGradients) {
  PlanInput r = request({.ranks = 4, .cp = 4});
  r.parallel.cp_method = ContextMethod::gather;
  // Of eight pieces rank 0 has the first and the last and sees 6 of others, rank 3 sees 3.
  const double seen = (6 + 5 + 4 + 3) / 4.0 / 8.0;
  EXPECT_DOUBLE_EQ(sent(r).at("cp"), 3 * layers * seen * tokens * keys);
}

TEST(SharedTraffic, OfCpInARingPassesKeysToAllOthersAndGradientsHome) {
  for (const std::int64_t cp : {2, 4}) {
    PlanInput r = request({.ranks = cp, .cp = cp});
    r.parallel.cp_method = ContextMethod::ring;
    const double own = tokens * keys / static_cast<double>(cp);
    const auto n = static_cast<double>(cp);
    // Gradients are fp32.
    EXPECT_DOUBLE_EQ(sent(r).at("cp"), layers * (2 * (n - 1) * own + n * 2 * own));
  }
}

TEST(SharedTraffic, OfCpGoesRoundOnlyWithEnoughKeys) {
  const auto is_ring = [](std::int64_t length, std::int64_t window) {
    PlanInput r = request({.ranks = 2, .cp = 2});
    r.max_seq_length = length;
    r.architecture.layers = {{.window = window}, {.window = window}};
    PlanInput fetching = r;
    fetching.parallel.cp_method = ContextMethod::gather;
    return sent(r).at("cp") != sent(fetching).at("cp");
  };
  // 2 sequences, half of each is another rank's: 128 bytes a token.
  EXPECT_TRUE(is_ring(1 << 18, 0));
  EXPECT_FALSE(is_ring((1 << 18) - 2, 0));
  EXPECT_FALSE(is_ring(1 << 18, 4096)) << "only neighbours' keys are seen";
}

TEST(SharedTraffic, OfCpWithTpIsOfTheRanksOwnHeads) {
  const auto bytes = sent(request({.ranks = 4, .tp = 2, .cp = 2}));
  EXPECT_DOUBLE_EQ(bytes.at("cp"), 3 * layers * 0.75 * tokens * keys / 2 / 2);
  // Half of the tokens, and both ranks of cp are one shard group.
  const double half = tokens / 2 * width * element / 2;
  EXPECT_DOUBLE_EQ(bytes.at("tp"),
                   (layers * 10 + 4) * half + 6 * tokens + 4 * (2 * layers + 1) * width);
  EXPECT_TRUE(bytes.contains("fsdp"));
}

TEST(SharedTraffic, OfCpFetchesWhatAWindowReaches) {
  PlanInput r = request({.ranks = 4, .cp = 4});
  r.micro_batch = r.global_batch = 1;
  r.architecture.layers = {{.window = 4}, {}};
  r.parallel.cp_method = ContextMethod::gather;
  // Of eight pieces the first has none before it, and the fifth its own rank's.
  const double of_window = 6.0 / 4.0 * (4 - 1), of_all = 0.75 * 32 * 3 / 4;
  EXPECT_DOUBLE_EQ(sent(r).at("cp"), 3 * (of_window + of_all) * keys);
}

TEST(SharedTraffic, OfEpSendsTokensToTheirExpertsAndBack) {
  PlanInput r = request({.ranks = 4, .ep = 2});
  add_experts(r, 8);
  const auto bytes = sent(r);
  // There and back, and once more there in backward; weights and their gradients, and how many.
  const double choices = 2 * tokens;
  EXPECT_DOUBLE_EQ(bytes.at("ep"),
                   layers * (5 * choices * width * element + 2 * 4 * choices + 8 * 8) / 2);
  // Two ranks have the same experts: each gathers the other's half of 4 of 8.
  const double experts = layers * 4 * 3 * width * 48;
  EXPECT_DOUBLE_EQ(bytes.at("expert_fsdp"), (3 * element / 2 + 4) * experts / 2);
}

TEST(SharedTraffic, CountsEveryPass) {
  PlanInput r = request({.ranks = 2, .tp = 2});
  const double once = sent(r).at("tp");
  r.global_batch *= 5;
  EXPECT_DOUBLE_EQ(sent(r).at("tp"), 5 * once);
}

ActivationBytes activations(const PlanInput& r, const Training& training = {}) {
  const DecoderTable table(r.architecture, training);
  const Plan plan = make(r, table.table());
  return plan_activations(r, largest_table(plan.mesh, table.table(), plan.bucket));
}

TEST(SharedMemory, OfBlocksInputsIsOneRanksTokens) {
  for (const Sharing& sharing : {Sharing{4, 4}, Sharing{4, 1, 4}, Sharing{4, 2, 2}}) {
    PlanInput r = request(sharing);
    r.activation_checkpointing = ActivationCheckpointing::full;
    EXPECT_EQ(activations(r).kept,
              static_cast<std::int64_t>(layers * tokens * width * element) / 4);
  }
}

/// x, its norm's input and output, q k v, attention and its sums, h and its norm, gate, up and what
/// follows them.
double kept_of_block(double own_tokens, double all_tokens, double heads, double kv_heads,
                     double channels) {
  const double between = own_tokens * (width * element * 4 + 2 * 4);
  return between + all_tokens * ((2 * heads + 2 * kv_heads) * 16 * element + 4 * heads +
                                 3 * channels * element);
}

TEST(SharedMemory, OfABlockIsOwnTokensBetweenProductsAndOwnHeadsAndChannelsWithin) {
  const auto kept = [](const Sharing& sharing) {
    return static_cast<double>(activations(request(sharing)).kept);
  };
  EXPECT_DOUBLE_EQ(kept({}), layers * kept_of_block(64, 64, 4, 2, 96));
  EXPECT_DOUBLE_EQ(kept({.ranks = 2, .tp = 2}), layers * kept_of_block(32, 64, 2, 1, 48));
  EXPECT_DOUBLE_EQ(kept({.ranks = 2, .cp = 2}), layers * kept_of_block(32, 32, 4, 2, 96));
  EXPECT_DOUBLE_EQ(kept({.ranks = 4, .tp = 2, .cp = 2}), layers * kept_of_block(16, 32, 2, 1, 48));
  // Two ranks hold the same keys and values.
  EXPECT_DOUBLE_EQ(kept({.ranks = 4, .tp = 4}), layers * kept_of_block(16, 64, 1, 1, 24));
}

TEST(SharedMemory, OfUnevenPartsIsThatOfTheLargest) {
  PlanInput r = request({.ranks = 2, .tp = 2});
  r.architecture.num_heads = 6;
  r.architecture.num_kv_heads = 3;
  r.max_seq_length = 33;
  // 66 tokens; one head for keys, or two, and two of queries for each.
  EXPECT_DOUBLE_EQ(static_cast<double>(activations(r).kept),
                   layers * kept_of_block(33, 66, 4, 2, 48 + (96 % 64 == 0 ? 16 : 0)));
}

TEST(SharedMemory, OfMatricesIsTheRanksPartOverItsShards) {
  PlanInput r = request({.ranks = 4, .tp = 2});
  const DecoderTable table(r.architecture);
  const Plan plan = make(r, table.table());
  const std::int64_t block = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96, vocabulary = 2 * 64 * 1000;
  const std::int64_t norms = 5 * 64;
  EXPECT_EQ(plan.shards.shard_elements(), ((2 * block + vocabulary) / 2 + norms) / 2);
}

TEST(SharedMemory, OfExpertsIsTheirPartOverTheRanksWithTheSame) {
  PlanInput r = request({.ranks = 4, .ep = 2});
  add_experts(r, 8);
  const DecoderTable table(r.architecture);
  const Plan plan = make(r, table.table());
  PlanInput alone = request({.ranks = 4});
  alone.architecture = r.architecture;
  const Plan whole = make(alone, table.table());
  EXPECT_EQ(plan.shards.shard_elements(), whole.shards.shard_elements()) << "none is held twice";
  for (const UnitLayout& unit : plan.shards.units()) {
    const bool is_of_experts = unit.name.ends_with(".experts");
    EXPECT_EQ(unit.is_of_experts, is_of_experts) << unit.name;
    EXPECT_EQ(unit.num_shards, is_of_experts ? 2 : 4) << unit.name;
    if (is_of_experts) {
      EXPECT_EQ(unit.count, 4 * 3 * 64 * 48);
    }
  }
}

TEST(SharedMemory, OfExpertsSaysWhatUnevenRoutersNeed) {
  PlanInput r = request({.ranks = 4, .ep = 2});
  add_experts(r, 8);
  const auto plan_of = [&] { return make(r, DecoderTable(r.architecture).table()); };
  // Gate, up and their product are kept of each choice, and as much as thrice that is in flight.
  const std::int64_t kept = 2 * 2 * 64 * 3 * 48 * 2;
  EXPECT_GE(plan_of().uneven_router_bytes, kept);
  EXPECT_LE(plan_of().uneven_router_bytes, 4 * kept);
  const std::string words = "uneven routers           not counted: a rank whose experts are chosen";
  EXPECT_NE(to_string(plan_of()).find(words), std::string::npos) << to_string(plan_of());
  r.parallel.ep = 1;
  EXPECT_EQ(plan_of().uneven_router_bytes, 0)
      << "each rank computes its own tokens, whoever is chosen";
}

TEST(SharedMemory, HasACommunicatorForEachGroup) {
  const auto communicators = [](const Sharing& sharing) {
    PlanInput r = request(sharing);
    add_experts(r, 8);
    const DecoderTable table(r.architecture);
    const auto plan = make(r, table.table());
    const auto it = std::ranges::find_if(
        plan.memory, [](const MemoryItem& item) { return item.name == "NCCL's communicators"; });
    return it == plan.memory.end() ? 0 : it->bytes >> 29;
  };
  EXPECT_EQ(communicators({}), 0);
  EXPECT_EQ(communicators({.ranks = 2, .tp = 2}), 1);
  EXPECT_EQ(communicators({.ranks = 4, .tp = 2, .cp = 2}), 3) << "fsdp holds the copy";
  EXPECT_EQ(communicators({.ranks = 4, .ep = 2}), 3);
  EXPECT_EQ(communicators({.ranks = 4, .ep = 4}), 2);
}

TimePlan time_of(const PlanInput& r, const Training& training = {},
                 const Machine& machine = round_machine()) {
  const DecoderTable table(r.architecture, training);
  return plan_time(make(r, table.table()), r, table.table(), machine, Passes::fused);
}

double exposed_of(const TimePlan& time, const std::string& name) {
  for (const GroupTime& group : time.groups)
    if (group.traffic.name == name) return group.exposed_s;
  return -1;
}

TEST(SharedTime, AddsUpToTheStep) {
  for (const Sharing& sharing :
       {Sharing{4, 4}, Sharing{8, 2, 2}, Sharing{8, 4, 2}, Sharing{8, 2, 1, 2}}) {
    PlanInput r = request(sharing);
    if (sharing.ep > 1) add_experts(r, 8);
    const TimePlan t = time_of(r);
    EXPECT_NEAR(
        t.products_s + t.attention_s + t.memory_s + t.program_s + t.exposed_s + t.optimizer_s,
        t.step_s, 1e-9 * t.step_s);
    double of_activations = 0;
    for (const char* name : {"tp", "cp", "ep"})
      of_activations += std::max(0.0, exposed_of(t, name));
    EXPECT_GT(of_activations, 0);
    EXPECT_LE(of_activations, t.exposed_s);
  }
}

TEST(SharedTime, OfTpIsExposedButBesideTheGradientsOfWeights) {
  // So slow products hide everything that may be hidden.
  Machine slow = round_machine();
  slow.bf16_tflops = 1e-6;
  const PlanInput r = request({.ranks = 2, .tp = 2});
  const double one = tokens * width * element / 2 / 1e11;
  // Per block: 4 forward, and 2 gradients of outputs; of the embedding and the head all.
  const double scores = (4 * tokens + 2 * 4 * tokens) / 1e11;
  const double in_common = 4 * (2 * layers + 1) * width / 1e11;
  EXPECT_NEAR(exposed_of(time_of(r, {}, slow), "tp"), (layers * 6 + 4) * one + scores + in_common,
              1e-12);
  // An adapter adds to the gradient that leaves.
  EXPECT_GT(exposed_of(time_of(r, {.rank = 4}, slow), "tp"), layers * 10 * one);
}

TEST(SharedTime, OfARingHidesBehindAttentionAndOfAGatherDoesNot) {
  Machine slow = round_machine();
  slow.attention_tflops = 1e-6;
  PlanInput r = request({.ranks = 4, .cp = 4});
  r.parallel.cp_method = ContextMethod::ring;
  EXPECT_DOUBLE_EQ(exposed_of(time_of(r, {}, slow), "cp"), 0);
  r.parallel.cp_method = ContextMethod::gather;
  EXPECT_GT(exposed_of(time_of(r, {}, slow), "cp"), 0);
}

TEST(SharedTime, OfTpInsideANodeCrossesNoNetwork) {
  const TimePlan t = time_of(request({.ranks = 8, .tp = 4}));
  for (const GroupTime& group : t.groups) {
    EXPECT_EQ(group.traffic.shape.num_nodes, group.traffic.name == "tp" ? 1 : 2);
    EXPECT_EQ(group.traffic.by_node_bytes > 0, group.traffic.name != "tp");
  }
}

TEST(SharedTraffic, IsSplitByLink) {
  const TimePlan t = time_of(request({.ranks = 8, .tp = 2}));
  ASSERT_EQ(t.groups.size(), 2u);
  for (const GroupTime& group : t.groups) {
    const GroupTraffic& traffic = group.traffic;
    // Four ranks of two nodes share weights: of two on a node one has its neighbour on the other.
    EXPECT_DOUBLE_EQ(traffic.to_others_bytes, traffic.name == "tp" ? 0 : traffic.sent_bytes / 2)
        << traffic.name;
  }
}

TEST(SharedTime, CountsEachTokenOnce) {
  // Four ranks compute one sequence: each a quarter of its products.
  const TimePlan one = time_of(request({})), four = time_of(request({.ranks = 4, .cp = 4}));
  EXPECT_NEAR(four.flops_per_s_of_rank / one.flops_per_s_of_rank, one.step_s / four.step_s / 4,
              1e-9);
}

TEST(LayoutText, SaysWhereANodesRanksLieAndWhoFormsGroups) {
  const Ranks ranks = tests::ranks_on_nodes(16, 4);
  ParallelSettings settings;
  settings.sharding = Sharding::full_shard;
  settings.tp = settings.cp = 2;
  const Mesh mesh = make_mesh(settings, ranks);
  EXPECT_EQ(layout_text(mesh, ranks),
            "  layout                   node 0: ranks 0-3: dp_shard 0, cp 0-1, tp 0-1\n"
            "                           node 1: ranks 4-7: dp_shard 1, cp 0-1, tp 0-1\n"
            "                           node 2: ranks 8-11: dp_shard 2, cp 0-1, tp 0-1\n"
            "                           node 3: ranks 12-15: dp_shard 3, cp 0-1, tp 0-1\n"
            "                           tp: 8 groups of 2 ranks, inside a node; the first: 0-1\n"
            "                           cp: 8 groups of 2 ranks, inside a node; the first: 0, 2\n"
            "                           fsdp: 2 groups of 8 ranks, across nodes; the first: 0, 2, "
            "4, 6, ... 14");
}

TEST(LayoutText, OfManyNodesIsShort) {
  const Ranks ranks = tests::ranks_on_nodes(4096, 8);
  ParallelSettings settings;
  settings.sharding = Sharding::full_shard;
  settings.tp = settings.ep = 8;
  const std::string text = layout_text(make_mesh(settings, ranks), ranks);
  EXPECT_EQ(std::ranges::count(text, '\n'), 8);
  EXPECT_NE(text.find("node 511: ranks 4088-4095: dp_shard 511, tp 0-7"), std::string::npos)
      << text;
  EXPECT_NE(text.find("ep: 512 groups of 8 ranks, across nodes; the first: 0, 8, 16, 24, ... 56"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("expert_fsdp: 64 groups of 64 ranks"), std::string::npos) << text;
}

TEST(SharedRemedies, AreTheFewestRanksThatAreEnough) {
  PlanInput r = request({.ranks = 4});
  r.on_gpu = false;
  r.micro_batch = 1;
  r.max_seq_length = 65536;
  const DecoderTable table(r.architecture);
  r.activation_checkpointing = ActivationCheckpointing::full;
  PlanInput halved = r;
  halved.parallel.cp = 2;
  const std::int64_t enough = make(halved, table.table()).memory_bytes();
  const std::string text = remedy_sentence(r, table.table(), enough);
  EXPECT_NE(text.find("parallel.cp = 2 saves "), std::string::npos) << text;
  EXPECT_EQ(text.find("parallel.cp = 4"), std::string::npos) << text;
}

}  // namespace
}  // namespace finetune::plan::shared_test
