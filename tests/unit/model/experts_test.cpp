// SPDX-License-Identifier: Apache-2.0
// Experts against a composition that lets every expert see every token, differentiated by autograd.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>

#include "model/ops.hpp"
#include "model/rope.hpp"
#include "support/weights.hpp"

namespace finetune::model::experts_test {
namespace {

using tests::expect_within;
using tests::normal;
using tests::TinyWeights;

constexpr std::int64_t tokens = 11, width = 6, hidden = 5, num_experts = 4;

Experts experts(std::int64_t top_k, bool normalizes, bool scales_input) {
  return {.num = num_experts,
          .top_k = top_k,
          .d_ff = hidden,
          .normalizes = normalizes,
          .scales_input = scales_input};
}

/// As DeepSeek 3 and GLM 4.5 choose them.
Experts apart(std::int64_t top_k, bool normalizes, std::int64_t num_groups = 1) {
  Experts e = experts(top_k, normalizes, false);
  e.scores_apart = e.corrects_choice = true;
  e.num_groups = num_groups;
  e.weight_scale = 2.5;
  return e;
}

/// As ERNIE 4.5 chooses them.
Experts of_corrected_softmax() {
  Experts e = experts(2, true, false);
  e.corrects_choice = true;
  return e;
}

/// As DeepSeek 2 chooses them.
Experts of_softmax_groups() {
  Experts e = experts(2, false, false);
  e.num_groups = 2;
  e.summed_of_group = 1;
  e.weight_scale = 16;
  return e;
}

at::Tensor correction() {
  return normal({num_experts}, 7) * 0.5;
}

/// `weights` and behind them the correction, if there is one; and their rows.
std::pair<std::vector<at::Tensor>, ExpertRows> with_correction(const Experts& e,
                                                               std::vector<at::Tensor> weights,
                                                               ExpertRows rows) {
  if (!e.corrects_choice) return {weights, rows};
  rows.correction = static_cast<int>(weights.size());
  weights.push_back(correction());
  return {weights, rows};
}

std::vector<at::Tensor> weights_in(ExpertTensors tensors) {
  return tests::expert_weights(tensors, normal({num_experts, width}, 1), hidden);
}
std::vector<at::Tensor> separate_weights() {
  return weights_in(ExpertTensors::separate);
}
const ExpertRows separate_rows = tests::expert_rows(ExpertTensors::separate);
const ExpertRows fused_rows = tests::expert_rows(ExpertTensors::fused);

/// Two samples of 4 and 5 tokens, and two of padding.
struct Samples {
  Balance balance;
  Sequence sequence;

  explicit Samples(double scale) {
    balance.scale = scale;
    balance.sample_N = at::tensor({0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2}, at::kLong);
    balance.num_samples = 2;
    balance.sum = at::zeros({}, at::kDouble);
    sequence.length = tokens;
    sequence.balance = scale != 0 ? &balance : nullptr;
  }
};

struct Reference {
  at::Tensor y, balance;
};

/// The experts of each token by scores, with the correction if there is one, a token and a group at
/// a time.
at::Tensor chosen_in_groups(const at::Tensor& scores, const Experts& e) {
  const std::int64_t size = e.num / e.num_groups;
  const at::Tensor corrected = e.corrects_choice ? scores.detach() + correction() : scores.detach();
  std::vector<at::Tensor> all;
  for (std::int64_t token = 0; token < scores.size(0); ++token) {
    at::Tensor of_token = corrected[token].clone();
    std::vector<std::pair<float, std::int64_t>> groups;
    for (std::int64_t g = 0; g < e.num_groups; ++g) {
      const at::Tensor falling = std::get<0>(of_token.narrow(0, g * size, size).sort(0, true));
      groups.emplace_back(
          falling.narrow(0, 0, std::min(e.summed_of_group, size)).sum().item<float>(), g);
    }
    std::ranges::sort(groups, std::greater());
    for (std::int64_t i = e.top_k_groups; i < e.num_groups; ++i)
      of_token.narrow(0, groups[static_cast<std::size_t>(i)].second * size, size).fill_(-100);
    all.push_back(std::get<1>(of_token.topk(e.top_k)));
  }
  return at::stack(all);
}

/// As the papers write it, with every weight a leaf.
Reference reference(const at::Tensor& x, const std::vector<at::Tensor>& w, const Experts& e) {
  const at::Tensor logits = at::mm(x, w[0].t());
  const at::Tensor p = logits.softmax(1);
  const at::Tensor scores = e.scales_input ? logits : e.scores_apart ? logits.sigmoid() : p;
  const at::Tensor chosen = e.corrects_choice || e.num_groups > 1
                                ? chosen_in_groups(scores, e)
                                : std::get<1>(scores.topk(e.top_k, 1));
  const at::Tensor top = scores.gather(1, chosen);
  at::Tensor weight = e.scales_input ? top.sigmoid() : top;
  if (!e.scales_input && e.normalizes) weight = weight / weight.sum(1, true);
  weight = weight * e.weight_scale;
  at::Tensor y = at::zeros_like(x);
  for (std::int64_t i = 0; i < e.num; ++i) {
    const at::Tensor own = (weight * chosen.eq(i)).sum(1, true);
    const at::Tensor input = e.scales_input ? x * own : x;
    const auto halves = at::mm(input, w[static_cast<std::size_t>(1 + 2 * i)].t()).chunk(2, 1);
    const at::Tensor out =
        at::mm(at::silu(halves[0]) * halves[1], w[static_cast<std::size_t>(2 + 2 * i)].t());
    y = y + (e.scales_input ? out : out * own);
  }
  // Each sample on its own: experts times (share in choices . mean probability), times its tokens.
  at::Tensor balance = at::zeros({});
  for (const auto& [begin, length] : {std::pair(0, 4), std::pair(4, 5)}) {
    const at::Tensor mean = p.narrow(0, begin, length).mean(0);
    const at::Tensor share =
        at::one_hot(chosen.narrow(0, begin, length), e.num).to(at::kFloat).sum(0).sum(0) /
        static_cast<double>(length);
    balance = balance + static_cast<double>(e.num * length) * (share * mean).sum();
  }
  return {y, balance};
}

struct Variant {
  const char* name;
  Experts experts;
  double balance;
};

class ExpertsOf : public testing::TestWithParam<Variant> {};

TEST_P(ExpertsOf, AreTheCompositionWithAllGradients) {
  const Variant v = GetParam();
  const Experts& e = v.experts;
  const at::Tensor x = normal({tokens, width}, 3).set_requires_grad(true);
  const at::Tensor d_y = normal({tokens, width}, 4);

  std::vector<at::Tensor> leaves{x};
  std::vector<at::Tensor> leaf_weights;
  for (const at::Tensor& weight : separate_weights()) {
    leaf_weights.push_back(weight.clone().set_requires_grad(true));
    leaves.push_back(leaf_weights.back());
  }
  const Reference expected = reference(x, leaf_weights, e);
  const at::Tensor objective = (expected.y * d_y).sum() + v.balance * expected.balance;
  const auto gradients = torch::autograd::grad({objective}, leaves, {}, {}, false, true);

  for (const Path path : {Path::kernels, Path::composed}) {
    for (const Recompute recompute : {Recompute::nothing, Recompute::cheap}) {
      const auto [all, rows] = with_correction(e, separate_weights(), separate_rows);
      TinyWeights weights(all);
      Ops ops(weights, path, recompute);
      Samples samples(v.balance);
      const at::Tensor y = ops.experts(x, {}, rows, e, samples.sequence);
      expect_within(y, expected.y, 1e-5);
      const at::Tensor d_x = torch::autograd::grad({y}, {x}, {d_y})[0];
      expect_within(d_x, gradients[0], 2e-5);
      for (std::size_t row = 0; row < leaf_weights.size(); ++row) {
        if (!weights.is_written(static_cast<int>(row))) {
          EXPECT_EQ(gradients[row + 1].abs().max().item<float>(), 0) << row;
          continue;
        }
        expect_within(weights.gradient_of(static_cast<int>(row)), gradients[row + 1], 2e-5);
      }
      if (v.balance != 0) {
        EXPECT_NEAR(samples.balance.sum.item<double>(), expected.balance.item<double>(), 1e-5);
      }
    }
  }
}

TEST_P(ExpertsOf, AreTheSameInOneTensor) {
  const Variant v = GetParam();
  const Experts& e = v.experts;
  const at::Tensor x = normal({tokens, width}, 3).set_requires_grad(true);
  const at::Tensor d_y = normal({tokens, width}, 4);
  const auto [of_each, rows_of_each] = with_correction(e, separate_weights(), separate_rows);
  const auto [of_all, rows_of_all] =
      with_correction(e, weights_in(ExpertTensors::fused), fused_rows);
  TinyWeights separate(of_each), fused(of_all);
  Ops of_separate(separate), of_fused(fused);
  for (int pass = 0; pass < 2; ++pass) {  // the second adds to the gradients of the first
    Samples samples(v.balance);
    const at::Tensor a = of_separate.experts(x, {}, rows_of_each, e, samples.sequence);
    const at::Tensor b = of_fused.experts(x, {}, rows_of_all, e, samples.sequence);
    expect_within(b, a, 1e-6);
    expect_within(torch::autograd::grad({b}, {x}, {d_y})[0],
                  torch::autograd::grad({a}, {x}, {d_y})[0], 1e-5);
  }
  for (std::int64_t i = 0; i < num_experts; ++i) {
    const int row = static_cast<int>(1 + 2 * i);
    const at::Tensor of_one = fused.gradient_of(1).select(0, i);
    if (separate.is_written(row)) {
      expect_within(of_one.t(), separate.gradient_of(row), 1e-5);
    } else {
      EXPECT_EQ(of_one.abs().max().item<float>(), 0);
    }
  }
}

TEST_P(ExpertsOf, AreTheSameInBf16WidenedToFp32) {
  const Variant v = GetParam();
  const Experts& e = v.experts;
  // Values that bf16 has: routing must not change by rounding.
  const auto round = [](const at::Tensor& x) { return x.to(at::kBFloat16); };
  std::vector<at::Tensor> narrow, wide;
  const auto [all, rows] = with_correction(e, weights_in(ExpertTensors::fused), fused_rows);
  for (const at::Tensor& weight : all) {
    narrow.push_back(round(weight));
    wide.push_back(round(weight).to(at::kFloat));
  }
  TinyWeights of_narrow(narrow), of_wide(wide);
  const at::Tensor x = round(normal({tokens, width}, 3)), d_y = round(normal({tokens, width}, 4));
  const auto pass = [&, &rows = rows](TinyWeights& weights, at::ScalarType dtype) {
    Samples samples(v.balance);
    Ops ops(weights, Path::widened);
    const at::Tensor leaf = x.to(dtype).set_requires_grad(true);
    const at::Tensor y = ops.experts(leaf, {}, rows, e, samples.sequence);
    return torch::autograd::grad({y}, {leaf}, {d_y.to(dtype)})[0];
  };
  expect_within(pass(of_narrow, at::kBFloat16), pass(of_wide, at::kFloat), 0.05);
  expect_within(of_narrow.gradient_of(1), of_wide.gradient_of(1), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Routings, ExpertsOf,
                         testing::Values(Variant{"Mixtral", experts(2, true, false), 0},
                                         Variant{"Qwen", experts(2, false, false), 0},
                                         Variant{"Llama4", experts(1, false, true), 0},
                                         Variant{"Glm", apart(2, true), 0},
                                         Variant{"Grouped", apart(1, false, 2), 0},
                                         Variant{"SoftmaxGroups", of_softmax_groups(), 0},
                                         Variant{"Ernie", of_corrected_softmax(), 0},
                                         Variant{"BalancedErnie", of_corrected_softmax(), 0.3},
                                         Variant{"BalancedGroups", apart(2, true, 2), 0.3},
                                         Variant{"Balanced", experts(2, true, false), 0.3},
                                         Variant{"BalancedSigmoid", experts(2, false, true), 0.3}),
                         [](const auto& info) { return std::string(info.param.name); });

/// transformers' load_balancing_loss_func: all layers' tokens as one batch, padding masked.
at::Tensor loss_of_transformers(const std::vector<at::Tensor>& layer_logits, std::int64_t top_k) {
  std::vector<at::Tensor> without_padding;
  for (const at::Tensor& logits : layer_logits)
    without_padding.push_back(logits.narrow(0, 0, 9));
  const at::Tensor p = at::cat(without_padding).softmax(1);
  const at::Tensor chosen = std::get<1>(p.topk(top_k, 1));
  const at::Tensor share_kE = at::one_hot(chosen, num_experts).to(at::kFloat).mean(0);
  return (share_kE * p.mean(0).unsqueeze(0)).sum() * static_cast<double>(num_experts);
}

TEST(BalanceOverAMicroBatch, IsTheLossOfTransformersWithItsGradients) {
  const Experts e = experts(2, true, false);
  constexpr double coefficient = 0.3;
  std::vector<at::Tensor> xs, routers, logits, leaves;
  std::vector<std::vector<at::Tensor>> weights_of_layers;
  for (std::uint64_t layer = 0; layer < 2; ++layer) {
    weights_of_layers.push_back(separate_weights());
    weights_of_layers.back()[0] = normal({num_experts, width}, 40 + layer);
    xs.push_back(normal({tokens, width}, 50 + layer).set_requires_grad(true));
    routers.push_back(weights_of_layers.back()[0].clone().set_requires_grad(true));
    logits.push_back(at::mm(xs.back(), routers.back().t()));
    leaves.insert(leaves.end(), {xs.back(), routers.back()});
  }
  const at::Tensor expected = loss_of_transformers(logits, e.top_k);
  const auto gradients = torch::autograd::grad({coefficient * expected}, leaves);

  Samples samples(coefficient / 18);  // the mean over 9 tokens of 2 layers
  samples.balance.choices_E = at::zeros({num_experts});
  samples.balance.num_choosing = 18;
  TinyWeights first(weights_of_layers[0]), second(weights_of_layers[1]);
  Ops ops_first(first), ops_second(second);
  const at::Tensor y0 = ops_first.experts(xs[0], {}, separate_rows, e, samples.sequence);
  const at::Tensor y1 = ops_second.experts(xs[1], {}, separate_rows, e, samples.sequence);
  samples.balance.is_counting = false;
  ops_first.experts(xs[0].detach(), {}, separate_rows, e, samples.sequence);  // as when recomputed
  const at::Tensor nothing = at::zeros_like(y0);  // so that the term alone has gradients
  expect_within(torch::autograd::grad({y1}, {xs[1]}, {nothing})[0], gradients[2], 1e-6);
  expect_within(torch::autograd::grad({y0}, {xs[0]}, {nothing})[0], gradients[0], 1e-6);
  expect_within(first.gradient_of(0), gradients[1], 1e-6);
  expect_within(second.gradient_of(0), gradients[3], 1e-6);
  EXPECT_NEAR(samples.balance.sum.item<double>() / 18, expected.item<double>(), 1e-6);
}

TEST(ExpertsThatNobodyChose, HaveNoGradient) {
  auto all = separate_weights();
  all[0].zero_();
  all[0].select(0, 2).fill_(5);  // positive inputs choose expert 2
  TinyWeights weights(all);
  Ops ops(weights);
  const at::Tensor x = normal({tokens, width}, 3).abs().set_requires_grad(true);
  const at::Tensor y =
      ops.experts(x, {}, separate_rows, experts(1, true, false), Samples(0).sequence);
  torch::autograd::grad({y}, {x}, {at::ones_like(y)});
  for (int e = 0; e < num_experts; ++e)
    EXPECT_EQ(weights.is_written(1 + 2 * e), e == 2) << e;
}

}  // namespace
}  // namespace finetune::model::experts_test
