// SPDX-License-Identifier: Apache-2.0
#include "plan/block_bytes.hpp"

#include <algorithm>

namespace finetune::plan {
namespace {

using enum ActivationCheckpointing;

constexpr std::int64_t fp32_bytes = 4;
constexpr std::int64_t int64_bytes = 8;
/// What kernels::composed makes beside a matrix that it unpacks in pieces, and beside what it
/// drops.
constexpr std::int64_t pieces_bytes = std::int64_t{64} << 20;
constexpr std::int64_t bytes_a_piece_of_nf4 = 13, bytes_a_piece_of_gptq = 16;
constexpr std::int64_t bytes_a_dropped_element = 20;

Moment larger(const Moment& a, const Moment& b) {
  return a.total() >= b.total() ? a : b;
}

Moment operator+(const Moment& moment, std::int64_t bytes) {
  return {moment.bytes + bytes, moment.unpacked};
}

}  // namespace

bool is_composed(const Request& request) {
  return request.on_gpu || request.numbers.compute == core::DType::f16;
}

BlockBytes::BlockBytes(const Request& request, const model::Layer& layer,
                       const BlockProducts& products, std::int64_t tokens)
    : request_(request),
      tokens_(tokens),
      element_(core::size_bytes(request.numbers.compute)),
      recomputes_(request.activation_checkpointing == selective),
      has_experts_(layer.has_experts),
      has_band_(layer.window > 0 && layer.window < request.max_seq_length),
      qkv_(bytes_of(products.qkv)),
      attention_out_(bytes_of(products.attention_out)),
      gate_up_(bytes_of(products.gate_up)),
      down_(bytes_of(products.down)) {
  const model::Architecture& a = request.architecture;
  model_ = tokens * element_ * a.d_model;
  queries_ = tokens * element_ * a.num_heads * a.head_size;
  const std::int64_t keys = tokens * element_ * a.num_kv_heads * a.head_size;
  activated_ = tokens * element_ * (has_experts_ ? a.experts.d_shared : a.d_ff);
  // A norm's 1 / rms; and the logarithm of each head's sum of exponentials.
  norm_statistics_ = tokens * fp32_bytes;
  attention_statistics_ = norm_statistics_ + tokens * fp32_bytes * a.num_heads;
  if (layer.head_norm != model::HeadNorm::none)
    head_norm_ = queries_ + keys + tokens * fp32_bytes * (a.num_heads + a.num_kv_heads);
  if (has_experts_) {
    const model::Experts& e = a.experts;
    copies_ = e.top_k * model_;
    expert_ = tokens * e.top_k * element_ * e.d_ff;
    // Sums of products are made in fp32.
    if (element_ < fp32_bytes) float_expert_ = tokens * e.top_k * fp32_bytes * e.d_ff;
    // Probabilities; of each choice its number, weight and place.
    routing_ = tokens * (fp32_bytes * e.num + e.top_k * (2 * int64_bytes + fp32_bytes));
    unpacked_expert_ = unpacking(products.expert);
  }
  if (is_composed(request)) composed_swiglu_ = 7 * fp32_bytes * (activated_ + expert_) / element_;
}

std::int64_t BlockBytes::unpacking(const Product& product) const {
  if (!product.is_packed()) return 0;
  const std::int64_t elements = product.num_inputs * product.num_outputs;
  std::int64_t bytes = element_ * elements;
  if (!is_composed(request_)) return bytes;
  const bool is_half = request_.numbers.compute == core::DType::f16;
  const bool is_nf4 = product.packing == model::Packing::Kind::nf4;
  bytes += std::min(pieces_bytes, (is_nf4 ? bytes_a_piece_of_nf4 : bytes_a_piece_of_gptq) *
                                      product.largest_matrix);
  // One matrix in its own memory, before it goes to its place: in fp32 for fp16's sake.
  if (is_half) return bytes + fp32_bytes * product.largest_matrix;
  return bytes + (is_nf4 ? element_ * product.largest_matrix : 0);
}

std::int64_t BlockBytes::dropping(const Product& product) const {
  return std::min(pieces_bytes, bytes_a_dropped_element * tokens_ * product.num_inputs);
}

/// ATen's reductions to fp32 read a copy in fp32 on the CPU.
std::int64_t BlockBytes::floats_of_reduction(std::int64_t elements) const {
  return element_ < fp32_bytes && !request_.on_gpu ? fp32_bytes * elements : 0;
}

BlockBytes::Bytes BlockBytes::bytes_of(const Product& product) const {
  Bytes bytes;
  bytes.needs_input = product.needs_input();
  bytes.input = tokens_ * element_ * product.num_inputs;
  bytes.output = tokens_ * element_ * product.num_outputs;
  bytes.unpacked = unpacking(product);
  bytes.forward = {bytes.output, bytes.unpacked};
  bytes.backward = {bytes.input, bytes.unpacked};
  if (product.rank == 0) return bytes;

  const std::int64_t low = tokens_ * element_ * product.rank;
  bytes.own = low;
  bytes.backward.bytes += low;
  if (request_.adapter_dropout > 0) {
    // A's input with parts of it dropped; then the gradient of the product's input, that of A's
    // input, and what dropout leaves of it.
    const std::int64_t beside = is_composed(request_) ? dropping(product) : 0;
    bytes.forward.bytes += bytes.input + beside;
    bytes.backward = larger(bytes.backward, {low + 3 * bytes.input + beside, 0});
  }
  if (!product.has_magnitudes) return bytes;

  // The sum before it is scaled stays; backward scales a copy of the outputs' gradient.
  bytes.own += bytes.output + fp32_bytes * product.num_outputs;
  const std::int64_t dot = bytes.output + floats_of_reduction(tokens_ * product.num_outputs);
  bytes.backward = larger(bytes.backward + bytes.output, {dot, 0});
  // Norms of the weights' rows, with the weights at hand.
  const Moment at_norms = {floats_of_reduction(product.largest_matrix), bytes.unpacked};
  bytes.forward = larger(bytes.forward, at_norms);
  return bytes;
}

/// The block's input, the first norm's output, q k v, attention's output; what the products keep.
std::int64_t BlockBytes::attention_half() const {
  const bool keeps_norm = !recomputes_ && qkv_.needs_input;
  return model_ + (keeps_norm ? model_ : 0) + qkv_.own + head_norm_ + qkv_.output + queries_ +
         attention_statistics_ + attention_out_.own;
}

/// The sum after attention, the second norm's output, gate and up, and their product. Experts read
/// their norm's output as it is.
std::int64_t BlockBytes::feed_forward_half() const {
  const bool keeps_norm = has_experts_ || (!recomputes_ && gate_up_.needs_input);
  const bool keeps_activated = !recomputes_ && down_.needs_input;
  return model_ + (keeps_norm ? model_ : 0) + norm_statistics_ + gate_up_.own + gate_up_.output +
         (keeps_activated ? activated_ : 0) + down_.own + (recomputes_ ? 2 : 3) * expert_ +
         routing_;
}

std::int64_t BlockBytes::kept() const {
  return request_.activation_checkpointing == full ? model_ : all();
}

/// The most that the backward pass of experts holds at once: gradients of their outputs with and
/// without the choices' weights, or those of gate and up with the copies of the tokens.
Moment BlockBytes::at_experts() const {
  const std::int64_t again = recomputes_ ? expert_ : 0;
  return {std::max({2 * copies_ + 2 * expert_ + float_expert_ + again, 3 * expert_ + again,
                    2 * expert_ + 2 * copies_, 2 * copies_ + 2 * model_}),
          unpacked_expert_};
}

/// A block's input is kept in any case; what it no longer needs is freed on the way.
Moment BlockBytes::worst() const {
  // The block's output, and its gradient.
  std::int64_t base = 2 * model_;
  if (request_.activation_checkpointing == full) base += all() - model_;
  const auto again = [&](const Bytes& product, std::int64_t bytes) {
    return recomputes_ && product.needs_input ? bytes : 0;
  };
  Moment worst;
  const auto at = [&](const Moment& moment) { worst = larger(worst, moment); };
  at(down_.backward + again(down_, activated_));
  // Gradients of the product and of gate and up meet at the activation function.
  at({3 * activated_ + composed_swiglu_, 0});
  if (has_experts_) at(at_experts());

  // Gate and up, and their product, are freed; the gradients of the norm's output and input follow.
  const std::int64_t of_down =
      gate_up_.output + down_.own + (!recomputes_ && down_.needs_input ? activated_ : 0);
  if (!has_experts_ || activated_ > 0) {
    at(gate_up_.backward + (again(gate_up_, model_) + gate_up_.output - of_down));
    at({gate_up_.output + 2 * model_ - of_down, 0});
  }

  // Everything of the feed-forward half is freed; the gradient of its input stays.
  const std::int64_t left = model_ - feed_forward_half();
  at(attention_out_.backward + left);
  // Gradients of attention's output and of q, k and v, which are then joined into one tensor.
  const std::int64_t float_qkv = qkv_.output / element_ * fp32_bytes;
  const std::int64_t joined = has_band_ ? float_qkv + qkv_.output : queries_ + 2 * qkv_.output;
  at({left + joined, 0});
  const std::int64_t of_attention =
      head_norm_ + qkv_.output + queries_ + attention_statistics_ + attention_out_.own;
  at(qkv_.backward + (left + qkv_.output + again(qkv_, model_) - of_attention));

  // In forward neither the block's output nor gradients are there.
  at(gate_up_.forward + (-2 * model_ - of_down));
  at(down_.forward + -2 * model_);
  return worst + base;
}

}  // namespace finetune::plan
