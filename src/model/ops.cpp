// SPDX-License-Identifier: Apache-2.0
#include "model/ops.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "model/activations.hpp"
#include "model/adapter_math.hpp"
#include "model/detail/autograd_context.hpp"
#include "model/detail/norms.hpp"
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

/// A norm on its way to its backward pass.
struct CarriedNorm {
  Weights* weights;
  Norm norm;
};
const CarriedNorm& saved_norm(const AutogradContext* ctx) {
  return carried<CarriedNorm>(ctx, "norm");
}

/// dx; adds the gradients of the norm's weight and bias, if they are trained.
at::Tensor norm_backward(const CarriedNorm& of, const at::Tensor& dy_ND, const at::Tensor& h_ND,
                         const at::Tensor& statistics, const at::Tensor& d_residual_ND, Path path) {
  return norm_backward(*of.weights, of.norm, {h_ND, {}, statistics}, dy_ND, d_residual_ND, path);
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const CarriedNorm& of,
                          Path path) {
    const Normed normed = norm_forward(*of.weights, of.norm, x, {}, path);
    keep(ctx, {x, normed.statistics});
    save_path(ctx, path);
    carry(ctx, "norm", of);
    return normed.y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = kept(ctx);
    return {norm_backward(saved_norm(ctx), d[0], saved[0], saved[1], {}, saved_path(ctx)), {}, {}};
  }
};

struct AddNorm : torch::autograd::Function<AddNorm> {
  static variable_list forward(AutogradContext* ctx, const Variable& x, const Variable& residual,
                               const CarriedNorm& of, Path path) {
    const Normed normed = norm_forward(*of.weights, of.norm, x, residual, path);
    keep(ctx, {normed.h, normed.statistics});
    save_path(ctx, path);
    carry(ctx, "norm", of);
    return {normed.h, normed.y};
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = kept(ctx);
    const at::Tensor dx =
        norm_backward(saved_norm(ctx), d[1], saved[0], saved[1], d[0], saved_path(ctx));
    return {dx, dx, {}, {}};
  }
};

/// A norm, and the product that reads it.
struct NormedProjection {
  Norm norm;
  Projection projection;
  Recompute recompute = Recompute::nothing;

  CarriedNorm carried() const { return {projection.weights, norm}; }
};

/// What was normed is kept only if it is needed and not computed again.
void save_norm_linear(AutogradContext* ctx, const NormedProjection& of, const Normed& normed,
                      const Projected& projected) {
  const bool is_kept = of.recompute == Recompute::nothing && of.projection.needs_input();
  save_all(ctx, {normed.h, normed.statistics, is_kept ? normed.y : at::Tensor()}, projected);
  save_projection(ctx, of.projection);
  carry(ctx, "norm", of.carried());
}

/// dh, with the gradient that reaches h by the residual, if any.
at::Tensor norm_linear_backward(AutogradContext* ctx, const at::Tensor& dy_NF,
                                const at::Tensor& d_residual_ND) {
  const auto saved = kept(ctx);
  const Projection& projection = saved_projection(ctx);
  const CarriedNorm& of = saved_norm(ctx);
  at::Tensor normed = saved[2];
  if (!normed.defined() && projection.needs_input())
    normed = norm_forward(*of.weights, of.norm, saved[0], {}, projection.path).y;
  const at::Tensor d_normed =
      project_backward(projection, dy_NF, normed, std::span(saved).subspan(num_own(ctx)));
  normed.reset();
  return norm_backward(of, d_normed, saved[0], saved[1], d_residual_ND, projection.path);
}

struct NormLinear : torch::autograd::Function<NormLinear> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const NormedProjection& of) {
    Normed normed = norm_forward(*of.projection.weights, of.norm, x, {}, of.projection.path);
    normed.h = x;
    const Projected projected = project(of.projection, normed.y);
    save_norm_linear(ctx, of, normed, projected);
    return projected.y_NF;
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    return {norm_linear_backward(ctx, d[0], {}), {}};
  }
};

struct AddNormLinear : torch::autograd::Function<AddNormLinear> {
  static variable_list forward(AutogradContext* ctx, const Variable& x, const Variable& residual,
                               const NormedProjection& of) {
    const Normed normed =
        norm_forward(*of.projection.weights, of.norm, x, residual, of.projection.path);
    const Projected projected = project(of.projection, normed.y);
    save_norm_linear(ctx, of, normed, projected);
    return {normed.h, projected.y_NF};
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const at::Tensor dh = norm_linear_backward(ctx, d[1], d[0]);
    return {dh, dh, {}};
  }
};

/// An activation on its way to its backward pass.
struct CarriedActivation {
  Activation kind;
  Weights* weights;
  RowRange parameters;
  Path path;

  at::Tensor forward(const at::Tensor& gate_up) const {
    if (kind.function != Activation::Function::xielu) return model::activate(gate_up, kind, path);
    return xielu(gate_up, numbers());
  }
  /// Adds the gradients of the numbers, too.
  at::Tensor backward(const at::Tensor& dy_NF, const at::Tensor& gate_up) const {
    if (kind.function != Activation::Function::xielu)
      return activate_backward(dy_NF, gate_up, kind, path);
    const XieluGradients d = xielu_backward(dy_NF, gate_up, numbers());
    add_vector(weights->gradient({parameters.first, 1}), d.positive);
    add_vector(weights->gradient({parameters.first + 1, 1}), d.negative);
    // The others stay as they are.
    for (const int constant : {2, 3})
      add_vector(weights->gradient({parameters.first + constant, 1}), at::zeros_like(d.positive));
    return d.x;
  }

 private:
  XieluNumbers numbers() const {
    const auto number = [&](int i) { return weights->weight({parameters.first + i, 1}); };
    return {number(0), number(1), number(2), number(3)};
  }
};
const CarriedActivation& saved_activation(const AutogradContext* ctx) {
  return carried<CarriedActivation>(ctx, "activation");
}

struct ActivatedLinear : torch::autograd::Function<ActivatedLinear> {
  static Variable forward(AutogradContext* ctx, const Variable& gate_up,
                          const CarriedActivation& activation, const Projection& projection,
                          Recompute recompute) {
    const at::Tensor activated = activation.forward(gate_up);
    const Projected projected = project(projection, activated);
    const bool is_kept = recompute == Recompute::nothing && projection.needs_input();
    save_all(ctx, {gate_up, is_kept ? activated : at::Tensor()}, projected);
    save_projection(ctx, projection);
    carry(ctx, "activation", activation);
    return projected.y_NF;
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = kept(ctx);
    const Projection& projection = saved_projection(ctx);
    const CarriedActivation& activation = saved_activation(ctx);
    at::Tensor activated = saved[1];
    if (!activated.defined() && projection.needs_input()) activated = activation.forward(saved[0]);
    const at::Tensor d_activated =
        project_backward(projection, d[0], activated, std::span(saved).subspan(num_own(ctx)));
    activated.reset();
    return {activation.backward(d_activated, saved[0]), {}, {}, {}};
  }
};

struct Activate : torch::autograd::Function<Activate> {
  static Variable forward(AutogradContext* ctx, const Variable& gate_up,
                          const CarriedActivation& activation) {
    keep(ctx, {gate_up});
    carry(ctx, "activation", activation);
    return activation.forward(gate_up);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    return {saved_activation(ctx).backward(d[0], kept(ctx)[0]), {}};
  }
};

struct Gate : torch::autograd::Function<Gate> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const Variable& gate) {
    keep(ctx, {x, gate});
    return x * gate.sigmoid();
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = kept(ctx);
    const at::Tensor share = saved[1].sigmoid();
    at::Tensor d_share = d[0] * saved[0];
    if (share.size(1) == 1) d_share = d_share.sum(1, /*keepdim=*/true);
    return {d[0] * share, at::sigmoid_backward(d_share, share)};
  }
};

/// A row that is not a matrix, on its way to the backward pass.
struct CarriedRow {
  Weights* weights;
  int row;
  Path path;
};

struct AddRows : torch::autograd::Function<AddRows> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const at::Tensor& positions_N,
                          const CarriedRow& of) {
    keep(ctx, {positions_N});
    carry(ctx, "rows", of);
    return at::index_select(of.weights->weight({of.row, 1}), 0, positions_N).add_(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const CarriedRow& of = carried<CarriedRow>(ctx, "rows");
    const GradientSlot slot = of.weights->gradient({of.row, 1});
    if (slot.tensor.defined())
      embedding_gradient(kept(ctx)[0], d[0], slot.tensor, slot.accumulate, of.path);
    return {d[0], {}, {}};
  }
};

/// The number is read once more in backward: units come and go in between.
struct ScaleBy : torch::autograd::Function<ScaleBy> {
  static Variable forward(AutogradContext* ctx, const Variable& x, Weights* weights, int row) {
    carry(ctx, "rows", CarriedRow{weights, row, Path::kernels});
    return scaled(x, *weights, row);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const CarriedRow& of = carried<CarriedRow>(ctx, "rows");
    return {scaled(d[0], *of.weights, of.row), {}, {}};
  }

 private:
  static at::Tensor scaled(const at::Tensor& x, const Weights& weights, int row) {
    return x * weights.weight({row, 1}).to(x.scalar_type());
  }
};

}  // namespace

at::Tensor Ops::add_rows(const at::Tensor& x_ND, const at::Tensor& positions_N, int row) {
  return AddRows::apply(x_ND, positions_N, CarriedRow{&weights_, row, path_});
}

at::Tensor Ops::add_positions(const at::Tensor& x_ND, int row, const Sequence& sequence) {
  return add_rows(x_ND, sequence.positions + sequence.first_position, row);
}

at::Tensor Ops::embedding(const at::Tensor& ids_N, int row) {
  at::Tensor x_ND = at::index_select(weights_.weight({row, 1}), 0, ids_N);
  const Projection projection = Ops::projection({row, 1});
  for (const AdaptedPart& part : projection.adapted())
    part.adapted->math->embed(projection, part, ids_N, x_ND);
  return x_ND;
}

void Ops::embedding_backward(const at::Tensor& ids_N, const at::Tensor& d_x_ND, int row) {
  const GradientSlot slot = weights_.gradient({row, 1});
  if (slot.tensor.defined()) embedding_gradient(ids_N, d_x_ND, slot.tensor, slot.accumulate, path_);
  const Projection projection = Ops::projection({row, 1});
  for (const AdaptedPart& part : projection.adapted())
    part.adapted->math->embed_backward(projection, part, ids_N, d_x_ND);
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

at::Tensor Ops::norm(const at::Tensor& x_ND, const Norm& norm) {
  return NormFunction::apply(x_ND, CarriedNorm{&weights_, norm}, path_);
}

std::pair<at::Tensor, at::Tensor> Ops::add_norm(const at::Tensor& x_ND,
                                                const at::Tensor& residual_ND, const Norm& norm) {
  auto both = AddNorm::apply(x_ND, residual_ND, CarriedNorm{&weights_, norm}, path_);
  return {both[0], both[1]};
}

at::Tensor Ops::norm_linear(const at::Tensor& x_ND, const Norm& norm, RowRange rows) {
  return NormLinear::apply(x_ND, NormedProjection{norm, projection(rows), recompute_});
}

std::pair<at::Tensor, at::Tensor> Ops::add_norm_linear(const at::Tensor& x_ND,
                                                       const at::Tensor& residual_ND,
                                                       const Norm& norm, RowRange rows) {
  auto both =
      AddNormLinear::apply(x_ND, residual_ND, NormedProjection{norm, projection(rows), recompute_});
  return {both[0], both[1]};
}

at::Tensor Ops::activated_linear(const at::Tensor& gate_up, const Activation& activation,
                                 RowRange parameters, RowRange rows) {
  return ActivatedLinear::apply(gate_up,
                                CarriedActivation{activation, &weights_, parameters, path_},
                                projection(rows), recompute_);
}

at::Tensor Ops::activate(const at::Tensor& gate_up, const Activation& activation,
                         RowRange parameters) {
  return Activate::apply(gate_up, CarriedActivation{activation, &weights_, parameters, path_});
}

at::Tensor Ops::gate(const at::Tensor& x_ND, const at::Tensor& gate) {
  return Gate::apply(x_ND, gate);
}

at::Tensor Ops::scale(const at::Tensor& x_ND, double factor) {
  return x_ND * factor;
}

at::Tensor Ops::scale_by(const at::Tensor& x_ND, int row) {
  return ScaleBy::apply(x_ND, &weights_, row);
}

at::Tensor Ops::add(const at::Tensor& x_ND, const at::Tensor& y_ND) {
  return x_ND + y_ND;
}

}  // namespace finetune::model
