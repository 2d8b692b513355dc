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

TensorSize CostOps::head_norm(const TensorSize& qkv, const AttentionShape& all,
                              const HeadNorms& norms) {
  const AttentionShape shape = own_heads(all);
  const int query_row = norms.of_queries.rows.weight;
  const bool norms_together =
      query_row >= 0 && table_.row(query_row).shape.front() != shape.head_size;
  const std::int64_t heads = shape.num_heads + (norms.of_values ? 2 : 1) * shape.num_kv_heads;
  const TensorSize normed = tensor(qkv.rows, qkv.columns);
  const TensorSize before = tensor(qkv.rows, heads * shape.head_size);
  OpCost op = norm_cost(before, norms.of_queries);
  op.inputs = {qkv};
  // Queries and keys as they were.
  op.kept = {before, tape_.tensor(qkv.rows, norms_together ? 2 : heads, fp32_bytes)};
  op.forward = {{before.bytes + normed.bytes}};
  op.backward = {{before.bytes + qkv.bytes}};
  op.gradients = {{qkv.number, qkv.bytes}};
  op.outputs = {normed.number};
  tape_.record(std::move(op));
  return normed;
}

TensorSize CostOps::rotate(const TensorSize& qkv, const AttentionShape& all, const SequenceSize&) {
  const AttentionShape shape = own_heads(all);
  OpCost op{.inputs = {qkv}};
  const std::int64_t heads = shape.num_heads + shape.num_kv_heads;
  op.forward_work.passes = {
      pass(qkv.rows * heads * shape.head_size, bytes_.rope, bytes_.operations)};
  op.backward_work = op.forward_work;
  tape_.record(std::move(op));
  return qkv;
}

TensorSize CostOps::sort_heads(const TensorSize& x, const AttentionShape&) {
  const TensorSize sorted = tensor(x.rows, x.columns);
  OpCost op{.inputs = {x}, .outputs = {sorted.number}};
  op.forward = {{sorted.bytes}};
  op.backward = {{x.bytes}};
  op.gradients = {{x.number, x.bytes}};
  op.forward_work.passes = {pass(x.rows * x.columns, 2 * static_cast<double>(element_), 3)};
  op.backward_work = op.forward_work;
  tape_.record(std::move(op));
  return sorted;
}

TensorSize CostOps::repeat_keys(const TensorSize& x, const AttentionShape& all) {
  const AttentionShape shape = own_heads(all);
  const TensorSize qkv = tensor(x.rows, shape.num_channels());
  OpCost op{.inputs = {x}, .outputs = {qkv.number}};
  op.forward = {{qkv.bytes}};
  op.backward = {{x.bytes}};
  op.gradients = {{x.number, x.bytes}};
  op.forward_work.passes = {pass(qkv.rows * qkv.columns, 2 * static_cast<double>(element_), 1)};
  op.backward_work = op.forward_work;
  tape_.record(std::move(op));
  return qkv;
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

namespace {

/// Tokens that `cp` ranks together fetch of each other for a sequence of `length`. Each has two
/// pieces of it, the i-th from its beginning and from its end; what both see is fetched once.
std::int64_t fetched(const AttentionShape& shape, std::int64_t cp, std::int64_t length) {
  const auto begin = [&](std::int64_t piece) { return piece * length / (2 * cp); };
  const auto first_seen = [&](std::int64_t piece) {
    const std::int64_t first = begin(piece);
    if (shape.window > 0) return std::max(std::int64_t{0}, first - (shape.window - 1));
    return shape.chunk > 0 ? first / shape.chunk * shape.chunk : 0;
  };
  std::int64_t tokens = 0;
  for (std::int64_t early = 0; early < cp; ++early) {
    const std::int64_t late = 2 * cp - 1 - early;
    tokens += begin(early) - first_seen(early);
    tokens += begin(late) - std::max(first_seen(late), begin(early + 1));
  }
  return tokens;
}

/// Keys at most of what queries see of a sequence at once.
std::int64_t largest_piece(const AttentionShape& shape, std::int64_t most_keys) {
  constexpr std::int64_t most_queries = 512;
  if (shape.window > 0) return std::min(most_keys, shape.window + most_queries);
  return shape.chunk > 0 ? std::min(most_keys, shape.chunk) : most_keys;
}

}  // namespace

/// Outputs are merged in fp32, and so are the gradients of queries: piece by piece, of which the
/// outputs, or the gradients, are there next to them.
CostOps::SharedKeys CostOps::shared_keys(const AttentionShape& shape, std::int64_t tokens,
                                         const SequenceSize& sequence) const {
  const std::int64_t outputs = tokens * shape.num_heads * shape.head_size;
  // The two chunks of the middle rank are one run.
  const std::int64_t of_piece = outputs / sequence.batch;
  SharedKeys keys;
  keys.channels = 2 * shape.num_kv_heads * shape.head_size;
  keys.token_bytes = keys.channels * element_;
  // What is kept of the output does not exist while it is merged.
  keys.outputs = outputs * (fp32_bytes - element_);
  keys.output_piece = of_piece * (element_ + fp32_bytes);
  keys.d_outputs = outputs * fp32_bytes;
  // libtorch's kernel for the CPU sums the queries' gradient in fp32.
  keys.d_piece =
      of_piece * element_ + (settings_.on_gpu ? 0 : reduction_bytes(settings_, of_piece));
  return keys;
}

/// Those that its queries see are fetched, and put in order; in backward once more, and then their
/// gradients grow next to them, in fp32.
void CostOps::fetch_keys(OpCost& op, const AttentionShape& shape, std::int64_t tokens,
                         const SequenceSize& sequence) const {
  const std::int64_t cp = settings_.share.cp;
  const SharedKeys keys = shared_keys(shape, tokens, sequence);
  const bool sees_all = shape.window == 0 && shape.chunk == 0;
  // Each rank sends (cp - 1) / cp of what a Travel says.
  const std::int64_t all = sequence.batch * fetched(shape, cp, sequence.length);
  const std::int64_t others = all / (cp - 1);
  const std::int64_t most = sees_all ? cp * tokens : std::min(cp * tokens, tokens + others);
  const std::int64_t before = std::max(most - tokens / 2, tokens / 2) / sequence.batch;
  const std::int64_t d_piece = keys.d_piece + largest_piece(shape, before) * keys.token_bytes;
  // One launch computes all causal pieces.
  const std::int64_t d_causal = settings_.on_gpu ? tokens * keys.token_bytes + keys.d_outputs : 0;
  op.forward = {{keys.outputs + 2 * most * keys.token_bytes},
                {keys.outputs + most * keys.token_bytes + keys.output_piece}};
  op.backward = {{keys.d_outputs + 2 * most * keys.token_bytes},
                 {keys.d_outputs + most * (keys.token_bytes + keys.channels * fp32_bytes) +
                  d_piece + d_causal}};
  Travel fetch = travel(Sharers::cp, Travel::Kind::all_to_all, 0);
  fetch.bytes = static_cast<double>(all * keys.token_bytes) / static_cast<double>(cp - 1);
  op.forward_work.travels.assign(1, fetch);
  op.backward_work.travels.assign(2, fetch);
}

/// Those of one rank are attended to while they are sent on and the next ones arrive; in backward
/// their gradients follow them in fp32.
void CostOps::pass_keys_on(OpCost& op, const AttentionShape& shape, std::int64_t tokens,
                           const SequenceSize& sequence) const {
  const std::int64_t cp = settings_.share.cp;
  const SharedKeys keys = shared_keys(shape, tokens, sequence);
  const std::int64_t in_fp32 = tokens * keys.channels * fp32_bytes;
  const std::int64_t two = 2 * tokens * keys.token_bytes;
  op.forward = {{keys.outputs + two + keys.output_piece}};
  op.backward = {{keys.d_outputs + two + 3 * in_fp32 + keys.d_piece +
                  tokens / sequence.batch * keys.token_bytes}};
  Travel of_keys = travel(Sharers::cp, Travel::Kind::ring, cp * tokens * keys.token_bytes);
  // Each rank's gradients come home: one step more.
  Travel gradients = travel(Sharers::cp, Travel::Kind::ring, 0);
  gradients.bytes = static_cast<double>(cp * cp * in_fp32) / static_cast<double>(cp - 1);
  // Both travel at the same time, beside the same computation.
  AttentionWork half = op.backward_work.attention.front();
  half.flops /= 2;
  gradients.beside_attention = {half};
  of_keys.beside_attention = op.forward_work.attention;
  op.forward_work.travels = {of_keys};
  of_keys.beside_attention = {half};
  op.backward_work.travels = {std::move(of_keys), std::move(gradients)};
}

/// Keys and values of a sequence that several ranks share.
void CostOps::share_keys(OpCost& op, const AttentionShape& shape, std::int64_t tokens,
                         const SequenceSize& sequence) const {
  const std::int64_t cp = settings_.share.cp;
  if (cp == 1) return;
  const bool sees_all = shape.window == 0 && shape.chunk == 0;
  const KeyTravel way = settings_.share.keys;
  const std::int64_t from_others =
      (cp - 1) * tokens * 2 * shape.num_kv_heads * shape.head_size * element_;
  const bool goes_round =
      shape.window == 0 && (way == KeyTravel::ring || (way == KeyTravel::automatic && sees_all &&
                                                       from_others >= ring_from_bytes));
  if (goes_round)
    pass_keys_on(op, shape, tokens, sequence);
  else
    fetch_keys(op, shape, tokens, sequence);
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
  if (shape.softcap > 0) {
    // All scores at once, in fp32, of which two are there forward and five backward.
    const std::int64_t scores = shape.num_heads * qkv.rows * sequence.length * fp32_bytes;
    op.kept.push_back(tensor(out.rows, out.columns));  // as the composition lays it out
    op.forward.front().bytes += 2 * scores;
    op.backward.front().bytes += 3 * scores;
  }

  const double visible =
      visible_tokens(shape, sequence.sample > 0 ? sequence.sample : sequence.length);
  const double channels = static_cast<double>(qkv.rows) * visible *
                          static_cast<double>(shape.num_heads * shape.head_size);
  op.forward_work.attention = {{4 * channels, visible}};
  op.backward_work.attention = {{10 * channels, visible}};
  if (shape.rotary != Rotary::none) {
    const std::int64_t rotated = qkv.rows * (shape.num_heads + shape.num_kv_heads) *
                                 (shape.rotary_size > 0 ? shape.rotary_size : shape.head_size);
    op.forward_work.passes = {pass(rotated, bytes_.rope, bytes_.operations)};
    op.backward_work.passes = op.forward_work.passes;
  }
  share_keys(op, shape, qkv.rows, sequence);
  if (shape.sinks >= 0) add_sinks(op, shape, out);
  tape_.record(std::move(op));
  return out;
}

/// Outputs are scaled where they are; their gradient meets them once more. Some tokens at a time
/// are in fp32, what is narrower as copies, too.
void CostOps::add_sinks(OpCost& op, const AttentionShape& shape, const TensorSize& out) const {
  const std::int64_t of_heads = out.rows * shape.num_heads * fp32_bytes;
  const std::int64_t piece = std::min(out.rows, sink_tokens_at_once) * out.columns * fp32_bytes;
  const bool is_narrow = element_ < fp32_bytes;
  op.forward.push_back({2 * of_heads + (is_narrow ? piece : 0)});
  op.backward.push_back({of_heads + (is_narrow ? 3 : 1) * piece});
  const double pieces =
      std::max(1.0, static_cast<double>(out.rows) / static_cast<double>(sink_tokens_at_once));
  const auto element = static_cast<double>(element_);
  op.forward_work.passes.push_back(pass(out.rows * out.columns, 2 * element, 4 + pieces));
  op.backward_work.passes.push_back(
      pass(out.rows * out.columns, 2 * element + 4.0 * fp32_bytes, 3 + 4 * pieces));
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
