// SPDX-License-Identifier: Apache-2.0
#include "plan/activations.hpp"

#include <algorithm>

#include "plan/block_bytes.hpp"

namespace finetune::plan {
namespace {

/// As model::Ops::loss makes the head's product.
constexpr std::int64_t tokens_a_chunk = 1024;
constexpr std::int64_t float_bytes = 4;
constexpr std::int64_t index_bytes = 8;

/// The last block's output, its norm, the gradient of that, and the logits of a chunk.
std::int64_t head_bytes(const Request& request, std::int64_t tokens) {
  const std::int64_t element = core::size_bytes(request.numbers.compute);
  // A composition makes the softmax beside the logits.
  const std::int64_t of_logit = element + (is_composed(request) ? float_bytes : 0);
  const std::int64_t logits =
      of_logit * std::min(tokens, tokens_a_chunk) * request.architecture.vocab_size;
  return tokens * (3 * element * request.architecture.d_model + float_bytes) + logits;
}

/// Ids, labels, positions, the places of the trained ones, for dropout the tokens' numbers; the
/// rotary tables.
std::int64_t sequence_bytes(const Request& request, std::int64_t tokens) {
  const std::int64_t numbers = request.adapter_dropout > 0 ? 5 : 4;
  return numbers * index_bytes * tokens +
         float_bytes * request.architecture.head_size * request.max_seq_length;
}

}  // namespace

ActivationBytes plan_activations(const Request& request, const model::ParameterTable& table) {
  const std::int64_t tokens = request.micro_batch * request.max_seq_length;
  const auto products = block_products(table, request.architecture);
  // Backward of a block runs while those before it wait for theirs.
  std::int64_t kept = 0, most = 0;
  Moment worst;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const BlockBytes block(request, request.architecture.layer(static_cast<std::int64_t>(i)),
                           products[i], tokens);
    kept += block.kept();
    const Moment moment = block.worst();
    if (kept + moment.total() < most) continue;
    most = kept + moment.total();
    worst = {kept + moment.bytes, moment.unpacked};
  }
  const std::int64_t at_head = head_bytes(request, tokens);
  ActivationBytes bytes;
  bytes.kept = kept;
  bytes.worst_is_head = kept + at_head > most;
  bytes.unpacked = bytes.worst_is_head ? 0 : worst.unpacked;
  bytes.in_flight =
      (bytes.worst_is_head ? at_head : worst.bytes - kept) + sequence_bytes(request, tokens);
  return bytes;
}

}  // namespace finetune::plan
