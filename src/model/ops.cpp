// SPDX-License-Identifier: Apache-2.0
#include "model/ops.hpp"

#include <algorithm>
#include <cmath>

#include "model/activations.hpp"
#include "model/autograd_context.hpp"

namespace finetune::model {
namespace {

/// dW into the slot; returns dx.
at::Tensor linear_backward(Weights& weights, RowRange rows, const at::Tensor& dy_NF,
                           const at::Tensor& x_ND) {
  add_product(weights.gradient(rows), dy_NF, x_ND);
  return at::mm(dy_NF, weights.weight(rows));
}

struct Linear : torch::autograd::Function<Linear> {
  static Variable forward(AutogradContext* ctx, const Variable& x, Weights* weights,
                          RowRange rows) {
    ctx->save_for_backward({x});
    save_rows(ctx, *weights, rows);
    return at::mm(x, weights->weight(rows).t());
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const Variable x = ctx->get_saved_variables()[0];
    return {linear_backward(saved_weights(ctx), saved_rows(ctx), d[0], x), {}, {}};
  }
};

/// In place: the product before saved its input, not this.
struct AddBias : torch::autograd::Function<AddBias> {
  static Variable forward(AutogradContext* ctx, const Variable& x, Weights* weights,
                          RowRange rows) {
    save_rows(ctx, *weights, rows);
    at::Tensor sum = x;
    return sum.add_(weights->weight(rows));
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    add_vector(saved_weights(ctx).gradient(saved_rows(ctx)), d[0].sum(0, false, at::kFloat));
    return {d[0], {}, {}};
  }
};

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Variable forward(AutogradContext* ctx, const Variable& x, Weights* weights, int row,
                          double eps, Path path) {
    auto [y, rstd] = rms_norm_forward(x, weights->weight({row, 1}), eps, path);
    ctx->save_for_backward({x, rstd});
    save_path(ctx, path);
    save_rows(ctx, *weights, {row, 1});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = ctx->get_saved_variables();
    Weights& weights = saved_weights(ctx);
    auto [dx, dw] = rms_norm_backward(d[0], saved[0], weights.weight(saved_rows(ctx)), saved[1], {},
                                      saved_path(ctx));
    add_vector(weights.gradient(saved_rows(ctx)), dw);
    return {dx, {}, {}, {}, {}};
  }
};

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const Variable& x, const Variable& residual,
                               Weights* weights, int row, double eps, Path path) {
    auto [h, y, rstd] = add_rms_norm_forward(x, residual, weights->weight({row, 1}), eps, path);
    ctx->save_for_backward({h, rstd});
    save_path(ctx, path);
    save_rows(ctx, *weights, {row, 1});
    return {h, y};
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = ctx->get_saved_variables();
    Weights& weights = saved_weights(ctx);
    auto [dx, dw] = rms_norm_backward(d[1], saved[0], weights.weight(saved_rows(ctx)), saved[1],
                                      d[0], saved_path(ctx));
    add_vector(weights.gradient(saved_rows(ctx)), dw);
    return {dx, dx, {}, {}, {}, {}};
  }
};

/// How a product keeps its input, and what computes that again.
struct Keep {
  Recompute recompute;
  Path path;
};

/// A norm's row and epsilon, and the rows of the product that reads it.
struct NormedRows {
  int norm_row = 0;
  RowRange rows;
  double eps = 0;
};

/// `h_ND` is what was normed to `normed_ND`, which is kept only if it is not computed again.
void save_norm_linear(AutogradContext* ctx, Weights& weights, const NormedRows& of, Keep keep,
                      variable_list h_and_rstd, const at::Tensor& normed_ND) {
  if (keep.recompute == Recompute::nothing) h_and_rstd.push_back(normed_ND);
  ctx->save_for_backward(std::move(h_and_rstd));
  save_rows(ctx, weights, of.rows);
  save_path(ctx, keep.path);
  ctx->saved_data["norm"] = std::int64_t{of.norm_row};
  ctx->saved_data["eps"] = of.eps;
}

/// dh, with the gradient that reaches h by the residual, if any.
at::Tensor norm_linear_backward(AutogradContext* ctx, const at::Tensor& dy_NF,
                                const at::Tensor& d_residual_ND) {
  const auto saved = ctx->get_saved_variables();
  Weights& weights = saved_weights(ctx);
  const RowRange norm{static_cast<int>(ctx->saved_data.at("norm").toInt()), 1};
  at::Tensor normed =
      saved.size() > 2
          ? saved[2]
          : std::get<0>(rms_norm_forward(saved[0], weights.weight(norm),
                                         ctx->saved_data.at("eps").toDouble(), saved_path(ctx)));
  const at::Tensor d_normed = linear_backward(weights, saved_rows(ctx), dy_NF, normed);
  normed.reset();
  auto [dh, dw] = rms_norm_backward(d_normed, saved[0], weights.weight(norm), saved[1],
                                    d_residual_ND, saved_path(ctx));
  add_vector(weights.gradient(norm), dw);
  return dh;
}

struct NormLinear : torch::autograd::Function<NormLinear> {
  static Variable forward(AutogradContext* ctx, const Variable& x, Weights* weights,
                          const NormedRows& of, Keep keep) {
    auto [normed, rstd] = rms_norm_forward(x, weights->weight({of.norm_row, 1}), of.eps, keep.path);
    save_norm_linear(ctx, *weights, of, keep, {x, rstd}, normed);
    return at::mm(normed, weights->weight(of.rows).t());
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    return {norm_linear_backward(ctx, d[0], {}), {}, {}, {}};
  }
};

struct AddNormLinear : torch::autograd::Function<AddNormLinear> {
  static variable_list forward(AutogradContext* ctx, const Variable& x, const Variable& residual,
                               Weights* weights, const NormedRows& of, Keep keep) {
    auto [h, normed, rstd] =
        add_rms_norm_forward(x, residual, weights->weight({of.norm_row, 1}), of.eps, keep.path);
    save_norm_linear(ctx, *weights, of, keep, {h, rstd}, normed);
    return {h, at::mm(normed, weights->weight(of.rows).t())};
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const at::Tensor dh = norm_linear_backward(ctx, d[1], d[0]);
    return {dh, dh, {}, {}, {}};
  }
};

struct SwigluLinear : torch::autograd::Function<SwigluLinear> {
  static Variable forward(AutogradContext* ctx, const Variable& gate_up, Weights* weights,
                          RowRange rows, Keep keep) {
    const at::Tensor activated = swiglu_forward(gate_up, keep.path);
    variable_list kept{gate_up};
    if (keep.recompute == Recompute::nothing) kept.push_back(activated);
    ctx->save_for_backward(std::move(kept));
    save_rows(ctx, *weights, rows);
    save_path(ctx, keep.path);
    return at::mm(activated, weights->weight(rows).t());
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = ctx->get_saved_variables();
    at::Tensor activated = saved.size() > 1 ? saved[1] : swiglu_forward(saved[0], saved_path(ctx));
    const at::Tensor d_activated =
        linear_backward(saved_weights(ctx), saved_rows(ctx), d[0], activated);
    activated.reset();
    return {swiglu_backward(d_activated, saved[0], saved_path(ctx)), {}, {}, {}};
  }
};

struct Swiglu : torch::autograd::Function<Swiglu> {
  static Variable forward(AutogradContext* ctx, const Variable& gate_up, Path path) {
    ctx->save_for_backward({gate_up});
    save_path(ctx, path);
    return swiglu_forward(gate_up, path);
  }
  static variable_list backward(AutogradContext* ctx, variable_list d) {
    return {swiglu_backward(d[0], ctx->get_saved_variables()[0], saved_path(ctx)), {}};
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

at::Tensor Ops::linear(const at::Tensor& x_ND, RowRange rows) {
  return Linear::apply(x_ND, &weights_, rows);
}

at::Tensor Ops::add_bias(const at::Tensor& x_NF, RowRange rows) {
  return AddBias::apply(x_NF, &weights_, rows);
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
  return NormLinear::apply(x_ND, &weights_, NormedRows{norm_row, rows, eps},
                           Keep{recompute_, path_});
}

std::pair<at::Tensor, at::Tensor> Ops::add_norm_linear(const at::Tensor& x_ND,
                                                       const at::Tensor& residual_ND, int norm_row,
                                                       RowRange rows, double eps) {
  auto both = AddNormLinear::apply(x_ND, residual_ND, &weights_, NormedRows{norm_row, rows, eps},
                                   Keep{recompute_, path_});
  return {both[0], both[1]};
}

at::Tensor Ops::swiglu_linear(const at::Tensor& gate_up, RowRange rows) {
  return SwigluLinear::apply(gate_up, &weights_, rows, Keep{recompute_, path_});
}

at::Tensor Ops::swiglu(const at::Tensor& gate_up) {
  return Swiglu::apply(gate_up, path_);
}

at::Tensor Ops::logits(const at::Tensor& x_ND, int row) {
  return at::mm(x_ND, weights_.weight({row, 1}).t()).to(at::kFloat);
}

LossSum Ops::loss(const at::Tensor& x_ND, const at::Tensor& labels_N, int row) {
  return chunked_loss(x_ND, labels_N, row, 1.0, nullptr);
}

LossSum Ops::loss_and_gradient(const at::Tensor& x_ND, const at::Tensor& labels_N, int row,
                               double scale, at::Tensor& d_x_ND) {
  return chunked_loss(x_ND, labels_N, row, scale, &d_x_ND);
}

LossSum Ops::chunked_loss(const at::Tensor& x_ND, const at::Tensor& labels_N, int row, double scale,
                          at::Tensor* d_x_ND) {
  const at::NoGradGuard no_autograd;
  LossSum sum;
  sum.correct = at::ones(labels_N.sizes(), labels_N.options().dtype(at::kBool));
  // A prompt's tokens have neither loss nor gradient: the head sees the trained ones alone.
  const at::Tensor trained = labels_N.ge(0).nonzero().squeeze(1);
  const bool all_trained = trained.numel() == labels_N.numel();
  const at::Tensor x = all_trained ? x_ND : x_ND.index_select(0, trained);
  const at::Tensor labels = all_trained ? labels_N : labels_N.index_select(0, trained);
  at::Tensor d_x;
  if (d_x_ND != nullptr) d_x = at::empty_like(x);
  const at::Tensor correct = trained_loss(x, labels, row, scale, d_x, sum);
  sum.correct.index_put_({trained}, correct);
  if (d_x_ND == nullptr) return sum;
  *d_x_ND = all_trained ? d_x : at::zeros_like(x_ND).index_copy_(0, trained, d_x);
  return sum;
}

at::Tensor Ops::trained_loss(const at::Tensor& x_ND, const at::Tensor& labels_N, int row,
                             double scale, const at::Tensor& d_x_ND, LossSum& sum) {
  // Few chunks keep the products large; many keep the logits small. 1,024 tokens lose nothing
  // measurable against one chunk.
  constexpr std::int64_t chunk = 1024;
  const at::Tensor weight = weights_.weight({row, 1});
  const std::int64_t num_tokens = x_ND.size(0);
  at::Tensor correct = at::empty({num_tokens}, labels_N.options().dtype(at::kBool));
  at::Tensor loss = at::zeros({}, x_ND.options().dtype(at::kDouble));
  for (std::int64_t first = 0; first < num_tokens; first += chunk) {
    const std::int64_t count = std::min(chunk, num_tokens - first);
    const at::Tensor x = x_ND.narrow(0, first, count);
    at::Tensor logits = at::mm(x, weight.t());
    at::Tensor hits = correct.narrow(0, first, count);
    loss.add_(cross_entropy(logits, labels_N.narrow(0, first, count), hits,
                            d_x_ND.defined() ? std::optional<double>(scale) : std::nullopt, path_));
    if (!d_x_ND.defined()) continue;
    add_product(weights_.gradient({row, 1}), logits, x);  // logits now hold their gradient
    at::Tensor d_x = d_x_ND.narrow(0, first, count);
    at::mm_out(d_x, logits, weight);
  }
  // After all chunks: on a GPU the host waits here.
  sum.loss = loss.item<double>();
  sum.num_targets = num_tokens;
  return correct;
}

}  // namespace finetune::model
