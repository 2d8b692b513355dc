// SPDX-License-Identifier: Apache-2.0
#include "model/context_attention.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "model/activations.hpp"
#include "model/attention_sinks.hpp"
#include "model/detail/attention_pieces.hpp"
#include "model/gpu_attention.hpp"

namespace finetune::model {
namespace {

QkvViews views_of(const at::Tensor& q, const at::Tensor& kv, const AttentionShape& shape,
                  const ContextPiece& piece) {
  const std::int64_t width = shape.num_kv_heads * shape.head_size;
  const auto keys = [&](std::int64_t first) {
    return heads_of_run(kv.narrow(1, first, width), piece.keys.first, piece.keys.count,
                        shape.head_size);
  };
  return {heads_of_run(q, piece.queries.first, piece.queries.count, shape.head_size), keys(0),
          keys(width)};
}

at::Tensor queries_in(const at::Tensor& qkv, const AttentionShape& shape) {
  return qkv.narrow(1, 0, shape.num_heads * shape.head_size);
}

/// And values.
at::Tensor keys_in(const at::Tensor& qkv, const AttentionShape& shape) {
  return qkv.narrow(1, shape.num_heads * shape.head_size, 2 * shape.num_kv_heads * shape.head_size);
}

using Sees = ContextPiece::Sees;

/// target += added, in fp32 [1, heads, tokens, K]. On a host, ATen would widen a copy of all that
/// is added.
void add_in_fp32(at::Tensor& target, const at::Tensor& added) {
  constexpr std::int64_t tokens_at_once = 1024;
  if (!added.is_cpu()) {
    target.add_(added);
    return;
  }
  for (std::int64_t first = 0; first < added.size(2); first += tokens_at_once) {
    const std::int64_t count = std::min(tokens_at_once, added.size(2) - first);
    target.narrow(2, first, count).add_(added.narrow(2, first, count));
  }
}

/// Who computes pieces: on a GPU one launch all causal ones, and one each of the others.
class PieceMath {
 public:
  PieceMath(const at::Tensor& qkv, const KeysAtHand& keys, const AttentionShape& shape, Path path)
      : qkv_(qkv),
        keys_(keys),
        shape_(shape),
        path_(path),
        is_launch_(is_launch_per_run(qkv, shape, path)),
        bands_(shape, qkv.device()) {
    own_shape_.chunk = 0;  // the runs are cut already
  }

  /// Of all causal pieces together; undefined: each is computed by itself.
  AttendedPass causal() const {
    if (!is_launch_ || !has_causal()) return {};
    return attend_in_one_launch(qkv_, own_shape_, keys_.own, Sinks());
  }
  at::Tensor causal_backward(const at::Tensor& d_out_NF, const ContextOutput& output) const {
    if (!is_launch_ || !has_causal()) return {};
    AttendedPass attended{output.out_NF, std::vector<Attended>(1)};
    attended.pieces[0].logsumexp = output.logsumexp_NH.t().contiguous();
    return attend_in_one_launch_backward(d_out_NF, qkv_, own_shape_, keys_.own, attended, Sinks());
  }

  QkvViews views(const ContextPiece& piece) const {
    return views_of(queries_in(qkv_, shape_), keys_.kv, shape_, piece);
  }

  Attended attend(const ContextPiece& piece) {
    if (is_launch_) return attend_run(views(piece), sight(piece));
    return model::attend(views(piece), visible(piece), path_);
  }

  /// With `out` and `logsumexp` of all keys: a part's weights follow from the whole's logarithm.
  QkvViews backward(const ContextPiece& piece, const at::Tensor& d_out, Attended attended) {
    const QkvViews views = this->views(piece);
    if (is_launch_) return attend_run_backward(d_out, views, attended, sight(piece));
    attended.kernel = kernel_for(views, visible(piece), path_);
    return attend_backward(d_out, views, attended, visible(piece));
  }

 private:
  /// Where a window counts, some runs are bands, which such a launch would take for causal.
  bool has_causal() const {
    return shape_.window == 0 && std::ranges::any_of(keys_.pieces, [](const ContextPiece& piece) {
             return piece.sees == Sees::causal;
           });
  }

  RunSight sight(const ContextPiece& piece) const {
    return {.is_causal = piece.sees != Sees::all,
            .window = piece.sees == Sees::band ? shape_.window : 0};
  }

  Visible visible(const ContextPiece& piece) {
    if (piece.sees == Sees::causal) return causal_sight(shape_);
    if (piece.sees == Sees::all) return {.softcap = shape_.softcap};
    return bands_.visible(piece.queries.count, piece.keys.count);
  }

  const at::Tensor& qkv_;
  const KeysAtHand& keys_;
  const AttentionShape& shape_;
  AttentionShape own_shape_ = shape_;
  Path path_;
  bool is_launch_;
  Bands bands_;
};

/// Heads of all tokens [1, H, N, K], a view.
at::Tensor heads_of_tokens(const at::Tensor& x_NF, const AttentionShape& shape) {
  return heads_of_run(x_NF, 0, x_NF.size(0), shape.head_size);
}

/// [1, H, N], a view.
at::Tensor logsumexp_by_head(const at::Tensor& logsumexp_NH) {
  return logsumexp_NH.t().unsqueeze(0);
}

/// Weights what was seen before and what is seen now by their shares of all exponentials.
void merge(const ContextPiece& piece, const Attended& attended, MergedAttention& merged) {
  const at::Tensor now_LHK = attended.out[0].transpose(0, 1);
  const at::Tensor now_LH = attended.logsumexp[0].transpose(0, 1);
  at::Tensor out = merged.out_NHK.narrow(0, piece.queries.first, piece.queries.count);
  at::Tensor logsumexp = merged.logsumexp_NH.narrow(0, piece.queries.first, piece.queries.count);
  if (piece.sees != Sees::all) {
    out.copy_(now_LHK);
    logsumexp.copy_(now_LH);
    return;
  }
  const at::Tensor sum = at::logaddexp(logsumexp, now_LH);
  out.mul_((logsumexp - sum).exp_().unsqueeze(2));
  out.addcmul_(now_LHK.to(at::kFloat), (now_LH - sum).exp_().unsqueeze(2));
  logsumexp.copy_(sum);
}

}  // namespace

MergedAttention::MergedAttention(std::int64_t num_tokens, const AttentionShape& shape,
                                 at::Device device) {
  const auto options = at::TensorOptions(at::kFloat).device(device);
  out_NHK = at::zeros({num_tokens, shape.num_heads, shape.head_size}, options);
  logsumexp_NH =
      at::full({num_tokens, shape.num_heads}, -std::numeric_limits<double>::infinity(), options);
}

void attend_merged(const at::Tensor& qkv, const KeysAtHand& keys, const AttentionShape& shape,
                   Path path, MergedAttention& merged) {
  PieceMath pieces(qkv, keys, shape, path);
  const AttendedPass causal = pieces.causal();
  if (causal.out.defined()) {
    merged.out_NHK.flatten(1).copy_(causal.out);
    merged.logsumexp_NH.copy_(causal.pieces[0].logsumexp.t());
  }
  for (const ContextPiece& piece : keys.pieces)
    if (piece.sees != Sees::causal || !causal.out.defined())
      merge(piece, pieces.attend(piece), merged);
}

void attend_merged_backward(const at::Tensor& d_out_NF, const at::Tensor& qkv,
                            const KeysAtHand& keys, const AttentionShape& shape, Path path,
                            const ContextOutput& output, at::Tensor& d_q, at::Tensor& d_kv) {
  PieceMath pieces(qkv, keys, shape, path);
  const at::Tensor causal = pieces.causal_backward(d_out_NF, output);
  if (causal.defined()) d_q.add_(queries_in(causal, shape));
  for (const ContextPiece& piece : keys.pieces) {
    const TokenRun& run = piece.queries;
    if (piece.sees == Sees::causal && causal.defined()) {
      d_kv.narrow(0, piece.keys.first, piece.keys.count)
          .add_(keys_in(causal, shape).narrow(0, run.first, run.count));
      continue;
    }
    const auto of_run = [&](const at::Tensor& x_NF) {
      return heads_of_run(x_NF, run.first, run.count, shape.head_size);
    };
    Attended attended;
    attended.out = of_run(output.out_NF);
    attended.logsumexp = output.logsumexp_NH.narrow(0, run.first, run.count).t().unsqueeze(0);
    const QkvViews d = pieces.backward(piece, of_run(d_out_NF), std::move(attended));
    QkvViews target = views_of(d_q, d_kv, shape, piece);
    add_in_fp32(target.q, d.q);
    add_in_fp32(target.k, d.k);
    add_in_fp32(target.v, d.v);
  }
}

void add_sinks(const Sinks& sinks, const AttentionShape& shape, const ContextOutput& output) {
  if (sinks.exist())
    sinks.add_to(heads_of_tokens(output.out_NF, shape), logsumexp_by_head(output.logsumexp_NH));
}

void add_gradient_of_sinks(const Sinks& sinks, const AttentionShape& shape,
                           const at::Tensor& d_out_NF, const ContextOutput& output) {
  if (!sinks.exist()) return;
  Sinks::Gradient gradient(sinks);
  gradient.add(heads_of_tokens(d_out_NF, shape), heads_of_tokens(output.out_NF, shape),
               logsumexp_by_head(output.logsumexp_NH));
  gradient.finish();
}

}  // namespace finetune::model
