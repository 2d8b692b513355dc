// SPDX-License-Identifier: Apache-2.0
// The state space: kernels beside their composition and beside the recurrence as it is written.
#include "kernels/state_space.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/composed_state_space.hpp"
#include "unit/kernels/tensors.hpp"

namespace finetune::kernels::test::state_space_test {
namespace {

using composed::MemoryStretch;
using composed::StateWeights;

/// Heads that are padded, five of a group for four teams, runs longer than a chunk and one shorter
/// than the convolution; steps that meet both limits.
constexpr StateShape uneven{.num_groups = 2,
                            .heads_per_group = 5,
                            .head_size = 12,
                            .state_size = 8,
                            .taps = 4,
                            .least_step = 0.3f,
                            .most_step = 2.0f};
constexpr StateShape wide{
    .num_groups = 1, .heads_per_group = 2, .head_size = 80, .state_size = 16, .taps = 2};
constexpr std::int64_t tokens = 137;
const std::vector<MemoryStretch> stretches = {{0, 2}, {2, 130}, {133, 4}};  // not row 132

StateWeights weights_of(const StateShape& s) {
  return {normal<float>({s.channels(), s.taps}, 1) * 0.5,
          normal<float>({s.channels()}, 2) * 0.2,
          normal<float>({s.num_heads()}, 3),
          normal<float>({s.num_heads()}, 4),
          normal<float>({s.num_heads()}, 5),
          normal<float>({s.outputs()}, 6) * 0.2 + 1};
}

/// A pass's rows for the way.
struct Way {
  at::Tensor mixed, read;
  Way(const StateShape& s, std::int64_t rows)
      : mixed(at::empty({rows, s.channels()})), read(at::empty({rows, s.outputs()})) {}
};

template <class T>
StateSpace<T> arguments(const StateShape& shape, const std::vector<MemoryRun>& runs,
                        const at::Tensor& x, const StateWeights& w, const Way& way) {
  return {.shape = shape,
          .runs = runs,
          .x = elements<T>(x).data(),
          .taps = elements<float>(w.taps).data(),
          .taps_bias = elements<float>(w.taps_bias).data(),
          .decay = elements<float>(w.decay).data(),
          .step_bias = elements<float>(w.step_bias).data(),
          .skip = elements<float>(w.skip).data(),
          .norm = elements<float>(w.norm).data(),
          .mixed = elements<float>(way.mixed).data(),
          .read = elements<float>(way.read).data()};
}

std::vector<MemoryRun> runs_of(const std::vector<MemoryStretch>& stretches) {
  std::vector<MemoryRun> runs;
  for (const MemoryStretch& each : stretches)
    runs.push_back({each.first, each.count,
                    each.memory.defined() ? elements<float>(each.memory).data() : nullptr});
  return runs;
}

template <class T>
at::Tensor forward(const StateShape& shape, const std::vector<MemoryStretch>& stretches,
                   const at::Tensor& x, const StateWeights& w) {
  const at::Tensor out = at::zeros({x.size(0), shape.outputs()}, x.options());
  const auto runs = runs_of(stretches);
  const Way way(shape, x.size(0));
  StateSpaceForward<T> args{arguments<T>(shape, runs, x, w, way)};
  args.out = elements<T>(out).data();
  state_space(args);
  return out;
}

/// Of inputs, taps, their bias, decay, the steps' bias, skip, and the norm.
template <class T>
std::vector<at::Tensor> backward(const StateShape& shape, const at::Tensor& d_out,
                                 const at::Tensor& x, const StateWeights& w) {
  const auto runs = runs_of(stretches);
  const at::Tensor d_x = at::zeros_like(x), d_taps = at::empty_like(w.taps),
                   d_taps_bias = at::empty_like(w.taps_bias);
  const at::Tensor d_keys = at::empty({shape.teams(), x.size(0), 2 * shape.keys()});
  const at::Tensor d_numbers = at::empty({std::ssize(runs), 3, shape.num_heads()});
  const at::Tensor d_norm = at::empty({num_pieces(runs), shape.outputs()});
  const Way way(shape, x.size(0));
  StateSpaceBackward<T> args{arguments<T>(shape, runs, x, w, way)};
  args.d_out = elements<T>(d_out).data();
  args.d_x = elements<T>(d_x).data();
  args.d_keys = elements<float>(d_keys).data();
  args.d_taps = elements<float>(d_taps).data();
  args.d_taps_bias = elements<float>(d_taps_bias).data();
  args.d_numbers = elements<float>(d_numbers).data();
  args.d_norm = elements<float>(d_norm).data();
  state_space_backward(args, x.size(0));
  const at::Tensor numbers = d_numbers.sum(0);
  return {
      d_x,          d_taps, d_taps_bias, numbers[0].clone(), numbers[1].clone(), numbers[2].clone(),
      d_norm.sum(0)};
}

template <class T>
class StateSpaceOf : public ::testing::Test {};
TYPED_TEST_SUITE(StateSpaceOf, ActivationTypes);

TYPED_TEST(StateSpaceOf, OutputsAndGradientsAreThoseOfTheComposition) {
  for (const StateShape& shape : {uneven, wide}) {
    const StateWeights w = weights_of(shape);
    const at::Tensor x = normal<TypeParam>({tokens, shape.inputs()}, 7);
    const at::Tensor d_out = normal<TypeParam>({tokens, shape.outputs()}, 8);
    // What fades over a chunk it adds up, and takes differences of: in double precision.
    const auto leaf = [](const at::Tensor& t) {
      return t.to(at::kDouble).clone().set_requires_grad(true);
    };
    const StateWeights leaves{leaf(w.taps),      leaf(w.taps_bias), leaf(w.decay),
                              leaf(w.step_bias), leaf(w.skip),      leaf(w.norm)};
    const at::Tensor wide_x = leaf(x);
    const at::Tensor expected = composed::state_space(wide_x, leaves, shape, stretches);
    expect_within(forward<TypeParam>(shape, stretches, x, w), expected.detach(),
                  std::max(tolerance<TypeParam>(), 4e-6));
    const auto d_expected =
        torch::autograd::grad({expected},
                              {wide_x, leaves.taps, leaves.taps_bias, leaves.decay,
                               leaves.step_bias, leaves.skip, leaves.norm},
                              {d_out.to(at::kDouble)});
    const auto d = backward<TypeParam>(shape, d_out, x, w);
    for (std::size_t i = 0; i < d.size(); ++i) {
      SCOPED_TRACE(i);
      expect_within(d[i], d_expected[i],
                    (i == 0 ? 8 : 1) * std::max(tolerance<TypeParam>() / 2, 1e-5));
    }
    EXPECT_EQ(d[0][132].abs().max().template item<double>(), 0) << "a row of no run";
  }
}

/// One token and head after the other, in double precision.
TEST(StateSpace, CompositionIsTheRecurrenceAsItIsWritten) {
  const StateShape s{.num_groups = 2,
                     .heads_per_group = 2,
                     .head_size = 6,
                     .state_size = 8,
                     .taps = 3,
                     .least_step = 0.4f,
                     .most_step = 1.5f};
  const StateWeights w = weights_of(s);
  constexpr std::int64_t length = 70, width = 24, channels = width + 32;
  ASSERT_EQ(s.channels(), channels);
  const at::Tensor x = normal<float>({length, s.inputs()}, 9);
  const at::Tensor out = composed::state_space(x, w, s, {{0, length}});
  const auto in_double = [](const at::Tensor& t) { return t.to(at::kDouble); };
  const at::Tensor all = in_double(x), taps = in_double(w.taps);
  const at::Tensor rows =
      at::cat({at::zeros({2, channels}, all.options()), all.narrow(1, width, channels)}, 0);
  at::Tensor state = at::zeros({4, 8, 6}, all.options());
  std::int64_t num_clamped = 0;
  for (std::int64_t t = 0; t < length; ++t) {
    const at::Tensor mixed =
        at::silu((rows.narrow(0, t, 3) * taps.t()).sum(0) + in_double(w.taps_bias));
    at::Tensor read = at::empty({4, 6}, all.options());
    for (std::int64_t h = 0; h < 4; ++h) {
      const at::Tensor v = mixed.narrow(0, 6 * h, 6), b = mixed.narrow(0, width + 8 * (h / 2), 8),
                       c = mixed.narrow(0, width + 16 + 8 * (h / 2), 8);
      const at::Tensor plain =
          at::log1p((all[t][width + channels + h] + in_double(w.step_bias)[h]).exp());
      const double step =
          std::clamp(plain.item<double>(), double{s.least_step}, double{s.most_step});
      num_clamped += step != plain.item<double>();
      const double fade = std::exp(-step * std::exp(in_double(w.decay)[h].item<double>()));
      state[h].mul_(fade).add_(at::outer(b, step * v));
      read[h].copy_(state[h].t().mv(c) + in_double(w.skip)[h] * v);
    }
    const at::Tensor gated =
        (read.flatten() * at::silu(all[t].narrow(0, 0, width))).view({2, width / 2});
    const at::Tensor normed = gated / (gated.square().mean(1, true) + 1e-5).sqrt();
    expect_within(out[t], in_double(w.norm) * normed.flatten(), 2e-5);
  }
  EXPECT_GT(num_clamped, 20);
}

TYPED_TEST(StateSpaceOf, ATextGoesOnFromWhatIsRemembered) {
  for (const StateShape& shape : {uneven, wide}) {
    const StateWeights w = weights_of(shape);
    const at::Tensor x = normal<TypeParam>({90, shape.inputs()}, 10);
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
          return composed::state_space(part, w, shape, {{0, count, memory}});
        }),
        whole, std::max(tolerance<TypeParam>(), 4e-6));
  }
}

TYPED_TEST(StateSpaceOf, BitsDoNotDependOnThreads) {
  const StateWeights w = weights_of(uneven);
  const at::Tensor x = normal<TypeParam>({tokens, uneven.inputs()}, 11);
  const at::Tensor d_out = normal<TypeParam>({tokens, uneven.outputs()}, 12);
  const auto results = with_thread_counts([&] {
    std::vector<at::Tensor> all = backward<TypeParam>(uneven, d_out, x, w);
    all.push_back(forward<TypeParam>(uneven, stretches, x, w));
    for (at::Tensor& each : all)
      each = each.to(at::kFloat).flatten();
    return at::cat(all);
  });
  for (const at::Tensor& each : results)
    EXPECT_TRUE(same_bits(each, results.front()));
}

}  // namespace
}  // namespace finetune::kernels::test::state_space_test
