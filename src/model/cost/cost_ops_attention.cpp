// SPDX-License-Identifier: Apache-2.0
// Of CostOps: what is done to queries, keys and values.

#include <algorithm>

#include "model/cost/cost_ops.hpp"

namespace finetune::model {

AttentionShape CostOps::own_heads(AttentionShape shape) const {
  const PartPlace& place = settings_.share.place;
  if (place.tp == 1) return shape;
  const HeldHeads own = held_heads(shape.num_heads, shape.num_kv_heads, place);
  shape.num_heads = own.num_heads;
  shape.num_kv_heads = own.num_kv_heads;
  return shape;
}

TensorSize CostOps::head_norm(const TensorSize& qkv, const AttentionShape& all, int, int, double) {
  const AttentionShape shape = own_heads(all);
  const std::int64_t heads = shape.num_heads + shape.num_kv_heads;
  const TensorSize normed = tensor(qkv.rows, qkv.columns);
  const TensorSize before = tensor(qkv.rows, heads * shape.head_size);
  OpCost op = norm_cost(before);
  op.inputs = {qkv};
  // Queries and keys as they were.
  op.kept = {before, tape_.tensor(qkv.rows, heads, fp32_bytes)};
  op.forward = {{before.bytes + normed.bytes}};
  op.backward = {{before.bytes + qkv.bytes}};
  op.gradients = {{qkv.number, qkv.bytes}};
  op.outputs = {normed.number};
  tape_.record(std::move(op));
  return normed;
}

TensorSize CostOps::tune_temperature(const TensorSize& qkv, const AttentionShape& all,
                                     const SequenceSize&, const Temperature&) {
  const AttentionShape shape = own_heads(all);
  OpCost op{.inputs = {qkv}};
  const std::int64_t elements = qkv.rows * shape.num_heads * shape.head_size;
  op.forward_work.passes = {pass(elements, 2 * static_cast<double>(element_), 1)};
  op.backward_work = op.forward_work;
  tape_.record(std::move(op));
  return qkv;
}

/// Keys and values of a sequence that several ranks share. All at once: those that its queries see,
/// and in backward their gradients next to them. In a ring: a pair of buffers, of which one is on
/// its way while the other is attended to, and outputs that are merged in fp32.
void CostOps::share_keys(OpCost& op, const AttentionShape& shape, std::int64_t tokens,
                         const SequenceSize& sequence) const {
  const std::int64_t cp = settings_.share.cp;
  if (cp == 1) return;
  const std::int64_t a_token = 2 * shape.num_kv_heads * shape.head_size * element_;
  const std::int64_t own = tokens * a_token;
  // A rank has two pieces of each sequence, and what is before a piece is seen from it.
  const std::int64_t reach = std::max(shape.window, shape.chunk);
  const std::int64_t seen =
      reach > 0 ? std::min(cp * tokens, tokens + 2 * sequence.batch * reach) : cp * tokens;
  using enum Travel::Kind;
  if (settings_.share.gathers_keys) {
    const std::int64_t whole = seen * a_token;
    op.forward.front().bytes += whole;
    op.backward.front().bytes += 2 * whole;
    op.forward_work.travels = {travel(Sharers::cp, all_gather, whole)};
    op.backward_work.travels = {travel(Sharers::cp, all_gather, whole),
                                travel(Sharers::cp, reduce_scatter, whole)};
    return;
  }
  const std::int64_t outputs = tokens * shape.num_heads * shape.head_size;
  op.forward.front().bytes += 2 * own + outputs * (fp32_bytes + element_);
  op.backward.front().bytes += 4 * own;
  Travel keys = travel(Sharers::cp, ring, seen * a_token);
  keys.beside_attention = op.forward_work.attention;
  Travel keys_and_gradients = travel(Sharers::cp, ring, 2 * seen * a_token);
  keys_and_gradients.beside_attention = op.backward_work.attention;
  op.forward_work.travels = {std::move(keys)};
  op.backward_work.travels = {std::move(keys_and_gradients)};
}

TensorSize CostOps::attention(const TensorSize& qkv, const AttentionShape& all,
                              const SequenceSize& sequence, std::int64_t) {
  const AttentionShape shape = own_heads(all);
  const TensorSize out = tensor(qkv.rows, shape.num_heads * shape.head_size);
  OpCost op{.inputs = {qkv}, .outputs = {out.number}};
  // And the logarithm of each head's sum of exponentials.
  op.kept = {qkv, out, tape_.tensor(qkv.rows, shape.num_heads, fp32_bytes)};
  op.forward = {BytesHeld{}};
  // Gradients of q, k and v, which are then joined into one tensor. Piece by piece, where a key's
  // gradient comes in parts, they are added in fp32.
  const bool has_band = shape.window > 0 && shape.window < sequence.length;
  op.backward = {{has_band ? qkv.bytes / element_ * fp32_bytes + qkv.bytes : 2 * qkv.bytes}};
  op.gradients = {{qkv.number, qkv.bytes}};

  const double visible = visible_tokens(shape, sequence.length);
  const double channels = static_cast<double>(qkv.rows) * visible *
                          static_cast<double>(shape.num_heads * shape.head_size);
  op.forward_work.attention = {{4 * channels, visible}};
  op.backward_work.attention = {{10 * channels, visible}};
  if (shape.rotary != Rotary::none) {
    const std::int64_t rotated =
        qkv.rows * (shape.num_heads + shape.num_kv_heads) * shape.head_size;
    op.forward_work.passes = {pass(rotated, bytes_.rope, bytes_.operations)};
    op.backward_work.passes = op.forward_work.passes;
  }
  share_keys(op, shape, qkv.rows, sequence);
  tape_.record(std::move(op));
  return out;
}

double visible_tokens(const AttentionShape& shape, std::int64_t length) {
  const auto l = static_cast<double>(length);
  if (shape.chunk > 0 && shape.chunk < length) return (static_cast<double>(shape.chunk) + 1) / 2;
  if (shape.window > 0 && shape.window < length) {
    // The first tokens see all before them, the others the window.
    const auto window = static_cast<double>(shape.window);
    return (window * (window + 1) / 2 + (l - window) * window) / l;
  }
  return (l + 1) / 2;
}

}  // namespace finetune::model
