// SPDX-License-Identifier: Apache-2.0
// The ops that copy channels, such as those between latents and fused queries, keys and values, and
// their gradients.

#include <array>
#include <utility>

#include "model/detail/autograd_context.hpp"
#include "model/gathered_tokens.hpp"
#include "model/ops.hpp"

namespace finetune::model {
namespace {

struct Split : torch::autograd::Function<Split> {
  static variable_list forward(AutogradContext*, const Variable& x,
                               const std::vector<std::int64_t>& widths) {
    variable_list parts;
    std::int64_t first = 0;
    for (const std::int64_t width : widths) {
      // Never a view, whatever its number of rows: later ops change what they read in place.
      parts.push_back(at::narrow_copy(x, 1, first, width));
      first += width;
    }
    return parts;
  }
  static variable_list backward(AutogradContext*, const variable_list& d) {
    return {at::cat(d, 1), {}};
  }
};

/// The parts of tensors whose heads have `LatentHeads`, as views [N, H, channels].
struct SplitHeads {
  at::Tensor turned, unturned;
};

/// Of what the product gives: those that turn come last.
SplitHeads of_product(const at::Tensor& q, const LatentHeads& of) {
  const at::Tensor heads = q.view({q.size(0), of.num_heads, of.unturned + of.turned});
  return {heads.narrow(2, of.unturned, of.turned), heads.narrow(2, 0, of.unturned)};
}

/// Keys and values of what the product gives.
std::array<at::Tensor, 2> keys_and_values(const at::Tensor& kv, const LatentHeads& of) {
  const at::Tensor heads = kv.view({kv.size(0), of.num_heads, of.unturned + of.value_size});
  return {heads.narrow(2, 0, of.unturned), heads.narrow(2, of.unturned, of.value_size)};
}

/// Queries (0), keys (1) or values (2) of a fused tensor [N, H, K].
at::Tensor fused_part(const at::Tensor& qkv, std::int64_t i, const LatentHeads& of) {
  return qkv.view({qkv.size(0), 3, of.num_heads, of.head_size}).select(1, i);
}

/// Of the fused one: those that turn come first.
SplitHeads of_fused(const at::Tensor& qkv, std::int64_t i, const LatentHeads& of) {
  const at::Tensor heads = fused_part(qkv, i, of);
  return {heads.narrow(2, 0, of.turned), heads.narrow(2, of.turned, of.unturned)};
}

void zero_behind(const at::Tensor& heads_NHK, std::int64_t size) {
  const std::int64_t rest = heads_NHK.size(2) - size;
  if (rest > 0) heads_NHK.narrow(2, size, rest).zero_();
}

struct JoinHeads : torch::autograd::Function<JoinHeads> {
  static Variable forward(AutogradContext* ctx, const Variable& q, const Variable& kv,
                          const Variable& key_NR, const LatentHeads& of) {
    carry(ctx, "heads", of);
    const at::Tensor qkv = at::empty({q.size(0), 3 * of.num_heads * of.head_size}, q.options());
    const SplitHeads from = of_product(q, of), queries = of_fused(qkv, 0, of);
    queries.turned.copy_(from.turned);
    queries.unturned.copy_(from.unturned);
    if (of.query_scale != 1) fused_part(qkv, 0, of).mul_(of.query_scale);
    const auto [of_keys, of_values] = keys_and_values(kv, of);
    const SplitHeads keys = of_fused(qkv, 1, of);
    keys.turned.copy_(key_NR.unsqueeze(1));
    keys.unturned.copy_(of_keys);
    fused_part(qkv, 2, of).narrow(2, 0, of.value_size).copy_(of_values);
    for (const std::int64_t i : {0, 1})
      zero_behind(fused_part(qkv, i, of), of.turned + of.unturned);
    zero_behind(fused_part(qkv, 2, of), of.value_size);
    return qkv;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& d) {
    const auto& of = carried<LatentHeads>(ctx, "heads");
    const at::Tensor d_qkv = d[0].contiguous();
    const std::int64_t tokens = d_qkv.size(0);
    const at::Tensor d_q =
        at::empty({tokens, of.num_heads * (of.unturned + of.turned)}, d_qkv.options());
    const SplitHeads d_queries = of_fused(d_qkv, 0, of), to = of_product(d_q, of);
    to.turned.copy_(d_queries.turned);
    to.unturned.copy_(d_queries.unturned);
    if (of.query_scale != 1) d_q.mul_(of.query_scale);
    const at::Tensor d_kv =
        at::empty({tokens, of.num_heads * (of.unturned + of.value_size)}, d_qkv.options());
    const auto [to_keys, to_values] = keys_and_values(d_kv, of);
    const SplitHeads d_keys = of_fused(d_qkv, 1, of);
    to_keys.copy_(d_keys.unturned);
    to_values.copy_(fused_part(d_qkv, 2, of).narrow(2, 0, of.value_size));
    return {d_q, d_kv, d_keys.turned.sum(1), {}};
  }
};

struct GatherTokens : torch::autograd::Function<GatherTokens> {
  using Travel = std::shared_ptr<const TokenTravel>;

  static Variable forward(AutogradContext* ctx, const Variable& own_nD, const Travel& travel) {
    carry(ctx, "travel", travel);
    return travel->gather(own_nD)->wait();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& d) {
    return {carried<Travel>(ctx, "travel")->scatter(d[0].contiguous())->wait(), {}};
  }
};

struct Join : torch::autograd::Function<Join> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const Variable& y) {
    ctx->saved_data["columns"] = x.size(1);
    return at::cat({x, y}, 1);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& d) {
    const std::int64_t columns = ctx->saved_data.at("columns").toInt();
    return {at::narrow_copy(d[0], 1, 0, columns),
            at::narrow_copy(d[0], 1, columns, d[0].size(1) - columns)};
  }
};

struct LastChannels : torch::autograd::Function<LastChannels> {
  static Variable forward(AutogradContext* ctx, const Variable& x, std::int64_t size) {
    ctx->saved_data["columns"] = x.size(1);
    return at::narrow_copy(x, 1, x.size(1) - size, size);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& d) {
    const std::int64_t columns = ctx->saved_data.at("columns").toInt();
    const at::Tensor dx = at::zeros({d[0].size(0), columns}, d[0].options());
    dx.narrow(1, columns - d[0].size(1), d[0].size(1)).copy_(d[0]);
    return {dx, {}};
  }
};

struct FirstChannels : torch::autograd::Function<FirstChannels> {
  static Variable forward(AutogradContext* ctx, const Variable& x, std::int64_t num,
                          std::int64_t size) {
    ctx->saved_data["num"] = num;
    ctx->saved_data["columns"] = x.size(1);
    // A rank may have no token: sizes are told, none is found out.
    return at::narrow_copy(x.view({x.size(0), num, x.size(1) / num}), 2, 0, size)
        .view({x.size(0), num * size});
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& d) {
    const std::int64_t num = ctx->saved_data.at("num").toInt();
    const std::int64_t columns = ctx->saved_data.at("columns").toInt();
    const at::Tensor d_first = d[0].reshape({d[0].size(0), num, d[0].size(1) / num});
    const at::Tensor dx = at::zeros({d[0].size(0), num, columns / num}, d[0].options());
    dx.narrow(2, 0, d_first.size(2)).copy_(d_first);
    return {dx.view({d[0].size(0), columns}), {}, {}};
  }
};

}  // namespace

at::Tensor gathered_tokens(const at::Tensor& own_nD, std::shared_ptr<const TokenTravel> travel) {
  return GatherTokens::apply(own_nD, std::move(travel));
}

std::vector<at::Tensor> Ops::split(const at::Tensor& x_NF,
                                   std::initializer_list<std::int64_t> widths) {
  return Split::apply(x_NF, std::vector(widths));
}

at::Tensor Ops::join_heads(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& key_NR,
                           const LatentHeads& heads) {
  return JoinHeads::apply(q, kv, key_NR, heads);
}

at::Tensor Ops::join(const at::Tensor& x, const at::Tensor& y) {
  return Join::apply(x, y);
}

at::Tensor Ops::last_channels(const at::Tensor& x, std::int64_t size) {
  return LastChannels::apply(x, size);
}

at::Tensor Ops::first_channels(const at::Tensor& x, std::int64_t num, std::int64_t size) {
  return FirstChannels::apply(x, num, size);
}

}  // namespace finetune::model
