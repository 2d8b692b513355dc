// SPDX-License-Identifier: Apache-2.0
// What ops keep and hold, against what their twins on sizes say.

#include "model/cost/cost_ops.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "adapters/ia3/cost.hpp"
#include "adapters/ia3/math.hpp"
#include "adapters/lora/cost.hpp"
#include "adapters/lora/expert_matrices.hpp"
#include "adapters/lora/math.hpp"
#include "model/block.hpp"
#include "model/layout.hpp"
#include "model/ops.hpp"
#include "model/rope.hpp"
#include "support/allocations.hpp"
#include "support/weights.hpp"
#include "unit/model/cost_parts.hpp"

namespace finetune::model::cost_test {
namespace {

/// One block of a model, and how it is run.
struct Case {
  std::string name;
  Layer layer = {};
  bool qkv_bias = false;
  Experts experts = {};
  std::int64_t rank = 0;  ///< of low-rank parts on top of frozen matrices; 0: all is trained
  bool has_magnitudes = false;
  bool has_starts = false;
  bool adapts_experts = false;
  bool has_factors = false;  ///< of the outputs of keys and values, of the inputs of two others
  bool are_mixed = false;
  Recompute recompute = Recompute::nothing;
  core::DType compute = core::DType::f32;
  NormKind norm_kind = {};
  Activation activation = {};
  bool is_parallel = false;
  double score_softcap = 0;
  bool has_sinks = false;
  bool gates_attention = false;
  bool sorts_heads = false;
  bool learns_positions = false;
  bool norms_values = false;
  Latents latents = {};
  double residual_scale = 1;
  StateHeads states = {};
};

void PrintTo(const Case& of, std::ostream* out) {
  *out << of.name;
}

Architecture architecture(const Case& of) {
  Architecture a = tests::rotary({1, 64, 4, 2, 16, 152, 40, /*max_positions=*/64});
  a.qkv_bias = of.qkv_bias;
  a.experts = of.experts;
  a.layers = {of.layer};
  a.norm_kind = of.norm_kind;
  a.activation = of.activation;
  a.is_parallel = a.shares_norm = of.is_parallel;
  a.score_softcap = of.score_softcap;
  a.has_sinks = of.has_sinks;
  a.gates_attention = of.gates_attention;
  a.qkv_by_key_head = of.sorts_heads;
  a.learns_positions = of.learns_positions;
  a.norms_values = a.scales_blocks = of.norms_values;
  a.residual_scale = of.residual_scale;
  a.delta = {.num_keys = 2, .values_per_key = 2, .key_size = 16, .value_size = 24, .taps = 4};
  a.states = of.states;
  if (!of.latents.exist()) return a;
  a.latents = of.latents;
  a.num_kv_heads = a.num_heads;
  a.rotary_size = 8;
  a.head_size = std::max(a.query_size(), a.value_size());
  return a;
}

/// All matrices frozen, some with factors; mixed: of inputs and outputs in one range.
void scale(ParameterTable& table, bool are_mixed) {
  for (Parameter& row : table.rows)
    row.trainable = false;
  const auto add = [&](int row, std::vector<std::int64_t> shape, bool are_of_inputs) {
    const auto part = static_cast<int>(table.rows.size());
    table.rows.push_back({.name = "adapter", .shape = std::move(shape)});
    table.rows[static_cast<std::size_t>(row)].adapted = {
        .parts = are_of_inputs ? std::vector<int>{-1, part} : std::vector<int>{part},
        .cost = &adapters::ia3::cost(),
        .math = &adapters::ia3::math()};
  };
  const BlockRows block = table.decoder.blocks.front();
  for (const int row : {block.qkv.first + 1, block.qkv.first + 2})
    add(row, {table.row(row).shape[0], 1}, false);
  for (const int row : {block.attention_out, block.feed_forward.down})
    add(row, {1, table.row(row).shape[1]}, true);
  if (!are_mixed) return;
  const int gate = block.feed_forward.gate_up.first;
  add(gate, {1, table.row(gate).shape[1]}, true);
  add(gate + 1, {table.row(gate + 1).shape[0], 1}, false);
}

/// All matrices of the block frozen, each with a low-rank part, the A of a range next to each
/// other.
void adapt(ParameterTable& table, const Case& of) {
  for (Parameter& row : table.rows)
    row.trainable = false;
  const auto add = [&](std::vector<std::int64_t> shape) {
    table.rows.push_back({.name = "adapter", .shape = std::move(shape)});
    return static_cast<int>(table.rows.size()) - 1;
  };
  const BlockRows block = table.decoder.blocks.front();
  for (const RowRange rows : {block.qkv, RowRange{block.query_up, 1},
                              RowRange{block.key_value_up, 1}, RowRange{block.attention_out, 1},
                              block.feed_forward.gate_up, RowRange{block.feed_forward.down, 1}}) {
    if (rows.first < 0) continue;
    std::vector<Adapted> parts(
        static_cast<std::size_t>(rows.num),
        {.scale = 2, .cost = &adapters::lora::cost(), .math = &adapters::lora::math()});
    for (Adapted& part : parts)
      part.parts = {add({of.rank, table.row(rows.first).shape[1]})};
    for (int i = 0; i < rows.num; ++i) {
      Adapted& part = parts[static_cast<std::size_t>(i)];
      const std::int64_t outputs = table.row(rows.first + i).shape[0];
      part.parts.push_back(add({outputs, of.rank}));
      if (of.has_magnitudes) part.parts.push_back(add({outputs}));
      table.rows[static_cast<std::size_t>(rows.first + i)].adapted = part;
    }
    if (!of.has_starts) continue;
    for (int i = 0; i < rows.num; ++i) {
      auto& own = table.rows[static_cast<std::size_t>(rows.first + i)].adapted.parts;
      own.push_back(-1);
      const int start = add({of.rank, table.row(rows.first).shape[1]});
      table.rows[static_cast<std::size_t>(rows.first + i)].adapted.parts.push_back(start);
    }
    for (int i = 0; i < rows.num; ++i) {
      const int start = add({table.row(rows.first + i).shape[0], of.rank});
      table.rows[static_cast<std::size_t>(rows.first + i)].adapted.parts.push_back(start);
    }
  }
}

/// The experts' matrices have their low-rank parts together.
void adapt_experts(ParameterTable& table, std::int64_t rank) {
  for (Parameter& row : table.rows)
    row.trainable = false;
  adapters::lora::Settings settings;
  settings.r = rank;
  adapters::lora::add_to_experts(
      adapters::lora::named_experts({"experts.gate_up_proj", "experts.down_proj"}, "", table),
      adapters::lora::LowRankSizes(settings, ""), table);
  for (Parameter& row : table.rows) {
    if (row.adapted.together.num == 0) continue;
    row.adapted.cost = &adapters::lora::cost();
    row.adapted.math = &adapters::lora::math();
  }
}

ParameterTable table_of(const Case& of) {
  TensorNames names;
  if (of.sorts_heads) names.qkv = "qkv";
  if (of.experts.has_biases) {
    names.fused_gate_up = "experts.gate_up_proj";
    names.fused_down = "experts.down_proj";
  }
  ParameterTable table = lay_out(architecture(of), names);
  if (of.rank > 0 && !of.adapts_experts) adapt(table, of);
  if (of.adapts_experts) adapt_experts(table, of.rank);
  if (of.has_factors) scale(table, of.are_mixed);
  return table;
}

Bytes measured(const Case& of) {
  const Architecture a = architecture(of);
  const ParameterTable table = table_of(of);
  const at::ScalarType dtype = of.compute == core::DType::f32 ? at::kFloat : at::kBFloat16;
  tests::TableWeights weights(table, dtype);
  // Our products: on processors with instructions for bf16 libtorch's take a scratchpad, as large
  // as a matrix of these tests and nothing next to a real one.
  Ops ops(weights, Path::widened, of.recompute);
  const Sequence sequence = make_sequence(a, batch, length);
  const at::Tensor dy = tests::normal({tokens, a.d_model}, 98).to(dtype);
  const auto run = [&] {
    const tests::Allocations allocations;
    const at::Tensor x =
        at::ones({tokens, a.d_model}, at::TensorOptions(dtype)).set_requires_grad(true);
    const at::Tensor y = decoder_block(ops, a, table.decoder.blocks.front(), x, sequence, 0);
    const auto output = static_cast<std::int64_t>(y.nbytes());
    const std::int64_t kept = allocations.live_bytes() - output;
    torch::autograd::grad({y}, {x}, {dy});
    // Whoever runs the block holds the output's gradient, which is not counted here.
    return Bytes{kept, allocations.peak_bytes() + output - kept};
  };
  // The first pass puts weights together.
  run();
  return run();
}

Bytes counted(const Case& of) {
  const ParameterTable table = table_of(of);
  CostOps ops(table, {.compute = of.compute, .recompute = of.recompute});
  const Architecture a = architecture(of);
  const TensorSize x = ops.tensor(tokens, a.d_model);
  const TensorSize y =
      decoder_block(ops, a, table.decoder.blocks.front(), x, SequenceSize{batch, length}, 0);
  return {ops.tape().kept_bytes(), ops.tape().worst(x, y).total()};
}

class Cost : public testing::TestWithParam<Case> {};

TEST_P(Cost, IsWhatABlockKeepsAndHolds) {
  expect_counted(measured(GetParam()), counted(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    Blocks, Cost,
    testing::Values(
        Case{.name = "dense"}, Case{.name = "dense_bf16", .compute = core::DType::bf16},
        Case{.name = "recomputed", .recompute = Recompute::cheap},
        Case{.name = "bias", .qkv_bias = true},
        Case{.name = "head_norm", .layer = {.head_norm = HeadNorm::weighted}},
        Case{.name = "window", .layer = {.window = 16}},
        Case{.name = "experts",
             .layer = {.has_experts = true},
             .experts = {.num = 6, .top_k = 2, .d_ff = 48}},
        Case{.name = "experts_recomputed",
             .layer = {.has_experts = true},
             .experts = {.num = 6, .top_k = 2, .d_ff = 48},
             .recompute = Recompute::cheap},
        Case{.name = "biased_experts", .layer = {.has_experts = true}, .experts = biased_experts},
        Case{.name = "biased_experts_recomputed_bf16",
             .layer = {.has_experts = true},
             .experts = biased_experts,
             .recompute = Recompute::cheap,
             .compute = core::DType::bf16},
        Case{.name = "experts_apart", .layer = {.has_experts = true}, .experts = experts_apart},
        Case{.name = "scaled_inputs",
             .layer = {.has_experts = true},
             .experts = {.num = 6, .top_k = 1, .d_ff = 48, .scales_input = true}},
        Case{.name = "scaled_inputs_bf16",
             .layer = {.has_experts = true},
             .experts = {.num = 6, .top_k = 2, .d_ff = 48, .scales_input = true},
             .recompute = Recompute::cheap,
             .compute = core::DType::bf16},
        Case{.name = "scaled_experts",
             .layer = {.has_experts = true},
             .experts = {.num = 6, .top_k = 2, .d_ff = 48, .d_shared = 80},
             .residual_scale = 0.5},
        Case{.name = "experts_apart_bf16",
             .layer = {.has_experts = true},
             .experts = experts_apart,
             .compute = core::DType::bf16},
        Case{.name = "sinks", .has_sinks = true},
        Case{.name = "sinks_window_bf16",
             .layer = {.window = 16},
             .compute = core::DType::bf16,
             .has_sinks = true},
        Case{.name = "shared_expert",
             .layer = {.has_experts = true},
             .experts = {.num = 6, .top_k = 2, .d_ff = 48, .d_shared = 80}},
        Case{.name = "gated_shared_expert",
             .layer = {.has_experts = true},
             .experts = {.num = 6, .top_k = 2, .d_ff = 48, .d_shared = 80, .gates_shared = true}},
        Case{.name = "layer_norm", .norm_kind = {.is_centred = true, .has_bias = true}},
        Case{.name = "layer_norm_bf16",
             .compute = core::DType::bf16,
             .norm_kind = {.is_centred = true}},
        Case{.name = "norm_above_one", .norm_kind = {.weight_offset = 1}},
        Case{.name = "turned_before_norms",
             .layer = {.head_norm = HeadNorm::weighted, .turns_before_norm = true}},
        Case{.name = "gelu", .activation = {Activation::Function::gelu_tanh}},
        Case{.name = "gelu_recomputed",
             .recompute = Recompute::cheap,
             .activation = {Activation::Function::gelu_tanh}},
        Case{.name = "relu_squared", .activation = {Activation::Function::relu_squared, false}},
        Case{.name = "xielu_bf16",
             .compute = core::DType::bf16,
             .activation = {Activation::Function::xielu, false}},
        Case{.name = "parallel", .is_parallel = true}, Case{.name = "softcap", .score_softcap = 20},
        Case{.name = "gated", .gates_attention = true},
        Case{.name = "gated_bf16", .compute = core::DType::bf16, .gates_attention = true},
        Case{.name = "heads_together", .qkv_bias = true, .sorts_heads = true},
        Case{.name = "heads_together_bf16", .compute = core::DType::bf16, .sorts_heads = true},
        Case{.name = "learned_positions", .learns_positions = true},
        Case{.name = "learned_positions_recomputed",
             .recompute = Recompute::cheap,
             .compute = core::DType::bf16,
             .learns_positions = true},
        Case{.name = "values_of_keys",
             .layer = {.head_norm = HeadNorm::weighted,
                       .head_size = 24,
                       .num_kv_heads = 1,
                       .reads_keys = true},
             .norms_values = true},
        Case{.name = "values_normed_bf16",
             .layer = {.head_norm = HeadNorm::weighted},
             .compute = core::DType::bf16,
             .norms_values = true},
        Case{.name = "delta_rule", .layer = {.has_delta_rule = true}},
        Case{.name = "delta_rule_bf16",
             .layer = {.has_delta_rule = true},
             .compute = core::DType::bf16},
        Case{.name = "states", .layer = {.has_state_space = true}, .states = states},
        Case{.name = "states_alone", .layer = states_alone, .states = states},
        Case{.name = "states_alone_bf16",
             .layer = states_alone,
             .compute = core::DType::bf16,
             .states = states},
        Case{.name = "attention_alone", .layer = {.has_feed_forward_half = false}},
        Case{.name = "feed_forward_alone",
             .layer = {.has_attention_half = false},
             .activation = no_gate},
        Case{.name = "experts_alone",
             .layer = experts_alone,
             .experts = experts_without_gate,
             .activation = no_gate},
        Case{.name = "experts_alone_recomputed_bf16",
             .layer = experts_alone,
             .experts = experts_without_gate,
             .recompute = Recompute::cheap,
             .compute = core::DType::bf16,
             .activation = no_gate},
        Case{.name = "latents", .latents = short_values},
        Case{.name = "latents_bf16", .compute = core::DType::bf16, .latents = short_values},
        Case{.name = "latents_recomputed", .recompute = Recompute::cheap, .latents = short_values},
        Case{.name = "latents_low_rank", .rank = 4, .latents = short_values},
        Case{.name = "latents_of_keys", .latents = long_values},
        Case{.name = "latents_of_keys_bf16",
             .recompute = Recompute::cheap,
             .compute = core::DType::bf16,
             .latents = long_values},
        Case{.name = "low_rank", .rank = 4},
        Case{.name = "low_rank_recomputed", .rank = 4, .recompute = Recompute::cheap},
        Case{.name = "factors", .has_factors = true},
        Case{.name = "factors_mixed", .has_factors = true, .are_mixed = true},
        Case{.name = "factors_recomputed", .has_factors = true, .recompute = Recompute::cheap},
        Case{.name = "magnitudes", .rank = 4, .has_magnitudes = true},
        Case{.name = "starts", .rank = 4, .has_starts = true},
        Case{.name = "experts_low_rank",
             .layer = {.has_experts = true},
             .experts = {.num = 6, .top_k = 2, .d_ff = 48},
             .rank = 4,
             .adapts_experts = true},
        Case{.name = "biased_experts_low_rank_bf16",
             .layer = {.has_experts = true},
             .experts = biased_experts,
             .rank = 2,
             .adapts_experts = true,
             .recompute = Recompute::cheap,
             .compute = core::DType::bf16}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

}  // namespace
}  // namespace finetune::model::cost_test
