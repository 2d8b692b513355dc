// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: tokens sorted by expert, the products of all experts together, nothing that
// depends on the order of threads. Where an expert is computed is the dispatch's business.

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <tuple>

#include "model/activations.hpp"
#include "model/detail/autograd_context.hpp"
#include "model/detail/expert_copies.hpp"
#include "model/detail/expert_products.hpp"
#include "model/detail/grouped_products.hpp"
#include "model/expert_dispatch.hpp"
#include "model/gradients.hpp"
#include "model/ops.hpp"

namespace finetune::model {
namespace {

/// What the router decided: each token's choices, and the copies of tokens in the experts' order.
struct Routing {
  /// fp32; undefined where nothing needs them. Where experts score apart, the logits instead.
  at::Tensor probabilities_NE;
  at::Tensor chosen_Nk;   ///< int64
  at::Tensor weights_Nk;  ///< fp32
  at::Tensor order;       ///< [N k]: which choice comes i-th, experts in turn
  at::Tensor ends;        ///< [E]: where the rows of each expert end

  std::int64_t top_k() const { return weights_Nk.size(1); }
  at::Tensor tokens() const { return at::floor_divide(order, top_k()); }
  at::Tensor sorted_weights() const { return weights_Nk.flatten().index_select(0, order); }
  /// [N, k]: where the copy for each choice is in the experts' order.
  at::Tensor places() const {
    at::Tensor places = at::empty_like(order);
    places.index_copy_(0, order, at::arange(places.numel(), places.options()));
    return places.view_as(weights_Nk);
  }
};

/// Scores [N, E] with -inf for the experts of groups that a token takes none of.
at::Tensor in_best_groups(const at::Tensor& scores_NE, const Experts& experts) {
  if (experts.num_groups == 1) return scores_NE;
  const at::Tensor by_group = scores_NE.view({scores_NE.size(0), experts.num_groups, -1});
  const std::int64_t summed = std::min(experts.summed_of_group, by_group.size(2));
  const at::Tensor groups = std::get<0>(by_group.topk(summed, 2)).sum(2);
  const at::Tensor best = std::get<1>(groups.topk(experts.top_k_groups, 1));
  const at::Tensor is_out = at::ones_like(groups, at::kBool).scatter_(1, best, false);
  return by_group.masked_fill(is_out.unsqueeze(2), -std::numeric_limits<double>::infinity())
      .view_as(scores_NE);
}

/// The weights of scores [N, k].
at::Tensor weights_of(const at::Tensor& scores, const Experts& experts) {
  constexpr double least_sum = 1e-20;  // sigmoids, and experts that a constant chose, may all be 0
  const at::Tensor weights = !experts.normalizes ? scores
                             : !experts.scores_apart && !experts.corrects_choice
                                 ? scores / scores.sum(1, /*keepdim=*/true)
                                 : scores / scores.sum(1, /*keepdim=*/true).add_(least_sum);
  return experts.weight_scale == 1 ? weights : weights * experts.weight_scale;
}

/// `correction_E`: undefined, or what is added to the scores for the choice; `scales_E`, what the
/// weights of each expert are multiplied by, fp32.
Routing route(const at::Tensor& logits_NE, const at::Tensor& correction_E,
              const at::Tensor& scales_E, const Experts& experts, bool is_balanced) {
  Routing routing;
  const at::Tensor logits = logits_NE.to(at::kFloat);
  if (experts.scores_apart) {
    routing.probabilities_NE = logits;
    const at::Tensor scores = logits.sigmoid();
    const at::Tensor of_choice = correction_E.defined() ? scores + correction_E : scores;
    routing.chosen_Nk = std::get<1>(in_best_groups(of_choice, experts).topk(experts.top_k, 1));
    routing.weights_Nk = weights_of(scores.gather(1, routing.chosen_Nk), experts);
  } else {
    if (!experts.scales_input || is_balanced) routing.probabilities_NE = logits.softmax(1);
    const at::Tensor all = experts.scales_input ? logits : routing.probabilities_NE;
    const at::Tensor of_choice = correction_E.defined() ? all + correction_E : all;
    at::Tensor scores;
    std::tie(scores, routing.chosen_Nk) = in_best_groups(of_choice, experts).topk(experts.top_k, 1);
    if (correction_E.defined()) scores = all.gather(1, routing.chosen_Nk);
    routing.weights_Nk = experts.scales_input ? scores.sigmoid() : weights_of(scores, experts);
  }
  if (scales_E.defined())
    routing.weights_Nk = routing.weights_Nk * scales_E.index({routing.chosen_Nk});
  at::Tensor sorted;
  std::tie(sorted, routing.order) = routing.chosen_Nk.flatten().sort(/*stable=*/true, 0, false);
  const at::Tensor expert = at::arange(experts.num, sorted.options());
  routing.ends = at::searchsorted(sorted, expert, /*out_int32=*/false, /*right=*/true);
  return routing;
}

/// E * (share of each expert in the choices of a token's sample), for every token; 0 for padding.
at::Tensor load_of_samples(const at::Tensor& chosen_Nk, std::int64_t num_experts,
                           const Balance& balance) {
  const auto options = chosen_Nk.options().dtype(at::kFloat);
  const at::Tensor takes =
      at::zeros({chosen_Nk.size(0), num_experts}, options).scatter_(1, chosen_Nk, 1);
  const std::int64_t num_samples = balance.num_samples + 1;  // the last is padding
  const at::Tensor taken =
      at::zeros({num_samples, num_experts}, options).index_add_(0, balance.sample_N, takes);
  const at::Tensor one_N = at::ones({chosen_Nk.size(0)}, options);
  at::Tensor tokens = at::zeros({num_samples}, options).index_add_(0, balance.sample_N, one_N);
  if (balance.sum_over_ranks) {
    balance.sum_over_ranks(taken);
    balance.sum_over_ranks(tokens);
  }
  tokens.clamp_min_(1);
  const at::Tensor load = taken.mul_(static_cast<double>(num_experts)).div_(tokens.unsqueeze(1));
  load[balance.num_samples].zero_();
  return load.index_select(0, balance.sample_N);
}

at::Tensor is_token(const Balance& balance) {
  return balance.sample_N.ne(balance.num_samples);
}

/// Adds the choices of a layer's tokens, padding left out.
void count_choices(const at::Tensor& chosen_Nk, Balance& balance) {
  const at::Tensor counts_Nk = is_token(balance).to(at::kFloat).unsqueeze(1).expand_as(chosen_Nk);
  balance.choices_E.index_add_(0, chosen_Nk.flatten(), counts_Nk.flatten());
}

/// E * (share of each expert in the choices of all tokens and layers); 0 for padding.
at::Tensor load_of_all(const Balance& balance) {
  const auto num_experts = static_cast<double>(balance.choices_E.numel());
  const at::Tensor load_E = balance.choices_E * (num_experts / balance.num_choosing);
  return is_token(balance).to(at::kFloat).unsqueeze(1) * load_E;
}

/// Gradient of the weights to one of the scores that they are of, `scores`; all [N, k].
at::Tensor scores_backward(const at::Tensor& d_weights, const at::Tensor& weights,
                           const at::Tensor& scores, const Experts& experts) {
  const double scale = experts.weight_scale;
  const at::Tensor d_shares = scale == 1 ? d_weights : d_weights * scale;
  if (!experts.normalizes) return d_shares;
  const at::Tensor shares = scale == 1 ? weights : weights / scale;
  return (d_shares - (d_shares * shares).sum(1, true)) / scores.sum(1, true);
}

/// Gradient of the weights to one of the router's logits [N, E], fp32; adds to `balance`.
at::Tensor router_backward(const at::Tensor& d_weights_Nk, const Routing& routing,
                           const Experts& experts, Balance* balance) {
  const at::Tensor& weights = routing.weights_Nk;
  at::Tensor d_logits = at::zeros({weights.size(0), experts.num}, weights.options());
  at::Tensor d_probabilities;
  if (experts.scales_input) {
    d_logits.scatter_(1, routing.chosen_Nk, d_weights_Nk * weights * (1 - weights));
  } else if (experts.scores_apart) {
    const at::Tensor scores = routing.probabilities_NE.gather(1, routing.chosen_Nk).sigmoid_();
    const at::Tensor d_scores = scores_backward(d_weights_Nk, weights, scores, experts);
    d_logits.scatter_(1, routing.chosen_Nk, at::sigmoid_backward(d_scores, scores));
  } else {
    const at::Tensor scores = routing.probabilities_NE.gather(1, routing.chosen_Nk);
    d_probabilities = at::zeros_like(d_logits).scatter_(
        1, routing.chosen_Nk, scores_backward(d_weights_Nk, weights, scores, experts));
  }
  at::Tensor p = routing.probabilities_NE;
  if (experts.scores_apart && balance != nullptr) p = p.softmax(1);
  if (balance != nullptr) {
    const at::Tensor load = balance->choices_E.defined()
                                ? load_of_all(*balance)
                                : load_of_samples(routing.chosen_Nk, experts.num, *balance);
    balance->sum.add_((load * p).sum(at::kDouble));
    const at::Tensor d_balance = load * balance->scale;
    d_probabilities = d_probabilities.defined() ? d_probabilities + d_balance : d_balance;
  }
  if (d_probabilities.defined()) {
    d_logits.add_(p * (d_probabilities - (d_probabilities * p).sum(1, /*keepdim=*/true)));
  }
  return d_logits;
}

/// Copies of the tokens in the experts' order, scaled where the weight goes on the input.
at::Tensor inputs_of(const at::Tensor& x_ND, const Routing& routing, const Experts& experts,
                     Path path) {
  return copies_of(x_ND, routing.tokens(),
                   experts.scales_input ? routing.sorted_weights() : at::Tensor(), path);
}

/// What a layer's experts are; what it points to outlives a step's graph.
struct ExpertLayer {
  Weights* weights;
  ExpertRows rows;
  Experts experts;
  Balance* balance;
  const ExpertDispatch* dispatch;
  std::shared_ptr<const TokenTravel> travel;  ///< null: a rank has all tokens
  bool uses_adapter = true;

  at::Tensor all_tokens(const at::Tensor& x_ND) const {
    return travel ? travel->gather(x_ND)->wait() : x_ND;
  }
  at::Tensor own_sums(const at::Tensor& terms_ND) const {
    return travel ? travel->scatter(terms_ND)->wait() : terms_ND;
  }
  at::Tensor router_logits(const at::Tensor& x, Path path) const {
    const at::Tensor logits = matmul(x, weights->matrix({rows.router, 1}), path);
    return rows.router_bias < 0 ? logits : logits + weights->weight({rows.router_bias, 1});
  }
  at::Tensor scales() const {
    return rows.scales < 0 ? at::Tensor() : weights->weight({rows.scales, 1}).to(at::kFloat);
  }
  /// The gradient of the weights that the scales are put on, and these, by that of the weights
  /// behind them; adds the scales' own.
  at::Tensor scales_backward(const at::Tensor& d_weights_Nk, Routing& routing) const {
    if (rows.scales < 0) return d_weights_Nk;
    const at::Tensor scores = routing.probabilities_NE.gather(1, routing.chosen_Nk);
    routing.weights_Nk = weights_of(scores, experts);
    // Of each token every expert's term, so that the order of the sum is always the same.
    const at::Tensor terms_NE =
        at::zeros({scores.size(0), experts.num}, scores.options())
            .scatter_(1, routing.chosen_Nk, d_weights_Nk * routing.weights_Nk);
    add_vector(weights->gradient({rows.scales, 1}), terms_NE.sum(0));
    return d_weights_Nk * scales().index({routing.chosen_Nk});
  }
  at::Tensor correction() const {
    return rows.correction < 0 ? at::Tensor() : weights->weight({rows.correction, 1});
  }
  ExpertTensors tensors() const {
    return rows.stride == 0 ? ExpertTensors::fused : ExpertTensors::separate;
  }
  ExpertProducts products(const ExpertRoute& route, const at::Tensor& x, Path path) const {
    const bool may_group = has_grouped_products(x.device(), x.scalar_type());
    return {*weights, rows, route.held(), route.counts(), may_group, path, uses_adapter};
  }
};

using Route = std::shared_ptr<const ExpertRoute>;
using enum ExpertProducts::Projection;

struct ExpertsFunction : torch::autograd::Function<ExpertsFunction> {
  /// `routed`: this rank's tokens as the router reads them; nothing: `own_x`.
  static Variable forward(AutogradContext* ctx, const Variable& own_x,
                          const std::optional<Variable>& routed, const ExpertLayer& layer,
                          Recompute recompute, Path path) {
    const at::Tensor own_routed = routed.value_or(at::Tensor());
    at::Tensor x = layer.all_tokens(own_x);
    const Experts& experts = layer.experts;
    const at::Tensor logits =
        layer.router_logits(own_routed.defined() ? layer.all_tokens(own_routed) : x, path);
    Balance* balance = layer.balance;
    const Routing routing =
        model::route(logits, layer.correction(), layer.scales(), experts, balance != nullptr);
    if (balance != nullptr && balance->choices_E.defined() && balance->is_counting)
      count_choices(routing.chosen_Nk, *balance);
    const Route route = layer.dispatch->route(routing.ends, layer.tensors());
    const ExpertProducts products = layer.products(*route, x, path);
    at::Tensor inputs = route->there(inputs_of(x, routing, experts, path));
    const at::Tensor hidden = products.product(inputs, gate_up, experts.inner(experts.d_ff));
    inputs.reset();
    x.reset();
    const at::Tensor activated = activate(hidden, experts.activation, path);
    at::Tensor outputs = route->back(products.product(activated, down, own_x.size(1)));

    variable_list kept{own_x,
                       routing.probabilities_NE,
                       routing.chosen_Nk,
                       routing.weights_Nk,
                       routing.order,
                       hidden,
                       own_routed};
    if (recompute == Recompute::nothing) kept.push_back(activated);
    keep(ctx, std::move(kept));
    carry(ctx, "route", route);
    carry(ctx, "layer", layer);
    save_path(ctx, path);
    const at::Tensor weights = experts.scales_input ? at::Tensor() : routing.weights_Nk;
    return layer.own_sums(add_copies(std::move(outputs), routing.places(), weights, path));
  }

  static variable_list backward(AutogradContext* ctx, variable_list d) {
    const auto saved = kept(ctx);
    const auto& layer = carried<ExpertLayer>(ctx, "layer");
    const ExpertRoute& route = *carried<Route>(ctx, "route");
    const Experts& experts = layer.experts;
    Routing routing{saved[1], saved[2], saved[3], saved[4], {}};
    const at::Tensor& hidden = saved[5];
    const Path path = saved_path(ctx);
    const ExpertProducts products = layer.products(route, saved[0], path);

    // d_outputs: gradient of an expert's weighted output; d_plain: of its own output.
    const at::Tensor sorted_weights = routing.sorted_weights();
    at::Tensor d_outputs =
        route.there(copies_of(layer.all_tokens(d[0]), routing.tokens(), {}, path));
    at::Tensor weights_there, d_plain = d_outputs;
    if (!experts.scales_input) {
      weights_there = route.there(sorted_weights);
      d_plain = copies_of(d_outputs, {}, weights_there, path);
    }
    at::Tensor activated = saved.size() > 7 ? saved[7] : activate(hidden, experts.activation, path);
    at::Tensor d_activated = products.backward(d_outputs, down, experts.d_ff);
    products.add_gradients(d_plain, activated, down);
    at::Tensor d_sorted_weights;
    if (!experts.scales_input) {
      at::Tensor d_weights_there = dot_and_scale_rows(d_activated, activated, weights_there, path);
      if (const at::Tensor of_biases = products.dots_with_biases(d_outputs, down);
          of_biases.defined())
        d_weights_there.add_(of_biases);
      d_sorted_weights = route.back(d_weights_there);
    }
    activated.reset();
    d_outputs.reset();
    d_plain.reset();
    at::Tensor d_gate_up = activate_backward(d_activated, hidden, experts.activation, path);
    d_activated.reset();
    at::Tensor x = layer.all_tokens(saved[0]);
    at::Tensor inputs = route.there(inputs_of(x, routing, experts, path));
    at::Tensor d_inputs = products.backward(d_gate_up, gate_up, x.size(1));
    products.add_gradients(d_gate_up, inputs, gate_up);
    d_gate_up.reset();
    inputs.reset();
    d_inputs = route.back(d_inputs);
    if (experts.scales_input) {
      const at::Tensor copies = copies_of(x, routing.tokens(), {}, path);
      d_sorted_weights = dot_and_scale_rows(d_inputs, copies, sorted_weights, path);
    }
    const at::Tensor d_weights = at::empty_like(routing.weights_Nk);
    d_weights.view({-1}).index_copy_(0, routing.order, d_sorted_weights);
    const at::Tensor d_plain_weights = layer.scales_backward(d_weights, routing);
    const at::Tensor d_logits =
        router_backward(d_plain_weights, routing, experts, layer.balance).to(x.scalar_type());
    const RowRange router{layer.rows.router, 1};
    const at::Tensor& own_routed = saved[6];
    if (own_routed.defined()) x = layer.all_tokens(own_routed);
    add_product(layer.weights->gradient(router), d_logits, x, path);
    if (const RowRange bias{layer.rows.router_bias, 1}; layer.rows.router_bias >= 0)
      add_vector(layer.weights->gradient(bias), d_logits.sum(0, /*keepdim=*/false, at::kFloat));
    x.reset();
    const at::Tensor dx = add_copies(std::move(d_inputs), routing.places(), {}, path);
    at::Tensor d_routed = matmul_backward(d_logits, layer.weights->matrix(router), path);
    if (own_routed.defined()) return {layer.own_sums(dx), layer.own_sums(d_routed), {}, {}, {}};
    return {layer.own_sums(dx + d_routed), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor Ops::experts(const at::Tensor& x_ND, const at::Tensor& routed_ND, const ExpertRows& rows,
                        const Experts& experts, const Sequence& sequence) {
  static const HeldExperts all;
  return experts_by(all, x_ND, routed_ND, rows, experts, sequence);
}

at::Tensor Ops::experts_by(const ExpertDispatch& dispatch, const at::Tensor& x_ND,
                           const at::Tensor& routed_ND, const ExpertRows& rows,
                           const Experts& experts, const Sequence& sequence,
                           std::shared_ptr<const TokenTravel> travel) {
  const ExpertLayer layer{&weights_,         rows,         experts, sequence.balance, &dispatch,
                          std::move(travel), uses_adapter_};
  return ExpertsFunction::apply(x_ND, routed_ND.defined() ? std::optional(routed_ND) : std::nullopt,
                                layer, recompute_, path_);
}

}  // namespace finetune::model
