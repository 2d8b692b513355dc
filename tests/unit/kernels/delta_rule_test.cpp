// SPDX-License-Identifier: Apache-2.0
// The gated delta rule: kernels beside their composition and beside the rule as it is written.
#include "kernels/delta_rule.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/composed_delta_rule.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::delta_rule_test {
namespace {

using composed::DeltaWeights;
using composed::MemoryStretch;

/// Values that are padded, several value heads, runs longer than a chunk and one shorter than the
/// convolution.
constexpr DeltaShape by_part{
    .num_key_heads = 2, .values_per_key = 2, .key_size = 8, .value_size = 12, .taps = 4};
constexpr DeltaShape by_key{.num_key_heads = 3,
                            .values_per_key = 1,
                            .key_size = 16,
                            .value_size = 80,
                            .taps = 2,
                            .is_by_key_head = true};
constexpr std::int64_t tokens = 137;
const std::vector<MemoryStretch> stretches = {{0, 2}, {2, 130}, {133, 4}};  // not row 132

DeltaWeights weights_of(const DeltaShape& s) {
  return {normal<float>({s.channels(), s.taps}, 1) * 0.5, normal<float>({s.num_value_heads()}, 2),
          normal<float>({s.num_value_heads()}, 3), normal<float>({s.value_size}, 4) * 0.2 + 1};
}

template <class T>
DeltaRule<T> arguments(const DeltaShape& shape, const std::vector<MemoryRun>& runs,
                       const at::Tensor& x, const DeltaWeights& w) {
  return {.shape = shape,
          .runs = runs,
          .x = elements<T>(x).data(),
          .taps = elements<float>(w.taps).data(),
          .decay = elements<float>(w.decay).data(),
          .decay_bias = elements<float>(w.decay_bias).data(),
          .norm = elements<float>(w.norm).data()};
}

std::vector<MemoryRun> runs_of(const std::vector<MemoryStretch>& stretches) {
  std::vector<MemoryRun> runs;
  for (const MemoryStretch& each : stretches)
    runs.push_back({each.first, each.count,
                    each.memory.defined() ? elements<float>(each.memory).data() : nullptr});
  return runs;
}

template <class T>
at::Tensor forward(const DeltaShape& shape, const std::vector<MemoryStretch>& stretches,
                   const at::Tensor& x, const DeltaWeights& w) {
  const at::Tensor out = at::zeros({x.size(0), shape.outputs()}, x.options());
  const auto runs = runs_of(stretches);
  DeltaRuleForward<T> args{arguments<T>(shape, runs, x, w)};
  args.out = elements<T>(out).data();
  delta_rule(args);
  return out;
}

/// Of inputs, taps, decay, its bias, and the norm.
template <class T>
std::vector<at::Tensor> backward(const DeltaShape& shape, const at::Tensor& d_out,
                                 const at::Tensor& x, const DeltaWeights& w) {
  const at::Tensor d_norm = at::empty({shape.num_key_heads, shape.value_size});
  const std::vector<at::Tensor> d = {at::zeros_like(x), at::empty_like(w.taps),
                                     at::empty_like(w.decay), at::empty_like(w.decay_bias)};
  const auto runs = runs_of(stretches);
  DeltaRuleBackward<T> args{arguments<T>(shape, runs, x, w)};
  args.d_out = elements<T>(d_out).data();
  args.d_x = elements<T>(d[0]).data();
  args.d_taps = elements<float>(d[1]).data();
  args.d_decay = elements<float>(d[2]).data();
  args.d_decay_bias = elements<float>(d[3]).data();
  args.d_norm = elements<float>(d_norm).data();
  delta_rule_backward(args);
  return {d[0], d[1], d[2], d[3], d_norm.sum(0)};
}

template <class T>
class DeltaRuleOf : public ::testing::Test {};
TYPED_TEST_SUITE(DeltaRuleOf, ActivationTypes);

/// What the composition computes in `dtype`: outputs, and the gradients of `backward`.
std::vector<at::Tensor> composition(at::ScalarType dtype, const DeltaShape& shape,
                                    const at::Tensor& x, const DeltaWeights& w,
                                    const at::Tensor& d_out) {
  const auto leaf = [&](const at::Tensor& t) {
    return t.to(dtype).clone().set_requires_grad(true);
  };
  const DeltaWeights leaves{leaf(w.taps), leaf(w.decay), leaf(w.decay_bias), leaf(w.norm)};
  const at::Tensor wide = leaf(x);
  const at::Tensor out = composed::delta_rule(wide, leaves, shape, stretches);
  std::vector<at::Tensor> all = torch::autograd::grad(
      {out}, {wide, leaves.taps, leaves.decay, leaves.decay_bias, leaves.norm}, {d_out.to(dtype)});
  all.insert(all.begin(), out.detach());
  return all;
}

TYPED_TEST(DeltaRuleOf, OutputsAndGradientsAreThoseOfTheComposition) {
  for (const DeltaShape& shape : {by_part, by_key}) {
    const DeltaWeights w = weights_of(shape);
    const at::Tensor x = normal<TypeParam>({tokens, shape.inputs()}, 5);
    const at::Tensor d_out = normal<TypeParam>({tokens, shape.outputs()}, 6);
    const auto exact = composition(at::kDouble, shape, x, w, d_out);
    const auto rounded = composition(at::kFloat, shape, x, w, d_out);
    std::vector<at::Tensor> all = backward<TypeParam>(shape, d_out, x, w);
    EXPECT_EQ(all[0][132].abs().max().template item<double>(), 0) << "a row of no run";
    all.insert(all.begin(), forward<TypeParam>(shape, stretches, x, w));
    for (std::size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(i);
      expect_as_near(all[i], rounded[i], exact[i]);
    }
  }
}

/// One token and value head after the other, in double precision.
TEST(DeltaRule, CompositionIsTheRuleAsItIsWritten) {
  const DeltaShape s{.num_key_heads = 1, .key_size = 8, .value_size = 6, .taps = 3};
  const DeltaWeights w = weights_of(s);
  constexpr std::int64_t length = 70;
  const at::Tensor x = normal<float>({length, s.inputs()}, 7);
  const at::Tensor out = composed::delta_rule(x, w, s, {{0, length}});
  const at::Tensor wide = x.to(at::kDouble);
  const at::Tensor channels =
      at::cat({at::zeros({2, s.channels()}, wide.options()), wide.narrow(1, 0, s.channels())}, 0);
  at::Tensor memory = at::zeros({8, 6}, wide.options());
  const auto direction = [](const at::Tensor& v) { return v / (v.square().sum() + 1e-6).sqrt(); };
  for (std::int64_t t = 0; t < length; ++t) {
    at::Tensor mixed = at::silu((channels.narrow(0, t, 3) * w.taps.to(at::kDouble).t()).sum(0));
    const at::Tensor q = direction(mixed.narrow(0, 0, 8)) / std::sqrt(8.0);
    const at::Tensor k = direction(mixed.narrow(0, 8, 8)), v = mixed.narrow(0, 16, 6);
    const at::Tensor gates = wide[t].narrow(0, 22, 6), rate = wide[t][28].sigmoid();
    const at::Tensor fade = (-w.decay[0].to(at::kDouble).exp() *
                             at::softplus(wide[t][29] + w.decay_bias[0].to(at::kDouble)))
                                .exp();
    memory = fade * memory;
    memory = memory + at::outer(k, rate * (v - memory.t().mv(k)));
    const at::Tensor read = memory.t().mv(q);
    const at::Tensor expected =
        w.norm.to(at::kDouble) * read / (read.square().mean() + 1e-6).sqrt() * at::silu(gates);
    expect_within(out[t], expected, 2e-5);
  }
}

TYPED_TEST(DeltaRuleOf, ATextGoesOnFromWhatIsRemembered) {
  for (const DeltaShape& shape : {by_part, by_key}) {
    const DeltaWeights w = weights_of(shape);
    const at::Tensor x = normal<TypeParam>({90, shape.inputs()}, 8);
    const at::Tensor whole = forward<TypeParam>(shape, {{0, 90}}, x, w);
    const auto in_parts = [&](const auto& go_on) {
      const at::Tensor memory = at::zeros({shape.memory_size()});
      std::vector<at::Tensor> parts;
      std::int64_t done = 0;
      for (const std::int64_t count : {1, 1, 70, 2, 16}) {
        parts.push_back(go_on(x.narrow(0, done, count).contiguous(), memory, count));
        done += count;
      }
      return at::cat(parts, 0);
    };
    EXPECT_TRUE(same_bits(
        in_parts([&](const at::Tensor& part, const at::Tensor& memory, std::int64_t count) {
          return forward<TypeParam>(shape, {{0, count, memory}}, part, w);
        }),
        whole));
    expect_within(
        in_parts([&](const at::Tensor& part, const at::Tensor& memory, std::int64_t count) {
          return composed::delta_rule(part, w, shape, {{0, count, memory}});
        }),
        whole, std::max(tolerance<TypeParam>(), 4e-6));
  }
}

TYPED_TEST(DeltaRuleOf, BitsDoNotDependOnThreads) {
  const DeltaWeights w = weights_of(by_part);
  const at::Tensor x = normal<TypeParam>({tokens, by_part.inputs()}, 9);
  const at::Tensor d_out = normal<TypeParam>({tokens, by_part.outputs()}, 10);
  const auto results = with_thread_counts([&] {
    std::vector<at::Tensor> all = backward<TypeParam>(by_part, d_out, x, w);
    all.push_back(forward<TypeParam>(by_part, stretches, x, w));
    for (at::Tensor& each : all)
      each = each.to(at::kFloat).flatten();
    return at::cat(all);
  });
  for (const at::Tensor& each : results)
    EXPECT_TRUE(same_bits(each, results.front()));
}

}  // namespace
}  // namespace finetune::kernels::test::delta_rule_test
