// SPDX-License-Identifier: Apache-2.0
// Whole models on the ranks of a tensor-parallel axis, against the same models on one.

#include "shard/detail/tensor_parallel.hpp"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "adapters/ia3/ia3.hpp"
#include "adapters/ia3/math.hpp"
#include "adapters/lora/lora.hpp"
#include "adapters/lora/math.hpp"
#include "adapters/lora/settings.hpp"
#include "comm/detail/worker.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "support/ranks.hpp"
#include "unit/shard/moved_weights.hpp"
#include "unit/shard/whole_model.hpp"

namespace finetune::shard::tensor_parallel_test {
namespace {

using tests::Case;

/// A vocabulary and tokens that no number of ranks here divides.
model::Architecture llama() {
  model::Architecture a = tests::rotary({2, 24, 8, 4, 8, 36, 53});
  a.layers.resize(2);
  return a;
}

model::Architecture qwen() {
  model::Architecture a = llama();
  a.num_kv_heads = 2;
  a.qkv_bias = true;
  a.tied_embeddings = true;
  for (model::Layer& layer : a.layers)
    layer.head_norm = model::HeadNorm::weighted;
  return a;
}

model::Architecture with_heads(std::int64_t num_heads, std::int64_t num_kv_heads) {
  model::Architecture a = qwen();
  a.num_heads = num_heads;
  a.num_kv_heads = num_kv_heads;
  return a;
}

model::Architecture llama4() {
  model::Architecture a = llama();
  a.experts = {.num = 3, .top_k = 1, .d_ff = 10, .d_shared = 12, .scales_input = true};
  a.temperature = {.scale = 0.5, .floor = 3};
  a.layers[0] = {
      .rotary = model::Rotary::pairs, .head_norm = model::HeadNorm::weightless, .chunk = 4};
  a.layers[1] = {.has_experts = true, .rotary = model::Rotary::none, .tunes_temperature = true};
  return a;
}

model::Architecture mixtral() {
  model::Architecture a = llama();
  a.experts = {.num = 4, .top_k = 2, .d_ff = 10};
  a.layers[0] = {.has_experts = true, .window = 3};
  a.layers[1] = {.has_experts = true};
  return a;
}

/// Values are shorter than queries and keys, whose scores are scaled.
model::Architecture deepseek() {
  model::Architecture a = mixtral();
  a.num_heads = a.num_kv_heads = 5;
  a.head_size = 10;
  a.rotary_size = 4;
  a.latents = {.d_key_value = 7, .d_query = 9, .unturned = 6, .value_size = 8};
  a.rope_scaling.score_scale = 1.25;
  for (model::Layer& layer : a.layers)
    layer = {.rotary = model::Rotary::pairs};
  a.layers[1].has_experts = true;
  return a;
}

Case with_lora(std::string name, model::Architecture architecture, double dropout,
               bool use_dora = false) {
  Case of{.name = std::move(name), .architecture = std::move(architecture)};
  of.adapter = adapters::lora::adapter(&adapters::lora::math());
  of.settings.name = "lora";
  auto& settings = of.settings.of<adapters::lora::Settings>();
  settings.r = 3;
  settings.use_dora = use_dora;
  settings.use_rslora = !use_dora;
  of.dropout = dropout;
  return of;
}

Case with_ia3(std::string name, std::vector<std::string> targets) {
  Case of{.name = std::move(name), .architecture = qwen()};
  of.adapter = adapters::ia3::adapter(&adapters::ia3::math());
  of.settings.name = "ia3";
  of.settings.target_modules = std::move(targets);
  return of;
}

Case changed(Case of, std::string name, void (*change)(Case&)) {
  of.name = std::move(name);
  change(of);
  return of;
}

/// One tensor has all experts of a layer.
void in_one_tensor(Case& of) {
  of.names.fused_gate_up = "experts.gate_up_proj";
  of.names.fused_down = "experts.down_proj";
}

std::vector<Case> cases() {
  const Case of_llama{.name = "Llama", .architecture = llama()};
  const Case of_qwen{.name = "Qwen", .architecture = qwen()};
  const Case of_llama4{.name = "Llama4", .architecture = llama4()};
  const Case of_mixtral{.name = "Mixtral", .architecture = mixtral()};
  const Case of_deepseek{.name = "Latents", .architecture = deepseek()};
  const Case of_lora = with_lora("LoraWithDropout", qwen(), 0.3);
  return {
      of_llama,
      of_qwen,
      of_mixtral,
      of_lora,
      of_llama4,
      of_deepseek,
      changed(of_deepseek, "LatentsOfSixTokens",
              [](Case& of) {
                of.batch = 1;
                of.length = 6;
                of.recompute = model::Recompute::cheap;
              }),
      with_lora("LoraOfLatentsWithDropout", deepseek(), 0.2),
      with_lora("DoraOfLatents", deepseek(), 0.2, true),
      {.name = "OneKeyHead", .architecture = with_heads(4, 1)},
      {.name = "ThreeKeyHeads", .architecture = with_heads(6, 3)},
      changed(of_llama4, "ExpertsInOneTensor", in_one_tensor),
      changed(changed(of_mixtral, "", in_one_tensor), "BalancedInOneTensor",
              [](Case& of) { of.balance = 0.3; }),
      // Qwen's and one more, with tokens of all of it.
      changed(of_qwen, "LargeVocabulary",
              [](Case& of) {
                of.architecture.vocab_size = 151937;
                of.architecture.tied_embeddings = false;
                of.id_step = 7001;
              }),
      changed(of_llama, "HeadsTogether",
              [](Case& of) {
                of.names.qkv = "qkv";
                of.architecture.num_kv_heads = 8;
                of.architecture.qkv_bias = of.architecture.qkv_by_key_head = true;
              }),
      changed(of_qwen, "ValuesOfKeys",
              [](Case& of) {
                of.architecture.norms_values = of.architecture.scales_blocks = true;
                of.architecture.layers[1].reads_keys = true;
                of.architecture.layers[1].num_kv_heads = 1;
              }),
      changed(of_llama, "LearnedPositions",
              [](Case& of) {
                of.names.positions = "positions";
                of.architecture.learns_positions = true;
                of.architecture.max_positions = 64;
                of.stretches = {{0, 7}, {7, 4, true}, {11, 5}, {16, 6}};
              }),
      changed(of_llama, "WithoutPrompts", [](Case& of) { of.has_prompt = false; }),
      // Some ranks have none.
      changed(of_llama, "TwoTokens",
              [](Case& of) {
                of.batch = 1;
                of.length = 2;
              }),
      // Ranks 0 to 2 of 4 have two tokens each.
      changed(of_qwen, "SixTokens",
              [](Case& of) {
                of.batch = 1;
                of.length = 6;
              }),
      changed(of_llama, "Windows",
              [](Case& of) {
                of.architecture.layers[0].window = 4;
                of.stretches = {{0, 7}, {7, 4, true}, {11, 5}, {16, 6}};
              }),
      changed(of_llama, "RecomputingWhatIsCheap",
              [](Case& of) { of.recompute = model::Recompute::cheap; }),
      changed(of_mixtral, "Balanced", [](Case& of) { of.balance = 0.3; }),
      changed(of_mixtral, "BalancedOverAllLayers",
              [](Case& of) {
                of.balance = 0.3;
                of.balances_all = true;
                of.recompute = model::Recompute::cheap;
              }),
      changed(of_lora, "LoraRecomputing", [](Case& of) { of.recompute = model::Recompute::cheap; }),
      changed(of_lora, "LoraOfSomeWithTheHead",
              [](Case& of) {
                of.architecture.tied_embeddings = false;
                of.settings.target_modules = {"q_proj", "v_proj", "down_proj"};
                of.settings.modules_to_save = {"embed_tokens", "lm_head"};
              }),
      with_lora("Dora", qwen(), 0, true),
      with_lora("DoraWithDropout", llama(), 0.2, true),
      with_lora("DoraOfOneKeyHead", with_heads(4, 1), 0, true),
      with_ia3("Ia3", {"k_proj", "v_proj", "down_proj"}),
      with_ia3("Ia3OfAll", {"all-linear"}),
  };
}

class TensorParallel : public testing::TestWithParam<Case> {};

TEST_P(TensorParallel, IsTheModelOfOneRank) {
  const Case& of = GetParam();
  const model::ParameterTable table = of.table();
  comm::MpiGroup group(tests::world(), std::make_shared<comm::Worker>(comm::Worker::Where::behind));
  if (const std::string why = model::why_not(table, group.size()); !why.empty())
    GTEST_SKIP() << why;
  tests::TableWeights whole = tests::random_weights(table, of.dtype);
  const tests::WholePass expected = tests::whole_pass(of, table, whole);
  std::vector<tests::WholePass> moved;
  for (const std::uint64_t seed : {1000, 2000}) {
    tests::TableWeights weights = tests::moved_weights(table, whole, seed);
    moved.push_back(tests::whole_pass(of, table, weights));
  }

  const model::PartPlace place{.tp = group.size(), .i_tp = group.rank()};
  const model::ParameterTable own = model::part_of(table, place);
  tests::TableWeights own_weights = tests::own_weights(own, whole);
  TensorParallelOps parallel(own_weights, own, group, model::Path::kernels, of.recompute,
                             {.place = place});
  const tests::PassResults results =
      tests::run_pass(parallel, own, of, group.rank() == 0 ? of.balance : 0);

  const auto expect_near = [&](const at::Tensor& actual, const auto& part) {
    tests::expect_rounded_as(actual, part(expected), {part(moved[0]), part(moved[1])},
                             of.architecture.vocab_size);
  };
  using tests::WholePass;
  expect_near(results.logits_NV, [](const WholePass& pass) { return pass.results.logits_NV; });
  expect_near(results.scores.log_prob_N,
              [](const WholePass& pass) { return pass.results.scores.log_prob_N; });
  EXPECT_TRUE(results.scores.is_first_N.equal(expected.results.scores.is_first_N));
  expect_near(results.balance, [](const WholePass& pass) { return pass.results.balance; });
  for (int row = 0; row < std::ssize(table.rows); ++row) {
    SCOPED_TRACE(table.row(row).name);
    const at::Tensor sum =
        tests::summed_gradient(group, own.row(row), own_weights.gradient_of(row));
    expect_near(
        sum, [&](const WholePass& pass) { return pass.gradients[static_cast<std::size_t>(row)]; });
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallel, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

/// How far `values` are from `exact`, relative to it.
double distance(const at::Tensor& values, const at::Tensor& exact) {
  return ((values.to(at::kDouble) - exact).norm() / exact.to(at::kDouble).norm()).item<double>();
}

TEST(TensorParallelInBf16, RoundsNoWorseThanTwiceWhatOneRankDoes) {
  Case of{.name = "Llama", .architecture = llama(), .dtype = at::kBFloat16};
  const model::ParameterTable table = of.table();
  comm::MpiGroup group(tests::world(), std::make_shared<comm::Worker>(comm::Worker::Where::behind));
  const model::ParameterTable own =
      model::part_of(table, {.tp = group.size(), .i_tp = group.rank()});
  tests::TableWeights narrow = tests::random_weights(table, at::kBFloat16);
  tests::TableWeights of_ranks = tests::own_weights(own, narrow);
  std::vector<at::Tensor> widened;
  for (int row = 0; row < std::ssize(table.rows); ++row)
    widened.push_back(narrow.tensor(row).to(at::kFloat));
  tests::TableWeights wide(table, widened);
  model::Ops in_f32(wide), in_bf16(narrow);
  TensorParallelOps parallel(of_ranks, own, group);
  const tests::PassResults exact = tests::run_pass(in_f32, table, of, 0);
  const tests::PassResults one = tests::run_pass(in_bf16, table, of, 0);
  const tests::PassResults ranks = tests::run_pass(parallel, own, of, 0);

  EXPECT_GT(distance(one.logits_NV, exact.logits_NV), 0);
  EXPECT_LE(distance(ranks.logits_NV, exact.logits_NV),
            2 * distance(one.logits_NV, exact.logits_NV));
  for (int row = 0; row < std::ssize(table.rows); ++row) {
    SCOPED_TRACE(table.row(row).name);
    const at::Tensor sum = tests::summed_gradient(group, own.row(row), of_ranks.gradient_of(row));
    EXPECT_LE(distance(sum, wide.gradient_of(row)),
              2 * distance(narrow.gradient_of(row), wide.gradient_of(row)));
  }
}

TEST(TensorParallelGeneration, HasTheLogitsOfOneRankTokenByToken) {
  const model::Architecture a = qwen();
  const model::ParameterTable table = model::lay_out(a);
  comm::MpiGroup group(tests::world(), std::make_shared<comm::Worker>(comm::Worker::Where::behind));
  tests::TableWeights whole = tests::random_weights(table, at::kFloat);
  const model::ParameterTable own =
      model::part_of(table, {.tp = group.size(), .i_tp = group.rank()});
  tests::TableWeights own_weights = tests::own_weights(own, whole);
  model::Ops ops(whole);
  TensorParallelOps parallel(own_weights, own, group);
  const auto generate = [&](model::Ops& by, const model::ParameterTable& by_table) {
    const at::NoGradGuard no_autograd;
    model::KvCache cache;
    cache.layers.resize(2);
    std::vector<at::Tensor> logits;
    for (const std::int64_t length : {5, 1, 1}) {
      const at::Tensor ids = at::arange(cache.length, cache.length + length);
      const model::Sequence sequence = model::make_sequence(a, length, cache);
      at::Tensor x = by.embedding(ids, by_table.decoder.embedding);
      for (std::size_t i = 0; i < 2; ++i)
        x = model::decoder_block(by, a, by_table.decoder.blocks[i], x, sequence,
                                 static_cast<std::int64_t>(i));
      x = by.norm(by.all_tokens(x), {by_table.decoder.final_norm, a.norm_eps});
      logits.push_back(by.logits(x, by_table.decoder.head));
      cache.length += length;
    }
    return at::cat(logits);
  };
  tests::expect_within(generate(parallel, own), generate(ops, table), 1e-5);
}

}  // namespace
}  // namespace finetune::shard::tensor_parallel_test
