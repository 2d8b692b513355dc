// SPDX-License-Identifier: Apache-2.0
#include "model/context_attention.hpp"

#include <limits>

#include "model/activations.hpp"
#include "model/detail/attention_pieces.hpp"

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

Visible visible_of(const ContextPiece& piece, Bands& bands) {
  switch (piece.sees) {
    case ContextPiece::Sees::causal:
      return {.is_causal = true, .mask = {}};
    case ContextPiece::Sees::band:
      return bands.visible(piece.queries.count, piece.keys.count);
    default:
      return {};
  }
}

/// Weights what was seen before and what is seen now by their shares of all exponentials.
void merge(const ContextPiece& piece, const Attended& attended, MergedAttention& merged) {
  const at::Tensor now_LHK = attended.out[0].transpose(0, 1);
  const at::Tensor now_LH = attended.logsumexp[0].transpose(0, 1);
  at::Tensor out = merged.out_NHK.narrow(0, piece.queries.first, piece.queries.count);
  at::Tensor logsumexp = merged.logsumexp_NH.narrow(0, piece.queries.first, piece.queries.count);
  if (piece.sees != ContextPiece::Sees::all) {
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
  const at::Tensor q = queries_in(qkv, shape);
  Bands bands(shape.window, qkv.device());
  for (const ContextPiece& piece : keys.pieces)
    merge(piece, attend(views_of(q, keys.kv, shape, piece), visible_of(piece, bands), path),
          merged);
}

void attend_merged_backward(const at::Tensor& d_out_NF, const at::Tensor& qkv,
                            const KeysAtHand& keys, const AttentionShape& shape, Path path,
                            const ContextOutput& output, at::Tensor& d_q, at::Tensor& d_kv) {
  const at::Tensor q = queries_in(qkv, shape);
  Bands bands(shape.window, qkv.device());
  for (const ContextPiece& piece : keys.pieces) {
    const TokenRun& run = piece.queries;
    const QkvViews views = views_of(q, keys.kv, shape, piece);
    const Visible visible = visible_of(piece, bands);
    // The softmax over all keys: a part's weights follow from the whole's logarithm.
    Attended attended;
    attended.out = heads_of_run(output.out_NF, run.first, run.count, shape.head_size);
    attended.logsumexp = output.logsumexp_NH.narrow(0, run.first, run.count).t().unsqueeze(0);
    attended.kernel = kernel_for(views, visible, path);
    const QkvViews d = attend_backward(
        heads_of_run(d_out_NF, run.first, run.count, shape.head_size), views, attended, visible);
    const QkvViews target = views_of(d_q, d_kv, shape, piece);
    target.q.add_(d.q);
    target.k.add_(d.k);
    target.v.add_(d.v);
  }
}

}  // namespace finetune::model
