// SPDX-License-Identifier: Apache-2.0
// What computes on GPUs in the place of src/kernels: on the device as on the CPU, to the bit where
// the project promises bits (random numbers, masks, roundings, unpacked weights, fixed point).
#include <cmath>
#include <limits>

#include "gpu/as_on_cpu.hpp"
#include "kernels/composed.hpp"
#include "kernels/composed_adamw8bit.hpp"
#include "kernels/composed_ema.hpp"
#include "kernels/composed_lion.hpp"
#include "kernels/composed_packed.hpp"
#include "kernels/detail/composed_rounding.hpp"
#include "kernels/nf4.hpp"
#include "model/activations.hpp"
#include "shard/wire.hpp"

namespace finetune::tests::gpu::compositions_test {
namespace {

namespace composed = kernels::composed;

struct Case {
  const char* name;
  Agree agree;
  Compute run;
  std::vector<at::ScalarType> dtypes = {at::kFloat, at::kBFloat16, at::kHalf};
};

const std::vector<at::ScalarType> fp32_and_bf16 = {at::kFloat, at::kBFloat16};
const std::vector<at::ScalarType> fp32 = {at::kFloat};

constexpr std::int64_t rows = 37, width = 200;
constexpr kernels::RoundingKey rounding_key{0x123456789ABCDEFULL, 700};

at::Tensor random_bytes(const Computation& c, std::int64_t count, std::uint64_t seed) {
  return c.integers(256, count, seed).to(at::kByte);
}

void rms_norm(Computation& c) {
  const at::Tensor x = c.normal({rows, width}, 1), w = c.normal({width}, 2);
  const auto [y, rstd] = composed::rms_norm(x, w, 1e-5);
  c.keep("y", y);
  c.keep("rstd", rstd);
  const auto [dx, dw] = composed::rms_norm_backward(c.normal({rows, width}, 3), x, w, rstd);
  c.keep("dx", dx);
  c.keep("dw", dw);
}

void rope(Computation& c, kernels::Pairs pairs) {
  const composed::RopeHeads heads{
      .query_heads = 3, .key_heads = 2, .head_size = 16, .pairs = pairs};
  const at::Tensor angles = at::arange(40 * 8, at::kFloat).mul_(0.01).view({40, 8});
  for (const auto rotation : {kernels::Rotation::forward, kernels::Rotation::backward}) {
    at::Tensor qkv = c.normal({rows, 7 * 16}, 1);
    composed::rope_(qkv, angles.cos().to(c.device()), angles.sin().to(c.device()),
                    c.integers(40, rows, 2), heads, rotation);
    c.keep("rotated", qkv);
  }
}

void swiglu(Computation& c) {
  const at::Tensor gate_up = c.normal({rows, 2 * width}, 1);
  c.keep("y", composed::swiglu(gate_up));
  c.keep("d", composed::swiglu_backward(c.normal({rows, width}, 2), gate_up));
}

void cross_entropy(Computation& c) {
  const at::Tensor logits = c.normal({rows, 511}, 1, 3), targets = c.integers(511, rows, 2);
  c.keep("losses", composed::cross_entropy(logits, targets).losses);
  const at::Tensor scales = tests::normal({rows}, 3).to(c.device());
  c.keep("gradient", composed::cross_entropy_with_gradient(logits, targets, scales).gradient);
}

void embedding(Computation& c) {
  const at::Tensor ids = c.integers(20, rows, 1);
  c.keep("y", composed::embedding(c.normal({20, width}, 2), ids));
  at::Tensor d = c.normal({20, width}, 3);
  composed::embedding_backward_(d, c.normal({rows, width}, 4), ids);
  c.keep("dweight", d);
}

void attention(Computation& c) {
  const at::Tensor q = c.normal({2, 4, 33, 16}, 1), k = c.normal({2, 2, 33, 16}, 2),
                   v = c.normal({2, 2, 33, 16}, 3);
  const composed::Visible causal{.is_causal = true};
  const auto attended = composed::attention(q, k, v, causal);
  c.keep("out", attended.out);
  c.keep("logsumexp", attended.logsumexp);
  const auto d =
      composed::attention_backward(c.normal({2, 4, 33, 16}, 4), q, k, v, attended, causal);
  c.keep("dq", d.q);
  c.keep("dk", d.k);
  c.keep("dv", d.v);
}

void adamw(Computation& c) {
  at::Tensor weight = c.normal({1003}, 1), first = c.normal({1003}, 2, 0.01),
             second = c.number(tests::normal({1003}, 3).abs() * 1e-4);
  for (std::int64_t step = 3; step < 6; ++step)
    composed::adamw_(weight, first, second,
                     tests::normal({1003}, 50 + static_cast<std::uint64_t>(step)).to(c.device()),
                     {1e-2, 0.9, 0.95, 1e-8, 0.1, step, 0.7});
  c.keep("weight", weight);
  c.keep("exp_avg", first);
  c.keep("exp_avg_sq", second);
}

void lion(Computation& c) {
  at::Tensor weight = c.normal({1003}, 1), first = c.normal({1003}, 2, 0.01);
  for (std::uint64_t step = 3; step < 6; ++step)
    composed::lion_(weight, first, tests::normal({1003}, 50 + step).to(c.device()),
                    {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1});
  c.keep("weight", weight);
  c.keep("exp_avg", first);
}

void ema(Computation& c) {
  const at::Tensor weight = c.normal({1003}, 1);
  at::Tensor mean = tests::normal({1003}, 2).to(c.device());
  for (const double rate : {1.0, 0.25, 0.1})
    composed::move_mean_(mean, weight, rate);
  c.keep("mean", mean);
}

/// Codes may be another's neighbour where rounding decides: what they stand for is compared.
void adamw8bit(Computation& c) {
  constexpr std::int64_t count = 3 * kernels::moment_block + 37, blocks = 4;
  at::Tensor weight = c.normal({count}, 1);
  const auto bytes = [&] {
    return at::zeros({count}, at::TensorOptions(at::kByte).device(c.device()));
  };
  const auto scales = [&] {
    return at::zeros({blocks}, at::TensorOptions(at::kFloat).device(c.device()));
  };
  const composed::Moments8bit moments{bytes(), bytes(), scales(), scales()};
  const std::vector<kernels::DecayRun> runs{{0, 500, 0.1}, {500, count - 500, 0.0}};
  for (std::int64_t step = 1; step < 4; ++step)
    composed::adamw8bit_(
        weight, moments,
        tests::normal({count}, 50 + static_cast<std::uint64_t>(step)).to(c.device()) * 0.01,
        {1e-3, 0.9, 0.95, 1e-8, 0.0, step}, runs);
  c.keep("weight", weight);
  c.keep("exp_avg_scale", moments.exp_avg_scale);
  c.keep("exp_avg_sq_scale", moments.exp_avg_sq_scale);
}

void squared_sum(Computation& c) {
  c.keep("sum", composed::squared_sum(c.normal({1 << 20}, 1)));
}

void nf4(Computation& c, bool nests) {
  constexpr std::int64_t count = 64 * 300 + 31, blocks = 301;
  const at::Tensor codes = random_bytes(c, (count + 1) / 2, 1);
  composed::Nf4Maxima maxima;
  if (nests) {
    maxima.codes = random_bytes(c, blocks, 2);
    maxima.nested = tests::normal({2}, 3).abs().to(c.device());
    maxima.offset = at::tensor({0.37f}).to(c.device());
  } else {
    maxima.values = tests::normal({blocks}, 3).abs().to(c.device());
  }
  c.keep("weights", composed::nf4_dequantize(codes, maxima, count, c.dtype()));
}

void gptq(Computation& c, std::int64_t zero_offset) {
  constexpr std::int64_t inputs = 64, outputs = 40, groups = 4;
  const auto words = [&](std::int64_t n, std::int64_t m, std::uint64_t seed) {
    return (c.integers(1LL << 32, n * m, seed) - (1LL << 31)).to(at::kInt).view({n, m});
  };
  const composed::GptqLayer layer{
      .qweight = words(inputs / 8, outputs, 1),
      .qzeros = words(groups, outputs / 8, 2),
      .scales = (tests::normal({groups, outputs}, 3) * 0.01).to(at::kHalf).to(c.device()),
      .g_idx = c.integers(groups, inputs, 4).to(at::kInt),
      .stored_zero_offset = zero_offset};
  at::Tensor wide =
      at::zeros({inputs, outputs + 8}, at::TensorOptions(c.dtype()).device(c.device()));
  at::Tensor out = wide.narrow(1, 0, outputs);
  composed::gptq_dequantize_(out, layer);
  c.keep("weights", wide);
}

void dropout(Computation& c) {
  const at::Tensor numbers = at::arange((1LL << 40) + 3, (1LL << 40) + 3 + rows, at::kLong);
  for (const double p : {0.05, 0.5})
    c.keep("dropped", composed::dropout(c.normal({rows, 700}, 1), numbers.to(c.device()),
                                        {0x123456789ABCDEFULL, 7}, p));
}

void rounding_bits(Computation& c) {
  const at::Tensor like = at::empty({0}, at::TensorOptions(c.device()));
  for (const std::int64_t first : {0LL, 63LL, (1LL << 40) - 70})
    c.keep("bits", composed::rounding_bits(rounding_key, first, 3000, like));
}

void stochastic_rounding(Computation& c) {
  const at::Tensor wide = tests::normal({3000}, 1).to(c.device());
  c.keep("rounded", composed::rounded_by(wide, c.integers(65536, 3000, 2)));
  at::Tensor stored = at::zeros({3000}, at::TensorOptions(at::kBFloat16).device(c.device()));
  const composed::StoreRounded store(rounding_key, 77, 3000, wide);
  for (const auto bits : {composed::RandomBits::weight, composed::RandomBits::exp_avg,
                          composed::RandomBits::exp_avg_sq}) {
    store(stored, wide, bits);
    c.keep("stored", stored);
  }
}

/// Casts decide about the bits of every narrow float: ties, subnormals, what overflows.
void casts(Computation& c) {
  const at::Tensor bits = at::arange(0, 1LL << 32, 65537 * 7, at::kLong).to(at::kInt);
  const at::Tensor all = bits.view(at::kFloat);
  const at::Tensor finite = all.masked_select(at::isfinite(all)).to(c.device());
  for (const auto narrow : {at::kBFloat16, at::kHalf})
    c.keep("narrow", finite.to(narrow).view(at::kShort));
}

/// As gradients of "topology" become integers on their way.
void fixed_point(Computation& c) {
  const at::Tensor gradient = c.normal({5000}, 1, 1e-3);
  const at::Tensor scaled = gradient.to(at::kDouble).mul_(std::ldexp(1.0, shard::fixed_point_bits));
  at::Tensor sum = at::zeros({5000}, at::TensorOptions(at::kLong).device(c.device()));
  for (int i = 0; i < 3; ++i)
    sum.add_(scaled.clone().round_().to(at::kLong));
  c.keep("integers", sum);
  c.keep("back",
         sum.to(at::kDouble).mul_(std::ldexp(1.0, -shard::fixed_point_bits)).to(at::kFloat));
}

void find_bad(Computation& c) {
  for (const float bad : {9.0f, std::numeric_limits<float>::infinity()}) {
    at::Tensor gradient = at::ones({5000}, at::kFloat);
    gradient[4097] = bad;
    gradient[4500] = 100;
    gradient = gradient.to(c.device());
    const shard::FirstBad found = shard::find_bad(gradient, gradient.to(at::kDouble), 8);
    c.keep("element", found.element);
    EXPECT_FALSE(found.is_good.item<bool>());
  }
}

void model_dropout(Computation& c) {
  const model::DropoutMask mask{.p = 0.1, .seed = 7, .tokens_N = c.integers(1LL << 40, rows, 3)};
  c.keep("dropped", model::dropout(c.normal({rows, 300}, 1), mask, 5, model::Path::kernels));
}

std::vector<Case> cases() {
  using enum Agree;
  return {
      {"rms_norm", within_tolerance, rms_norm},
      {"rope_of_halves", within_tolerance, [](Computation& c) { rope(c, kernels::Pairs::halves); }},
      {"rope_of_neighbours", within_tolerance,
       [](Computation& c) { rope(c, kernels::Pairs::neighbours); }},
      {"swiglu", within_tolerance, swiglu},
      {"cross_entropy", within_tolerance, cross_entropy},
      {"embedding", within_tolerance, embedding},
      {"attention", within_tolerance, attention},
      {"adamw", within_tolerance, adamw, fp32_and_bf16},
      {"lion", within_tolerance, lion, fp32_and_bf16},
      {"adamw8bit", within_tolerance, adamw8bit, fp32_and_bf16},
      {"ema", within_tolerance, ema, fp32_and_bf16},
      {"squared_sum", within_tolerance, squared_sum, fp32},
      {"nf4", to_the_bit, [](Computation& c) { nf4(c, false); }, fp32_and_bf16},
      {"nf4_nested", to_the_bit, [](Computation& c) { nf4(c, true); }, fp32_and_bf16},
      {"gptq", to_the_bit, [](Computation& c) { gptq(c, 1); }, fp32_and_bf16},
      {"gptq_v2", to_the_bit, [](Computation& c) { gptq(c, 0); }, fp32_and_bf16},
      {"dropout", to_the_bit, dropout, fp32_and_bf16},
      {"dropout_of_a_model", to_the_bit, model_dropout, fp32_and_bf16},
      {"rounding_bits", to_the_bit, rounding_bits, fp32},
      {"stochastic_rounding", to_the_bit, stochastic_rounding, fp32},
      {"casts", to_the_bit, casts, fp32},
      {"fixed_point", to_the_bit, fixed_point},
      {"find_bad", to_the_bit, find_bad, fp32},
  };
}

struct OfDtype {
  Case what;
  at::ScalarType dtype;

  friend void PrintTo(const OfDtype& of, std::ostream* to) { *to << of.what.name; }
};

std::vector<OfDtype> of_all_dtypes() {
  std::vector<OfDtype> all;
  for (const Case& what : cases())
    for (const at::ScalarType dtype : what.dtypes)
      all.push_back({what, dtype});
  return all;
}

class Composition : public testing::TestWithParam<OfDtype> {};

TEST_P(Composition, ComputesAsOnTheCpu) {
  expect_as_on_cpu(GetParam().dtype, GetParam().what.run, GetParam().what.agree);
}

INSTANTIATE_TEST_SUITE_P(All, Composition, testing::ValuesIn(of_all_dtypes()),
                         [](const auto& info) {
                           return std::string(info.param.what.name) + "_" +
                                  name_of(info.param.dtype);
                         });

}  // namespace
}  // namespace finetune::tests::gpu::compositions_test
