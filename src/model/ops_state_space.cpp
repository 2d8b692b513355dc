// SPDX-License-Identifier: Apache-2.0
// The op of layers with a state space: kernels on a CPU, products of matrices elsewhere.

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <span>

#include "kernels/composed_state_space.hpp"
#include "model/detail/autograd_context.hpp"
#include "model/detail/elements.hpp"
#include "model/detail/memory_stretches.hpp"
#include "model/gradients.hpp"
#include "model/ops.hpp"

namespace finetune::model {
namespace {

using kernels::composed::StateWeights;

/// Rows of weights on their way to the backward pass, and what is read by them.
struct StateCall {
  Weights* weights;
  StateRows rows;
  kernels::StateShape shape;
  std::vector<kernels::composed::MemoryStretch> stretches;
  bool is_composed;

  std::array<int, 6> numbers() const {
    return {rows.taps, rows.taps_bias, rows.decay, rows.step_bias, rows.skip, rows.norm};
  }
  at::Tensor number(int row) const { return weights->weight({row, 1}).to(at::kFloat).contiguous(); }
  StateWeights read() const {
    return {number(rows.taps).view({shape.channels(), shape.taps}),
            number(rows.taps_bias),
            number(rows.decay),
            number(rows.step_bias),
            number(rows.skip),
            number(rows.norm)};
  }
};

/// Of inputs, and of the six rows of numbers.
using StateGradients = std::array<at::Tensor, 7>;

/// What kernels write on their way, fp32.
struct StateWay {
  at::Tensor mixed, read;

  StateWay(const StateCall& call, const at::Tensor& x_NI)
      : mixed(at::empty({x_NI.size(0), call.shape.channels()}, x_NI.options().dtype(at::kFloat))),
        read(at::empty({x_NI.size(0), call.shape.outputs()}, mixed.options())) {}
};

template <class T>
kernels::StateSpace<T> arguments(const StateCall& call, std::span<const kernels::MemoryRun> runs,
                                 const at::Tensor& x_NI, const StateWeights& w,
                                 const StateWay& way) {
  return {.shape = call.shape,
          .runs = runs,
          .x = static_cast<const T*>(x_NI.const_data_ptr()),
          .taps = w.taps.const_data_ptr<float>(),
          .taps_bias = w.taps_bias.const_data_ptr<float>(),
          .decay = w.decay.const_data_ptr<float>(),
          .step_bias = w.step_bias.const_data_ptr<float>(),
          .skip = w.skip.const_data_ptr<float>(),
          .norm = w.norm.const_data_ptr<float>(),
          .mixed = way.mixed.data_ptr<float>(),
          .read = way.read.data_ptr<float>()};
}

at::Tensor by_kernel(const StateCall& call, const at::Tensor& x_NI) {
  const StateWeights w = call.read();
  const auto runs = runs_of(call.stretches);
  const at::Tensor out = new_rows(call.stretches, x_NI, call.shape.outputs());
  const StateWay way(call, x_NI);
  dispatch(x_NI, [&]<typename T>() {
    kernels::StateSpaceForward<T> args{arguments<T>(call, runs, x_NI, w, way)};
    args.out = static_cast<T*>(out.data_ptr());
    kernels::state_space(args);
  });
  return out;
}

StateGradients by_kernel_backward(const StateCall& call, const at::Tensor& d_out,
                                  const at::Tensor& x_NI) {
  const StateWeights w = call.read();
  const auto runs = runs_of(call.stretches);
  const std::int64_t rows = x_NI.size(0), heads = call.shape.num_heads();
  const at::Tensor d_x = new_rows(call.stretches, x_NI, call.shape.inputs());
  const at::Tensor d_taps = at::empty_like(w.taps), d_taps_bias = at::empty_like(w.taps_bias);
  const at::Tensor d_keys =
      at::empty({call.shape.teams(), rows, 2 * call.shape.keys()}, d_taps.options());
  const at::Tensor d_numbers = at::zeros({std::ssize(runs), 3, heads}, d_taps.options());
  const at::Tensor d_norm =
      at::empty({kernels::num_pieces(runs), call.shape.outputs()}, d_taps.options());
  const StateWay way(call, x_NI);
  dispatch(x_NI, [&]<typename T>() {
    kernels::StateSpaceBackward<T> args{arguments<T>(call, runs, x_NI, w, way)};
    args.d_out = static_cast<const T*>(d_out.const_data_ptr());
    args.d_x = static_cast<T*>(d_x.data_ptr());
    args.d_keys = d_keys.data_ptr<float>();
    args.d_taps = d_taps.data_ptr<float>();
    args.d_taps_bias = d_taps_bias.data_ptr<float>();
    args.d_numbers = d_numbers.data_ptr<float>();
    args.d_norm = d_norm.data_ptr<float>();
    kernels::state_space_backward(args, rows);
  });
  const at::Tensor numbers = d_numbers.sum(0);
  return {d_x, d_taps, d_taps_bias, numbers[0], numbers[1], numbers[2], d_norm.sum(0)};
}

/// By autograd, of what is computed once more.
StateGradients composed_backward(const StateCall& call, const at::Tensor& d_out,
                                 const at::Tensor& x_NI) {
  const at::AutoGradMode with_autograd(true);
  const auto leaf = [](const at::Tensor& x) { return x.detach().set_requires_grad(true); };
  const StateWeights read = call.read();
  const StateWeights w{leaf(read.taps),      leaf(read.taps_bias), leaf(read.decay),
                       leaf(read.step_bias), leaf(read.skip),      leaf(read.norm)};
  const at::Tensor x = leaf(x_NI);
  const at::Tensor out = kernels::composed::state_space(x, w, call.shape, call.stretches);
  const auto d = torch::autograd::grad(
      {out}, {x, w.taps, w.taps_bias, w.decay, w.step_bias, w.skip, w.norm}, {d_out});
  return {d[0], d[1], d[2], d[3], d[4], d[5], d[6]};
}

struct StateSpaceFunction : torch::autograd::Function<StateSpaceFunction> {
  static Variable forward(AutogradContext* ctx, const Variable& x_NI, const StateCall& call) {
    keep(ctx, {x_NI});
    carry(ctx, "call", call);
    return call.is_composed
               ? kernels::composed::state_space(x_NI, call.read(), call.shape, call.stretches)
               : by_kernel(call, x_NI);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const StateCall& call = carried<StateCall>(ctx, "call");
    const at::Tensor x_NI = kept(ctx)[0], d_out = d[0].contiguous();
    const StateGradients gradients = call.is_composed ? composed_backward(call, d_out, x_NI)
                                                      : by_kernel_backward(call, d_out, x_NI);
    const auto numbers = call.numbers();
    for (std::size_t i = 0; i < numbers.size(); ++i)
      add_vector(call.weights->gradient({numbers[i], 1}), gradients[i + 1]);
    return {gradients[0], {}};
  }
};

}  // namespace

at::Tensor Ops::state_space(const at::Tensor& x_NI, const StateRows& rows, const StateHeads& heads,
                            double norm_eps, const Sequence& sequence, std::int64_t i_layer) {
  // Of the heads that this rank has.
  const std::int64_t num_heads = weights_.weight({rows.decay, 1}).numel();
  const kernels::StateShape shape{.num_groups = num_heads / heads.heads_per_group,
                                  .heads_per_group = heads.heads_per_group,
                                  .head_size = heads.head_size,
                                  .state_size = heads.state_size,
                                  .taps = heads.taps,
                                  .least_step = static_cast<float>(heads.least_step),
                                  .most_step = static_cast<float>(heads.most_step),
                                  .norm_eps = static_cast<float>(norm_eps)};
  const bool has_kernel = x_NI.is_cpu() && has_kernels(x_NI, path_);
  const StateCall call{&weights_, rows, shape,
                       memory_stretches(sequence, i_layer, shape.memory_size(), x_NI.options()),
                       !has_kernel};
  return StateSpaceFunction::apply(x_NI.contiguous(), call);
}

}  // namespace finetune::model
