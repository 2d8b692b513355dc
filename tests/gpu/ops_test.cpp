// SPDX-License-Identifier: Apache-2.0
// Every op of a model but attention, forward and backward, on the device as on the CPU.
#include <tuple>

#include "gpu/as_on_cpu.hpp"
#include "model/rope.hpp"

namespace finetune::tests::gpu::ops_test {
namespace {

using model::Ops;
using model::Recompute;

constexpr std::int64_t tokens = 50, width = 72, hidden = 136, vocabulary = 301;

struct OpCase {
  const char* name;
  std::vector<std::vector<std::int64_t>> rows;  ///< shapes of the weights
  std::function<void(Computation&, Ops&)> run;
  Recompute recompute = Recompute::nothing;

  friend void PrintTo(const OpCase& op, std::ostream* to) { *to << op.name; }
};

/// Rows of neighbours that a product reads as one are one tensor here.
std::vector<at::Tensor> weights_of(const Computation& c, const OpCase& op) {
  std::vector<at::Tensor> weights;
  for (std::size_t row = 0; row < op.rows.size(); ++row)
    weights.push_back(c.normal(op.rows[row], 500 + row, 0.2));
  return weights;
}

const model::AttentionShape heads{.num_heads = 3, .num_kv_heads = 1, .head_size = 16};

/// On the host. Every seventh is none; there are more tokens than a chunk of the head has.
at::Tensor labels(const Computation& c, std::int64_t count) {
  at::Tensor ids = c.integers(vocabulary, count, 8).cpu();
  ids.slice(0, 0, count, 7).fill_(-100);
  return ids;
}

/// Experts whose routing no rounding changes: every token has two channels that stand out.
at::Tensor routed(const Computation& c, std::int64_t num_experts) {
  at::Tensor x = tests::normal({tokens, width}, 3);
  x.narrow(1, 0, num_experts).zero_();
  for (std::int64_t n = 0; n < tokens; ++n) {
    x[n][n % num_experts] = 8;
    x[n][(n * 3 + 1) % num_experts == n % num_experts ? (n + 1) % num_experts
                                                      : (n * 3 + 1) % num_experts] = 4;
  }
  return c.number(x).set_requires_grad(true);
}

void experts(Computation& c, Ops&, const model::Experts& e, bool is_fused) {
  const at::Tensor router = at::eye(e.num, width) + tests::normal({e.num, width}, 1) * 0.02;
  std::vector<at::Tensor> all{c.number(router)};
  if (is_fused) {
    all.push_back(c.normal({e.num, width, 2 * e.d_ff}, 10, 0.2));
    all.push_back(c.normal({e.num, e.d_ff, width}, 11, 0.2));
  } else {
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(e.num); ++i) {
      all.push_back(c.normal({2 * e.d_ff, width}, 20 + i, 0.2));
      all.push_back(c.normal({width, e.d_ff}, 40 + i, 0.2));
    }
  }
  model::ExpertRows rows{.router = 0, .gate_up = {1, 1}, .down = 2, .stride = is_fused ? 0 : 2};
  if (e.has_biases) {
    rows.router_bias = 3;
    rows.gate_up_bias = 4;
    rows.down_bias = 5;
    all.push_back(c.normal({e.num}, 12, 0.02));
    all.push_back(c.normal({e.num, 2 * e.d_ff}, 13, 0.5));
    all.push_back(c.normal({e.num, width}, 14, 0.5));
  }
  const int num_rows = static_cast<int>(all.size());
  TinyWeights weights(std::move(all));
  Ops ops(weights);
  model::Balance balance;
  balance.scale = 0.3;
  balance.sample_N = at::arange(tokens, at::kLong).div(30, "floor").to(c.device());
  balance.num_samples = 2;
  balance.sum = at::zeros({}, at::TensorOptions(at::kDouble).device(c.device()));
  model::Sequence sequence;
  sequence.length = tokens;
  sequence.balance = &balance;
  const at::Tensor x = routed(c, e.num);
  const at::Tensor y = ops.experts(x, {}, rows, e, sequence);
  c.keep_with_gradient(y, x);
  c.keep("balance", balance.sum);
  c.keep_gradients(weights, num_rows);
}

OpCase expert_case(const char* name, const model::Experts& e, bool is_fused) {
  return {name, {}, [=](Computation& c, Ops& ops) { experts(c, ops, e, is_fused); }};
}

std::vector<OpCase> cases() {
  const auto linear = [](Computation& c, Ops& ops) {
    const at::Tensor x = c.leaf({tokens, width}, 1);
    c.keep_with_gradient(ops.linear(x, {0, 1}), x);
  };
  const auto norm_linear = [](Computation& c, Ops& ops) {
    const at::Tensor x = c.leaf({tokens, width}, 1);
    c.keep_with_gradient(ops.norm_linear(x, {{0}, 1e-5}, {1, 1}), x);
  };
  const auto add_norm_linear = [](Computation& c, Ops& ops) {
    const at::Tensor x = c.leaf({tokens, width}, 1), residual = c.normal({tokens, width}, 2);
    const auto [h, y] = ops.add_norm_linear(x, residual, {{0}, 1e-5}, {1, 1});
    c.keep("h", h);
    c.keep_with_gradient(y, x);
  };
  const auto swiglu_linear = [](Computation& c, Ops& ops) {
    const at::Tensor x = c.leaf({tokens, 2 * hidden}, 1);
    c.keep_with_gradient(ops.activated_linear(x, {}, {}, {0, 1}), x);
  };
  return {
      {"linear", {{hidden, width}}, linear},
      {"embedding",
       {{vocabulary, width}},
       [](Computation& c, Ops& ops) {
         // Ids that come several times: their gradients meet in one row.
         const at::Tensor ids = c.integers(20, tokens, 7);
         c.keep("y", ops.embedding(ids, 0));
         ops.embedding_backward(ids, c.normal({tokens, width}, 2), 0);
       }},
      {"rms_norm",
       {{width}},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, width}, 1);
         c.keep_with_gradient(ops.norm(x, {{0}, 1e-5}), x);
       }},
      {"add_rms_norm",
       {{width}},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, width}, 1), residual = c.normal({tokens, width}, 2);
         const auto [h, y] = ops.add_norm(x, residual, {{0}, 1e-5});
         c.keep("h", h);
         c.keep_with_gradient(h + y, x);
       }},
      {"norm_above_one",
       {{width}},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, width}, 1);
         c.keep_with_gradient(ops.norm(x, {{0}, 1e-5, {.weight_offset = 1}}), x);
       }},
      {"layer_norm",
       {{width}, {width}},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, width}, 1);
         c.keep_with_gradient(ops.norm(x, {{0, 1}, 1e-5, {.is_centred = true, .has_bias = true}}),
                              x);
       }},
      {"norm_linear", {{width}, {hidden, width}}, norm_linear},
      {"norm_linear_recomputed", {{width}, {hidden, width}}, norm_linear, Recompute::cheap},
      {"add_norm_linear", {{width}, {hidden, width}}, add_norm_linear},
      {"add_norm_linear_recomputed", {{width}, {hidden, width}}, add_norm_linear, Recompute::cheap},
      {"add_bias",
       {{width}},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, width}, 1);
         c.keep_with_gradient(ops.add_bias(x.clone(), {0, 1}), x);
       }},
      {"head_norm",
       {{16}, {16}},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, heads.num_channels()}, 1);
         c.keep_with_gradient(ops.head_norm(x, heads, {{{0}, 1e-5}, {{1}, 1e-5}}), x);
       }},
      {"head_norm_weightless",
       {},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, heads.num_channels()}, 1);
         c.keep_with_gradient(ops.head_norm(x, heads, {{{-1}, 1e-5}, {{-1}, 1e-5}}), x);
       }},
      {"tune_temperature",
       {},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, heads.num_channels()}, 1);
         const auto sequence = model::make_sequence(rotary(16, 100), 2, tokens / 2, c.device());
         c.keep_with_gradient(
             ops.tune_temperature(x.clone(), heads, sequence, {.scale = 0.3, .floor = 5}), x);
       }},
      {"swiglu",
       {},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, 2 * hidden}, 1);
         c.keep_with_gradient(ops.activate(x, {}), x);
       }},
      {"gelu",
       {},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, 2 * hidden}, 1);
         c.keep_with_gradient(ops.activate(x, {model::Activation::Function::gelu_tanh}), x);
       }},
      {"relu_squared",
       {},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, hidden}, 1);
         c.keep_with_gradient(ops.activate(x, {model::Activation::Function::relu_squared, false}),
                              x);
       }},
      {"swiglu_linear", {{width, hidden}}, swiglu_linear},
      {"swiglu_linear_recomputed", {{width, hidden}}, swiglu_linear, Recompute::cheap},
      {"add",
       {},
       [](Computation& c, Ops& ops) {
         const at::Tensor x = c.leaf({tokens, width}, 1);
         c.keep_with_gradient(ops.add(x, c.normal({tokens, width}, 2)), x);
       }},
      {"logits",
       {{vocabulary, width}},
       [](Computation& c, Ops& ops) {
         const at::Tensor logits = ops.logits(c.normal({3, width}, 1), 0);
         EXPECT_EQ(logits.scalar_type(), at::kFloat);
         c.keep("logits", logits);
       }},
      {"label_scores",
       {{vocabulary, width}},
       [](Computation& c, Ops& ops) {
         const auto scores = ops.label_scores(c.normal({1100, width}, 1), labels(c, 1100), 0);
         c.keep("log_prob", scores.log_prob_N);
       }},
      {"pull_back_label_scores",
       {{vocabulary, width}},
       [](Computation& c, Ops& ops) {
         const at::Tensor d = tests::normal({1100}, 3).to(c.device());
         at::Tensor d_x;
         const auto scores =
             ops.pull_back_label_scores(c.normal({1100, width}, 1), labels(c, 1100), 0, d, d_x);
         c.keep("log_prob", scores.log_prob_N);
         c.keep("dx", d_x);
       }},
      expert_case("experts", {.num = 8, .top_k = 2, .d_ff = 40, .balance = 0.3}, false),
      expert_case("experts_fused", {.num = 8, .top_k = 2, .d_ff = 40, .normalizes = false}, true),
      expert_case("experts_biased",
                  {.num = 8,
                   .top_k = 2,
                   .d_ff = 40,
                   .has_biases = true,
                   .activation = {.function = model::Activation::Function::clamped,
                                  .takes_turns = true,
                                  .slope = 1.702,
                                  .limit = 7}},
                  true),
      expert_case("experts_on_the_input", {.num = 4, .top_k = 1, .d_ff = 40, .scales_input = true},
                  true),
  };
}

class Op : public testing::TestWithParam<std::tuple<OpCase, at::ScalarType>> {};

TEST_P(Op, ComputesAsOnTheCpu) {
  const auto& [op, dtype] = GetParam();
  expect_as_on_cpu(dtype, [&op = op](Computation& c) {
    TinyWeights weights(weights_of(c, op));
    Ops ops(weights, model::Path::kernels, op.recompute);
    op.run(c, ops);
    c.keep_gradients(weights, static_cast<int>(op.rows.size()));
  });
}

TEST_P(Op, GivesTheSameBitsTwice) {
  const auto& [op, dtype] = GetParam();
  std::vector<Computation> runs(2, Computation(device(), dtype, dtype));
  for (Computation& c : runs) {
    TinyWeights weights(weights_of(c, op));
    Ops ops(weights, model::Path::kernels, op.recompute);
    op.run(c, ops);
    c.keep_gradients(weights, static_cast<int>(op.rows.size()));
  }
  for (std::size_t i = 0; i < runs[0].results().size(); ++i)
    EXPECT_TRUE(at::equal(runs[0].results()[i].second, runs[1].results()[i].second))
        << runs[0].results()[i].first;
}

INSTANTIATE_TEST_SUITE_P(All, Op, testing::Combine(testing::ValuesIn(cases()), all_dtypes),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  name_of(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace finetune::tests::gpu::ops_test
