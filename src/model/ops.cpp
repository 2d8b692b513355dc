// SPDX-License-Identifier: Apache-2.0
#include "model/ops.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "model/activations.hpp"
#include "model/detail/autograd_context.hpp"
#include "model/gradients.hpp"
#include "model/projection.hpp"

namespace finetune::model {
namespace {

void save_projection(AutogradContext* ctx, const Projection& projection) {
  carry(ctx, "projection", projection);
}
const Projection& saved_projection(const AutogradContext* ctx) {
  return carried<Projection>(ctx, "projection");
}

/// Saves `first`, then what the product keeps for its own backward.
void save_all(AutogradContext* ctx, variable_list first, const Projected& projected) {
  ctx->saved_data["own"] = static_cast<std::int64_t>(first.size());
  first.insert(first.end(), projected.kept.begin(), projected.kept.end());
  keep(ctx, std::move(first));
}
/// How many tensors came first.
std::size_t num_own(const AutogradContext* ctx) {
  return static_cast<std::size_t>(ctx->saved_data.at("own").toInt());
}

struct Linear : torch::autograd::Function<Linear> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const Projection& projection) {
    const Projected projected = project(projection, x);
    save_all(ctx, {projection.needs_input() ? x : Variable()}, projected);
    save_projection(ctx, projection);
    return projected.y_NF;
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = kept(ctx);
    return {project_backward(saved_projection(ctx), d[0], saved[0], std::span(saved).subspan(1)),
            {}};
  }
};

/// In place: the product before saved its input, not this.
struct AddBias : torch::autograd::Function<AddBias> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const Projection& projection) {
    save_projection(ctx, projection);
    // A part of what ranks have summed up: autograd lets nobody change it.
    if (x.is_view()) return x + bias_of(projection);
    // Else what is returned counts as a view, which no later op may change in place.
    ctx->mark_dirty({x});
    at::Tensor sum = x;
    return sum.add_(bias_of(projection));
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    bias_backward(saved_projection(ctx), d[0]);
    return {d[0], {}};
  }
};

/// dx; adds the gradient of the norm's weight, if it is trained.
at::Tensor norm_backward(Weights& weights, RowRange norm, const at::Tensor& dy_ND,
                         const at::Tensor& h_ND, const at::Tensor& rstd_N,
                         const at::Tensor& d_residual_ND, Path path) {
  const GradientSlot slot = weights.gradient(norm);
  auto [dx, dw] = rms_norm_backward(dy_ND, h_ND, weights.weight(norm), rstd_N, d_residual_ND, path,
                                    slot.tensor.defined());
  add_vector(slot, dw);
  return dx;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Variable forward(AutogradContext* ctx, const Variable& x, Weights* weights, int row,
                          double eps, Path path) {
    auto [y, rstd] = rms_norm_forward(x, weights->weight({row, 1}), eps, path);
    keep(ctx, {x, rstd});
    save_path(ctx, path);
    save_rows(ctx, *weights, {row, 1});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = kept(ctx);
    Weights& weights = saved_weights(ctx);
    return {norm_backward(weights, saved_rows(ctx), d[0], saved[0], saved[1], {}, saved_path(ctx)),
            {},
            {},
            {},
            {}};
  }
};

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const Variable& x, const Variable& residual,
                               Weights* weights, int row, double eps, Path path) {
    auto [h, y, rstd] = add_rms_norm_forward(x, residual, weights->weight({row, 1}), eps, path);
    keep(ctx, {h, rstd});
    save_path(ctx, path);
    save_rows(ctx, *weights, {row, 1});
    return {h, y};
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = kept(ctx);
    Weights& weights = saved_weights(ctx);
    const at::Tensor dx =
        norm_backward(weights, saved_rows(ctx), d[1], saved[0], saved[1], d[0], saved_path(ctx));
    return {dx, dx, {}, {}, {}, {}};
  }
};

/// A norm's row and epsilon, and the product that reads it.
struct NormedProjection {
  int norm_row = 0;
  double eps = 0;
  Projection projection;
  Recompute recompute = Recompute::nothing;
};

/// `h_ND` is what was normed to `normed_ND`, which is kept only if it is needed and not computed
/// again.
void save_norm_linear(AutogradContext* ctx, const NormedProjection& of, const at::Tensor& h_ND,
                      const at::Tensor& rstd_N, const at::Tensor& normed_ND,
                      const Projected& projected) {
  const bool is_kept = of.recompute == Recompute::nothing && of.projection.needs_input();
  save_all(ctx, {h_ND, rstd_N, is_kept ? normed_ND : at::Tensor()}, projected);
  save_projection(ctx, of.projection);
  ctx->saved_data["norm"] = std::int64_t{of.norm_row};
  ctx->saved_data["eps"] = of.eps;
}

/// dh, with the gradient that reaches h by the residual, if any.
at::Tensor norm_linear_backward(AutogradContext* ctx, const at::Tensor& dy_NF,
                                const at::Tensor& d_residual_ND) {
  const auto saved = kept(ctx);
  const Projection& projection = saved_projection(ctx);
  Weights& weights = *projection.weights;
  const RowRange norm{static_cast<int>(ctx->saved_data.at("norm").toInt()), 1};
  at::Tensor normed = saved[2];
  if (!normed.defined() && projection.needs_input())
    normed = std::get<0>(rms_norm_forward(saved[0], weights.weight(norm),
                                          ctx->saved_data.at("eps").toDouble(), projection.path));
  const at::Tensor d_normed =
      project_backward(projection, dy_NF, normed, std::span(saved).subspan(num_own(ctx)));
  normed.reset();
  return norm_backward(weights, norm, d_normed, saved[0], saved[1], d_residual_ND, projection.path);
}

struct NormLinear : torch::autograd::Function<NormLinear> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const NormedProjection& of) {
    auto [normed, rstd] = rms_norm_forward(x, of.projection.weights->weight({of.norm_row, 1}),
                                           of.eps, of.projection.path);
    const Projected projected = project(of.projection, normed);
    save_norm_linear(ctx, of, x, rstd, normed, projected);
    return projected.y_NF;
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    return {norm_linear_backward(ctx, d[0], {}), {}};
  }
};

struct AddNormLinear : torch::autograd::Function<AddNormLinear> {
  static variable_list forward(AutogradContext* ctx, const Variable& x, const Variable& residual,
                               const NormedProjection& of) {
    auto [h, normed, rstd] = add_rms_norm_forward(
        x, residual, of.projection.weights->weight({of.norm_row, 1}), of.eps, of.projection.path);
    const Projected projected = project(of.projection, normed);
    save_norm_linear(ctx, of, h, rstd, normed, projected);
    return {h, projected.y_NF};
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const at::Tensor dh = norm_linear_backward(ctx, d[1], d[0]);
    return {dh, dh, {}};
  }
};

struct SwigluLinear : torch::autograd::Function<SwigluLinear> {
  static Variable forward(AutogradContext* ctx, const Variable& gate_up,
                          const Projection& projection, Recompute recompute) {
    const at::Tensor activated = swiglu_forward(gate_up, projection.path);
    const Projected projected = project(projection, activated);
    const bool is_kept = recompute == Recompute::nothing && projection.needs_input();
    save_all(ctx, {gate_up, is_kept ? activated : at::Tensor()}, projected);
    save_projection(ctx, projection);
    return projected.y_NF;
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = kept(ctx);
    const Projection& projection = saved_projection(ctx);
    at::Tensor activated = saved[1];
    if (!activated.defined() && projection.needs_input())
      activated = swiglu_forward(saved[0], projection.path);
    const at::Tensor d_activated =
        project_backward(projection, d[0], activated, std::span(saved).subspan(num_own(ctx)));
    activated.reset();
    return {swiglu_backward(d_activated, saved[0], projection.path), {}, {}};
  }
};

struct Swiglu : torch::autograd::Function<Swiglu> {
  static Variable forward(AutogradContext* ctx, const Variable& gate_up, Path path) {
    keep(ctx, {gate_up});
    save_path(ctx, path);
    return swiglu_forward(gate_up, path);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    return {swiglu_backward(d[0], kept(ctx)[0], saved_path(ctx)), {}};
  }
};

}  // namespace

at::Tensor Ops::embedding(const at::Tensor& ids_N, int row) {
  return at::index_select(weights_.weight({row, 1}), 0, ids_N);
}

void Ops::embedding_backward(const at::Tensor& ids_N, const at::Tensor& d_x_ND, int row) {
  const GradientSlot slot = weights_.gradient({row, 1});
  if (slot.tensor.defined()) embedding_gradient(ids_N, d_x_ND, slot.tensor, slot.accumulate, path_);
}

Projection Ops::projection(RowRange rows) {
  return {.weights = &weights_,
          .rows = rows,
          .dropout = dropout_,
          .path = path_,
          .uses_adapter = uses_adapter_};
}

at::Tensor Ops::linear(const at::Tensor& x_ND, RowRange rows) {
  return Linear::apply(x_ND, projection(rows));
}

at::Tensor Ops::add_bias(const at::Tensor& x_NF, RowRange rows) {
  return AddBias::apply(x_NF, projection(rows));
}

at::Tensor Ops::rms_norm(const at::Tensor& x_ND, int row, double eps) {
  return RmsNorm::apply(x_ND, &weights_, row, eps, path_);
}

std::pair<at::Tensor, at::Tensor> Ops::add_rms_norm(const at::Tensor& x_ND,
                                                    const at::Tensor& residual_ND, int row,
                                                    double eps) {
  auto both = AddRmsNorm::apply(x_ND, residual_ND, &weights_, row, eps, path_);
  return {both[0], both[1]};
}

at::Tensor Ops::norm_linear(const at::Tensor& x_ND, int norm_row, RowRange rows, double eps) {
  return NormLinear::apply(x_ND, NormedProjection{norm_row, eps, projection(rows), recompute_});
}

std::pair<at::Tensor, at::Tensor> Ops::add_norm_linear(const at::Tensor& x_ND,
                                                       const at::Tensor& residual_ND, int norm_row,
                                                       RowRange rows, double eps) {
  auto both = AddNormLinear::apply(x_ND, residual_ND,
                                   NormedProjection{norm_row, eps, projection(rows), recompute_});
  return {both[0], both[1]};
}

at::Tensor Ops::swiglu_linear(const at::Tensor& gate_up, RowRange rows) {
  return SwigluLinear::apply(gate_up, projection(rows), recompute_);
}

at::Tensor Ops::swiglu(const at::Tensor& gate_up) {
  return Swiglu::apply(gate_up, path_);
}

at::Tensor Ops::scale(const at::Tensor& x_ND, double factor) {
  return x_ND * factor;
}

at::Tensor Ops::add(const at::Tensor& x_ND, const at::Tensor& y_ND) {
  return x_ND + y_ND;
}

}  // namespace finetune::model
