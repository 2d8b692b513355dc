// SPDX-License-Identifier: Apache-2.0
#include "plan/memory.hpp"

#include <algorithm>

namespace finetune::plan {
namespace {

/// What a forward pass keeps for backward, elements a token and block: the block's input, both
/// norms' outputs, the residual after attention, q k v, attention's output, gate and up, and their
/// product.
std::int64_t saved_elements_per_token(const model::Architecture& a) {
  const std::int64_t q = a.num_heads * a.head_size;
  const std::int64_t kv = a.num_kv_heads * a.head_size;
  return 4 * a.d_model + (q + 2 * kv) + q + 2 * a.d_ff + a.d_ff;
}

/// What the backward pass of one block holds besides: gradients of its widest tensors.
std::int64_t transient_elements_per_token(const model::Architecture& a) {
  return 2 * a.d_model + 3 * a.d_ff + 2 * (a.num_heads + 2 * a.num_kv_heads) * a.head_size;
}

}  // namespace

std::vector<MemoryItem> plan_memory(const Request& request, const ShardMap& shards) {
  const model::Architecture& a = request.architecture;
  const std::int64_t compute = core::size_bytes(request.numbers.compute);
  const std::int64_t shard = shards.shard_elements();
  const std::int64_t largest = shards.largest_unit();
  const bool is_one_rank = shards.num_shards() == 1;
  const bool is_fp32 = request.numbers.compute == core::DType::f32;
  const std::int64_t tokens = request.micro_batch * request.max_seq_length;
  // The head's product is made for this many tokens at a time (see model::Ops::loss).
  const std::int64_t chunk = std::min<std::int64_t>(tokens, 1024);

  std::vector<MemoryItem> items;
  items.push_back({"master weights, fp32", 4 * shard});
  items.push_back({"AdamW moments, fp32", 8 * shard});
  items.push_back({"gradient sums, fp32", 4 * shard});
  if (!is_fp32) items.push_back({"weights to compute with, bf16", compute * shard});
  // A tied head keeps its gradient open beside the block's; two units are gathered at most.
  if (!is_one_rank) items.push_back({"gathered units", 2 * compute * largest});
  if (!is_one_rank || !is_fp32) items.push_back({"gradients of open units", 2 * compute * largest});
  if (!is_one_rank && !is_fp32) items.push_back({"gradients on their way, fp32", 4 * largest});
  items.push_back({"activations kept for backward",
                   compute * tokens * a.num_layers * saved_elements_per_token(a)});
  items.push_back({"activations in flight", compute * tokens * transient_elements_per_token(a)});
  items.push_back({"logits of a chunk", compute * chunk * a.vocab_size});
  // Measured: libtorch, MPI and HDF5 loaded, thread pools started, nothing computed yet.
  items.push_back({"program and libraries", std::int64_t{250} << 20});
  return items;
}

}  // namespace finetune::plan
