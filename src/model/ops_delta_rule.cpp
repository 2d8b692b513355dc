// SPDX-License-Identifier: Apache-2.0
// The op of layers that remember: kernels on a CPU, products of matrices elsewhere.

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <span>

#include "kernels/composed_delta_rule.hpp"
#include "model/detail/autograd_context.hpp"
#include "model/detail/elements.hpp"
#include "model/detail/memory_stretches.hpp"
#include "model/gradients.hpp"
#include "model/ops.hpp"

namespace finetune::model {
namespace {

using kernels::composed::DeltaWeights;
using kernels::composed::MemoryStretch;

/// Rows of weights on their way to the backward pass, and what is read by them.
struct DeltaCall {
  Weights* weights;
  DeltaRows rows;
  kernels::DeltaShape shape;
  std::vector<MemoryStretch> stretches;
  bool is_composed;

  std::array<int, 4> numbers() const { return {rows.taps, rows.decay, rows.decay_bias, rows.norm}; }
  at::Tensor number(int row) const { return weights->weight({row, 1}).to(at::kFloat).contiguous(); }
  DeltaWeights read() const {
    return {number(rows.taps).view({shape.channels(), shape.taps}), number(rows.decay),
            number(rows.decay_bias), number(rows.norm)};
  }
};

template <class T>
kernels::DeltaRule<T> arguments(const DeltaCall& call, std::span<const kernels::MemoryRun> runs,
                                const at::Tensor& x_NI, const DeltaWeights& w) {
  return {.shape = call.shape,
          .runs = runs,
          .x = static_cast<const T*>(x_NI.const_data_ptr()),
          .taps = w.taps.const_data_ptr<float>(),
          .decay = w.decay.const_data_ptr<float>(),
          .decay_bias = w.decay_bias.const_data_ptr<float>(),
          .norm = w.norm.const_data_ptr<float>()};
}

at::Tensor by_kernel(const DeltaCall& call, const at::Tensor& x_NI) {
  const DeltaWeights w = call.read();
  const auto runs = runs_of(call.stretches);
  const at::Tensor out = new_rows(call.stretches, x_NI, call.shape.outputs());
  dispatch(x_NI, [&]<typename T>() {
    kernels::DeltaRuleForward<T> args{arguments<T>(call, runs, x_NI, w)};
    args.out = static_cast<T*>(out.data_ptr());
    kernels::delta_rule(args);
  });
  return out;
}

/// Of inputs, and of the four rows of numbers.
std::array<at::Tensor, 5> by_kernel_backward(const DeltaCall& call, const at::Tensor& d_out,
                                             const at::Tensor& x_NI) {
  const DeltaWeights w = call.read();
  const auto runs = runs_of(call.stretches);
  const at::Tensor d_x = new_rows(call.stretches, x_NI, call.shape.inputs());
  const at::Tensor d_norm =
      at::empty({call.shape.num_key_heads, call.shape.value_size}, w.norm.options());
  const at::Tensor d_taps = at::empty_like(w.taps), d_decay = at::empty_like(w.decay),
                   d_decay_bias = at::empty_like(w.decay_bias);
  dispatch(x_NI, [&]<typename T>() {
    kernels::DeltaRuleBackward<T> args{arguments<T>(call, runs, x_NI, w)};
    args.d_out = static_cast<const T*>(d_out.const_data_ptr());
    args.d_x = static_cast<T*>(d_x.data_ptr());
    args.d_taps = d_taps.data_ptr<float>();
    args.d_decay = d_decay.data_ptr<float>();
    args.d_decay_bias = d_decay_bias.data_ptr<float>();
    args.d_norm = d_norm.data_ptr<float>();
    kernels::delta_rule_backward(args);
  });
  return {d_x, d_taps, d_decay, d_decay_bias, d_norm.sum(0)};
}

/// By autograd, of what is computed once more.
std::array<at::Tensor, 5> composed_backward(const DeltaCall& call, const at::Tensor& d_out,
                                            const at::Tensor& x_NI) {
  const at::AutoGradMode with_autograd(true);
  const auto leaf = [](const at::Tensor& x) { return x.detach().set_requires_grad(true); };
  const DeltaWeights read = call.read();
  const DeltaWeights w{leaf(read.taps), leaf(read.decay), leaf(read.decay_bias), leaf(read.norm)};
  const at::Tensor x = leaf(x_NI);
  const at::Tensor out = kernels::composed::delta_rule(x, w, call.shape, call.stretches);
  const auto d = torch::autograd::grad({out}, {x, w.taps, w.decay, w.decay_bias, w.norm}, {d_out});
  return {d[0], d[1], d[2], d[3], d[4]};
}

at::Tensor compute(const DeltaCall& call, const at::Tensor& x_NI) {
  return call.is_composed
             ? kernels::composed::delta_rule(x_NI, call.read(), call.shape, call.stretches)
             : by_kernel(call, x_NI);
}

struct DeltaRule : torch::autograd::Function<DeltaRule> {
  static Variable forward(AutogradContext* ctx, const Variable& x_NI, const DeltaCall& call) {
    keep(ctx, {x_NI});
    carry(ctx, "call", call);
    return compute(call, x_NI);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const DeltaCall& call = carried<DeltaCall>(ctx, "call");
    const at::Tensor x_NI = kept(ctx)[0], d_out = d[0].contiguous();
    const auto gradients = call.is_composed ? composed_backward(call, d_out, x_NI)
                                            : by_kernel_backward(call, d_out, x_NI);
    const auto numbers = call.numbers();
    for (std::size_t i = 0; i < numbers.size(); ++i)
      add_vector(call.weights->gradient({numbers[i], 1}), gradients[i + 1]);
    return {gradients[0], {}};
  }
};

}  // namespace

at::Tensor Ops::delta_rule(const at::Tensor& x_NI, const DeltaRows& rows, const DeltaHeads& heads,
                           double norm_eps, const Sequence& sequence, std::int64_t i_layer) {
  // Of the heads that this rank has.
  const std::int64_t num_values = weights_.weight({rows.decay, 1}).numel();
  const kernels::DeltaShape shape{.num_key_heads = num_values / heads.values_per_key,
                                  .values_per_key = heads.values_per_key,
                                  .key_size = heads.key_size,
                                  .value_size = heads.value_size,
                                  .taps = heads.taps,
                                  .is_by_key_head = heads.is_by_key_head,
                                  .norm_eps = static_cast<float>(norm_eps)};
  const bool has_kernel = x_NI.is_cpu() && has_kernels(x_NI, path_);
  const DeltaCall call{&weights_, rows, shape,
                       memory_stretches(sequence, i_layer, shape.memory_size(), x_NI.options()),
                       !has_kernel};
  return DeltaRule::apply(x_NI.contiguous(), call);
}

}  // namespace finetune::model
