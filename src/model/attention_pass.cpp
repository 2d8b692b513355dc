// SPDX-License-Identifier: Apache-2.0
// Attention of a whole pass, where samples lie one after the other and layers may see only what is
// near: cut into pieces that a fused kernel computes without looking at what nobody sees.

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "kernels/few_rows.hpp"
#include "model/activations.hpp"
#include "model/attention_sinks.hpp"
#include "model/context.hpp"
#include "model/detail/attention_pieces.hpp"
#include "model/gpu_attention.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace finetune::model {
namespace {

/// Queries of some tokens and the keys they may see. Without a band the keys are the queries' own
/// tokens, seen causally; with one, they end where the queries do.
struct Piece {
  std::int64_t q_begin = 0, q_length = 0;
  std::int64_t k_begin = 0, k_length = 0;
  bool has_band = false;
};

void add_window(std::vector<Piece>& pieces, std::int64_t begin, std::int64_t length,
                std::int64_t window) {
  const std::int64_t step = queries_a_piece(window);
  for (std::int64_t q = begin; q < begin + length; q += step) {
    const std::int64_t end = std::min(q + step, begin + length);
    const std::int64_t k = std::max(begin, q - window + 1);
    pieces.push_back({q, end - q, k, end - k, true});
  }
}

void add_stretch(std::vector<Piece>& pieces, std::int64_t begin, std::int64_t length,
                 const AttentionShape& shape) {
  const std::int64_t chunk = shape.chunk > 0 ? shape.chunk : length;
  for (std::int64_t first = 0; first < length; first += chunk) {
    const std::int64_t count = std::min(chunk, length - first);
    if (shape.window > 0 && count > shape.window) {
      add_window(pieces, begin + first, count, shape.window);
    } else {
      pieces.push_back({begin + first, count, begin + first, count, false});
    }
  }
}

bool sees_all(const AttentionShape& shape, std::int64_t length) {
  return (shape.window == 0 || length <= shape.window) &&
         (shape.chunk == 0 || length <= shape.chunk);
}

/// Whether no row holds a second sample. What pads a row's end sees the sample, which is of no
/// consequence.
bool has_one_sample_a_row(const Sequence& sequence) {
  return std::all_of(sequence.stretches.begin(), sequence.stretches.end(), [&](const Stretch& s) {
    return s.is_padding || s.begin % sequence.length == 0;
  });
}

std::vector<Piece> pieces_of(const AttentionShape& shape, const Sequence& sequence) {
  std::vector<Piece> pieces;
  if (sequence.stretches.empty()) {
    for (std::int64_t row = 0; row < sequence.batch; ++row)
      add_stretch(pieces, row * sequence.length, sequence.length, shape);
  }
  for (const Stretch& stretch : sequence.stretches)
    if (!stretch.is_padding) add_stretch(pieces, stretch.begin, stretch.length, shape);
  return pieces;
}

bool is_whole(const AttentionShape& shape, const Sequence& sequence) {
  return has_one_sample_a_row(sequence) && sees_all(shape, sequence.length);
}

/// The parts of a fused tensor that a piece reads, or writes the gradient of.
QkvViews views_of(const at::Tensor& qkv, const AttentionShape& shape, const Piece& piece) {
  const std::int64_t q = shape.num_heads * shape.head_size;
  const std::int64_t kv = shape.num_kv_heads * shape.head_size;
  return {heads_of_run(qkv.narrow(1, 0, q), piece.q_begin, piece.q_length, shape.head_size),
          heads_of_run(qkv.narrow(1, q, kv), piece.k_begin, piece.k_length, shape.head_size),
          heads_of_run(qkv.narrow(1, q + kv, kv), piece.k_begin, piece.k_length, shape.head_size)};
}

Visible visible_of(const Piece& piece, const AttentionShape& shape, Bands& bands) {
  if (!piece.has_band) return causal_sight(shape);
  return bands.visible(piece.q_length, piece.k_length);
}

}  // namespace

AttendedPass attend_pass(const at::Tensor& qkv, const AttentionShape& shape,
                         const Sequence& sequence, const Sinks& sinks, Path path) {
  if (is_one_launch(qkv, shape, path)) return attend_in_one_launch(qkv, shape, sequence, sinks);
  AttendedPass result;
  if (is_whole(shape, sequence)) {
    const QkvViews views = split_heads(qkv, shape, sequence.batch, sequence.length);
    result.pieces.push_back(attend(views, causal_sight(shape), path));
    sinks.add_to(result.pieces.front().out, result.pieces.front().logsumexp);
    result.out = merge_heads(result.pieces.front().out);
    return result;
  }
  // Zeros: what is padding must not be garbage, which may be no number.
  result.out = at::zeros({qkv.size(0), shape.num_heads * shape.head_size}, qkv.options());
  Bands bands(shape, qkv.device());
  for (const Piece& piece : pieces_of(shape, sequence)) {
    Attended attended = attend(views_of(qkv, shape, piece), visible_of(piece, shape, bands), path);
    sinks.add_to(attended.out, attended.logsumexp);
    heads_of_run(result.out, piece.q_begin, piece.q_length, shape.head_size).copy_(attended.out);
    attended.out.reset();
    result.pieces.push_back(std::move(attended));
  }
  return result;
}

namespace {

at::Tensor whole_backward(const at::Tensor& d_out, const at::Tensor& qkv,
                          const AttentionShape& shape, const Sequence& sequence,
                          const Attended& attended, Sinks::Gradient& d_sinks) {
  const at::Tensor& out = attended.out;
  const at::Tensor d_heads =
      d_out.view({out.size(0), out.size(2), out.size(1), out.size(3)}).transpose(1, 2);
  const QkvViews views = split_heads(qkv, shape, sequence.batch, sequence.length);
  d_sinks.add(d_heads, out, attended.logsumexp);
  const QkvViews d = attend_backward(d_heads, views, attended, causal_sight(shape));
  return at::cat({merge_heads(d.q), merge_heads(d.k), merge_heads(d.v)}, 1);
}

}  // namespace

namespace {

at::Tensor pieces_backward(const at::Tensor& d_out, const at::Tensor& qkv,
                           const AttentionShape& shape, const Sequence& sequence,
                           const AttendedPass& attended, Sinks::Gradient& d_sinks) {
  const std::vector<Piece> pieces = pieces_of(shape, sequence);
  // Keys that several pieces read get their gradient in as many parts: added in fp32.
  const bool overlaps =
      std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.has_band; });
  const at::Tensor d_qkv =
      at::zeros(qkv.sizes(), overlaps ? qkv.options().dtype(at::kFloat) : qkv.options());
  Bands bands(shape, qkv.device());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    Attended of_piece = attended.pieces[i];
    of_piece.out = heads_of_run(attended.out, piece.q_begin, piece.q_length, shape.head_size);
    const at::Tensor d_heads = heads_of_run(d_out, piece.q_begin, piece.q_length, shape.head_size);
    d_sinks.add(d_heads, of_piece.out, of_piece.logsumexp);
    const QkvViews d = attend_backward(d_heads, views_of(qkv, shape, piece), of_piece,
                                       visible_of(piece, shape, bands));
    QkvViews target = views_of(d_qkv, shape, piece);
    target.q.copy_(d.q);
    target.k.add_(d.k);
    target.v.add_(d.v);
  }
  return d_qkv.to(qkv.scalar_type());
}

}  // namespace

at::Tensor attend_pass_backward(const at::Tensor& d_out, const at::Tensor& qkv,
                                const AttentionShape& shape, const Sequence& sequence,
                                const AttendedPass& attended, const Sinks& sinks, Path path) {
  if (is_one_launch(qkv, shape, path))
    return attend_in_one_launch_backward(d_out, qkv, shape, sequence, attended, sinks);
  Sinks::Gradient d_sinks(sinks);
  const at::Tensor d_qkv =
      is_whole(shape, sequence)
          ? whole_backward(d_out, qkv, shape, sequence, attended.pieces.front(), d_sinks)
          : pieces_backward(d_out, qkv, shape, sequence, attended, d_sinks);
  d_sinks.finish();
  return d_qkv;
}

namespace {

/// For `length` new tokens after others: -infinity at the keys of all `total` that each does not
/// see.
at::Tensor mask_of_new(const AttentionShape& shape, std::int64_t length, std::int64_t total,
                       at::Device device) {
  const at::Tensor key = at::arange(total, at::TensorOptions(at::kLong).device(device));
  const at::Tensor self = key.narrow(0, total - length, length).unsqueeze(1);
  at::Tensor hidden = key.gt(self);
  if (shape.window > 0) hidden = hidden.logical_or(key.le(self - shape.window));
  if (shape.chunk > 0) hidden = hidden.logical_or(key.lt(self - self.remainder(shape.chunk)));
  return at::zeros({length, total}, at::TensorOptions(at::kFloat).device(device))
      .masked_fill_(hidden, -std::numeric_limits<float>::infinity());
}

/// The first key that the last of `total` tokens sees.
std::int64_t first_seen(const AttentionShape& shape, std::int64_t total) {
  const std::int64_t of_window =
      shape.window > 0 ? std::max<std::int64_t>(0, total - shape.window) : 0;
  const std::int64_t of_chunk = shape.chunk > 0 ? (total - 1) / shape.chunk * shape.chunk : 0;
  return std::max(of_window, of_chunk);
}

/// Writes what is new behind the first `length` rows of what is kept, in place where it fits.
void append(at::Tensor& kept, std::int64_t length, const at::Tensor& added) {
  const std::int64_t total = length + added.size(0);
  if (!kept.defined() || kept.size(0) < total) {
    // Twice as much as there was: over a text each token is moved once.
    constexpr std::int64_t least = 64;
    const std::int64_t capacity =
        kept.defined() ? std::max(total, 2 * kept.size(0)) : total + least;
    at::Tensor larger = at::empty({capacity, added.size(1)}, added.options());
    if (kept.defined()) larger.narrow(0, 0, length).copy_(kept.narrow(0, 0, length));
    kept = larger;
  }
  kept.narrow(0, length, added.size(0)).copy_(added);
}

/// New tokens of one text [n, (H + 2 Hkv) K], of which `kept` has all keys and values, the first
/// `total` rows.
at::Tensor attend_text(const at::Tensor& qkv, const at::Tensor& kept, std::int64_t total,
                       const AttentionShape& shape, const Sinks& sinks, Path path) {
  const std::int64_t q_size = shape.num_heads * shape.head_size;
  const std::int64_t kv_size = shape.num_kv_heads * shape.head_size;
  const std::int64_t length = qkv.size(0);
  const bool is_single = length == 1;
  const std::int64_t first = is_single ? first_seen(shape, total) : 0;
  const auto heads = [&](const at::Tensor& x, std::int64_t begin, std::int64_t end) {
    return heads_of_run(x, begin, end - begin, shape.head_size);
  };
  const QkvViews views{heads(qkv.narrow(1, 0, q_size), 0, length),
                       heads(kept.narrow(1, 0, kv_size), first, total),
                       heads(kept.narrow(1, kv_size, kv_size), first, total)};
  Visible visible{.softcap = shape.softcap};
  if (!is_single && total == length && sees_all(shape, length))
    visible.is_causal = true;
  else if (!is_single)
    visible.mask = mask_of_new(shape, length, total, qkv.device());
  const Attended attended = attend(views, visible, path);
  sinks.add_to(attended.out, attended.logsumexp);
  return merge_heads(attended.out);
}

/// Whether a new token of a text alone is attended to by a kernel of ours.
bool has_token_kernel(const at::Tensor& qkv, const AttentionShape& shape) {
  return qkv.is_cpu() && shape.softcap == 0 && qkv.is_contiguous() &&
         (qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kBFloat16);
}

/// Texts [begin, end), neighbours with a new token each.
void attend_tokens(const at::Tensor& qkv, const AttentionShape& shape, const Sequence& sequence,
                   std::size_t begin, std::size_t end, std::int64_t i_layer, const Sinks& sinks,
                   const at::Tensor& out) {
  const at::Tensor sinks_H = sinks.exist() ? sinks.logits_H().contiguous() : at::Tensor();
  const std::int64_t row = sequence.stretches[begin].begin;
  const auto compute = [&]<typename T>() {
    std::vector<typename kernels::TokenAttention<T>::Text> texts;
    for (std::size_t i = begin; i < end; ++i) {
      const KvCache* cache = sequence.caches[i];
      const std::int64_t total = cache->length + 1;
      const at::Tensor& kept = cache->layers[static_cast<std::size_t>(i_layer)];
      texts.push_back(
          {static_cast<const T*>(kept.const_data_ptr()), first_seen(shape, total), total});
    }
    kernels::attend_tokens<T>({.texts = texts,
                               .q = static_cast<const T*>(qkv.const_data_ptr()) + row * qkv.size(1),
                               .q_stride = qkv.size(1),
                               .sinks = sinks.exist() ? sinks_H.const_data_ptr<float>() : nullptr,
                               .out = static_cast<T*>(out.data_ptr()) + row * out.size(1),
                               .heads = shape.num_heads,
                               .key_heads = shape.num_kv_heads,
                               .head_size = shape.head_size});
  };
  if (qkv.scalar_type() == at::kFloat)
    compute.template operator()<float>();
  else
    compute.template operator()<kernels::bf16>();
}

/// A prompt, of which the model has seen nothing, as if it were alone.
at::Tensor attend_prompt(const at::Tensor& qkv, const AttentionShape& shape, const Sinks& sinks,
                         Path path) {
  Sequence alone;
  alone.batch = 1;
  alone.length = qkv.size(0);
  alone.stretches = {{.begin = 0, .length = qkv.size(0)}};
  return attend_pass(qkv, shape, alone, sinks, path).out;
}

}  // namespace

at::Tensor attend_cached(const at::Tensor& qkv, const AttentionShape& shape,
                         const Sequence& sequence, std::int64_t i_layer, const Sinks& sinks,
                         Path path) {
  const std::int64_t q_size = shape.num_heads * shape.head_size;
  const at::Tensor kv = qkv.narrow(1, q_size, 2 * shape.num_kv_heads * shape.head_size);
  const auto num_texts = std::ssize(sequence.caches);
  const auto kept_of = [&](std::int64_t i) -> at::Tensor& {
    return sequence.caches[static_cast<std::size_t>(i)]->layers[static_cast<std::size_t>(i_layer)];
  };
  bool is_first_pass = true;
  for (std::int64_t i = 0; i < num_texts; ++i) {
    const Stretch& stretch = sequence.stretches[static_cast<std::size_t>(i)];
    const std::int64_t length = sequence.caches[static_cast<std::size_t>(i)]->length;
    append(kept_of(i), length, kv.narrow(0, stretch.begin, stretch.length));
    is_first_pass = is_first_pass && length == 0;
  }
  // New tokens of a prompt see each other.
  if (is_first_pass && !qkv.is_cpu()) return attend_pass(qkv, shape, sequence, sinks, path).out;
  const at::Tensor out = at::empty({qkv.size(0), q_size}, qkv.options());
  // Each text is computed in the same way whatever else is in the pass, in all its bits.
  const bool has_kernel = has_token_kernel(qkv, shape);
  const auto is_token = [&](std::size_t i) {
    return has_kernel && sequence.stretches[i].length == 1;
  };
  std::vector<std::size_t> others;
  for (std::size_t begin = 0, end = 0; begin < sequence.stretches.size(); begin = end) {
    end = begin + 1;
    if (!is_token(begin)) {
      others.push_back(begin);
      continue;
    }
    while (end < sequence.stretches.size() && is_token(end))
      ++end;
    attend_tokens(qkv, shape, sequence, begin, end, i_layer, sinks, out);
  }
  const auto attend_to = [&](std::int64_t begin, std::int64_t end) {
    const at::NoGradGuard no_autograd;
    for (std::int64_t k = begin; k < end; ++k) {
      const std::size_t i = others[static_cast<std::size_t>(k)];
      const Stretch& stretch = sequence.stretches[i];
      const std::int64_t before = sequence.caches[i]->length;
      const at::Tensor of_text = qkv.narrow(0, stretch.begin, stretch.length);
      out.narrow(0, stretch.begin, stretch.length)
          .copy_(before == 0 ? attend_prompt(of_text, shape, sinks, path)
                             : attend_text(of_text, kept_of(static_cast<std::int64_t>(i)),
                                           before + stretch.length, shape, sinks, path));
    }
  };
  const std::int64_t num_others = std::ssize(others);
  // A token of one text is too little for all cores.
  if (qkv.is_cpu() && num_others > 1)
    at::parallel_for(0, num_others, 1, attend_to);
  else
    attend_to(0, num_others);
  return out;
}

}  // namespace finetune::model
