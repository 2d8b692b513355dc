// SPDX-License-Identifier: Apache-2.0
// What blocks keep and hold that read or write beside the stream, or have experts beside a dense
// part: plans count it, allocations tell it.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ostream>
#include <string>
#include <vector>

#include "model/block.hpp"
#include "model/cost/cost_ops.hpp"
#include "model/layout.hpp"
#include "model/ops.hpp"
#include "model/rope.hpp"
#include "support/allocations.hpp"
#include "support/weights.hpp"
#include "unit/model/cost_parts.hpp"

namespace finetune::model::side_cost_test {
namespace {

using cost_test::batch;
using cost_test::Bytes;
using cost_test::expect_counted;
using cost_test::length;
using cost_test::tokens;

/// Block `i_layer` of a small Gemma 4: the last two layers read the keys of the two before them.
struct Case {
  std::string name;
  std::int64_t i_layer = 0;
  bool has_experts = false;
  Recompute recompute = Recompute::nothing;
  core::DType compute = core::DType::f32;
};

void PrintTo(const Case& of, std::ostream* out) {
  *out << of.name;
}

Architecture architecture(const Case& of) {
  Architecture a = tests::rotary({4, 64, 4, 2, 16, 152, 40});
  a.norms = Norms::around;
  a.norms_values = a.scales_blocks = true;
  a.activation.function = Activation::Function::gelu_tanh;
  a.layers.assign(4, {.has_experts = of.has_experts, .head_norm = HeadNorm::weighted});
  if (of.has_experts) {
    a.experts = {.num = 6, .top_k = 2, .d_ff = 48, .are_beside_dense = true};
    a.experts.activation = a.activation;
    return a;
  }
  a.layer_input_size = 24;
  for (const std::int64_t i : {0, 2})
    a.layers[static_cast<std::size_t>(i)].window = 16;
  a.layers[2].keys_of = 0;
  a.layers[3].keys_of = 1;
  a.layers[2].d_ff = a.layers[3].d_ff = 304;
  return a;
}

ParameterTable table_of(const Case& of) {
  TensorNames names;
  names.fused_gate_up = "experts.gate_up_proj";
  names.fused_down = "experts.down_proj";
  names.fused_are_by_outputs = true;
  return lay_out(architecture(of), names);
}

Bytes measured(const Case& of) {
  const Architecture a = architecture(of);
  const ParameterTable table = table_of(of);
  const at::ScalarType dtype = of.compute == core::DType::f32 ? at::kFloat : at::kBFloat16;
  tests::TableWeights weights(table, dtype);
  Ops ops(weights, Path::widened, of.recompute);
  const Sequence sequence = make_sequence(a, batch, length);
  const SideLayout layout = lay_out_sides(a);
  const auto ones = [&](std::int64_t channels) {
    return at::ones({tokens, channels}, at::TensorOptions(dtype)).set_requires_grad(true);
  };
  const at::Tensor dy = tests::normal({tokens, a.d_model}, 98).to(dtype);
  const auto run = [&] {
    const tests::Allocations allocations;
    std::vector<at::Tensor> inputs{ones(a.d_model)}, outputs, gradients;
    Sides<at::Tensor> sides{.layout = layout.block(of.i_layer)};
    std::int64_t outside = 0;  // held by whoever runs the block
    for (const Side side : all_sides) {
      if (const SideSlice& slice = sides.layout.read[side]; slice.exists())
        inputs.push_back(sides.read[side] = ones(slice.size));
    }
    outputs.push_back(decoder_block(ops, a,
                                    table.decoder.blocks[static_cast<std::size_t>(of.i_layer)],
                                    inputs.front(), sequence, of.i_layer, sides));
    gradients.push_back(dy);
    for (const Side side : all_sides) {
      if (!sides.layout.written[side].exists()) continue;
      outputs.push_back(sides.written[side]);
      gradients.push_back(at::ones_like(sides.written[side]));
      outside += static_cast<std::int64_t>(2 * sides.written[side].nbytes());
    }
    for (std::size_t i = 1; i < inputs.size(); ++i)
      outside += static_cast<std::int64_t>(inputs[i].nbytes());
    const auto output = static_cast<std::int64_t>(outputs.front().nbytes());
    const std::int64_t kept = allocations.live_bytes() - output - outside;
    torch::autograd::grad(outputs, inputs, gradients);
    return Bytes{kept, allocations.peak_bytes() + output - kept - outside};
  };
  // The first pass puts weights together.
  run();
  return run();
}

Bytes counted(const Case& of) {
  const ParameterTable table = table_of(of);
  const Architecture a = architecture(of);
  CostOps ops(table, {.compute = of.compute, .recompute = of.recompute});
  const TensorSize x = ops.tensor(tokens, a.d_model);
  Sides<TensorSize> sides{.layout = lay_out_sides(a).block(of.i_layer)};
  for (const Side side : all_sides)
    if (const SideSlice& slice = sides.layout.read[side]; slice.exists())
      sides.read[side] = ops.tensor(tokens, slice.size);
  const TensorSize y =
      decoder_block(ops, a, table.decoder.blocks[static_cast<std::size_t>(of.i_layer)], x,
                    SequenceSize{batch, length}, of.i_layer, sides);
  return {ops.tape().kept_bytes(), ops.tape().worst(x, y).total()};
}

class SideCost : public testing::TestWithParam<Case> {};

TEST_P(SideCost, IsWhatABlockKeepsAndHolds) {
  expect_counted(measured(GetParam()), counted(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    Blocks, SideCost,
    testing::Values(Case{.name = "first"}, Case{.name = "writes_keys", .i_layer = 1},
                    Case{.name = "reads_keys", .i_layer = 3},
                    Case{.name = "reads_keys_bf16", .i_layer = 2, .compute = core::DType::bf16},
                    Case{.name = "recomputed",
                         .i_layer = 3,
                         .recompute = Recompute::cheap,
                         .compute = core::DType::bf16},
                    Case{.name = "experts", .has_experts = true},
                    Case{
                        .name = "experts_bf16", .has_experts = true, .compute = core::DType::bf16}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace finetune::model::side_cost_test
