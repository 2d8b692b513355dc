// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/generation.hpp"

#include <algorithm>

#include "core/message_size.hpp"
#include "model/cost/scratch.hpp"
#include "model/part.hpp"
#include "plan/layout/bucket.hpp"
#include "plan/layout/stages.hpp"
#include "plan/memory/buffers.hpp"
#include "plan/memory/detail/forward.hpp"
#include "plan/memory/memory.hpp"

namespace finetune::plan {
namespace {

model::ParameterTable own_table(const GenerationInput& input, model::ParameterTable table) {
  for (model::Parameter& row : table.rows)
    row.trainable = false;
  const model::PartPlace largest{.tp = input.tp, .i_tp = input.tp - 1};
  return regroup(model::part_of(table, largest), Bucket::block);
}

/// Keys and values of one token, over all layers that have them.
std::int64_t cache_bytes_of_token(const GenerationInput& input) {
  const model::Architecture& a = input.architecture;
  std::int64_t channels = 0;
  for (std::int64_t i = 0; i < a.num_layers; ++i) {
    const model::Layer layer = a.layer(i);
    const std::int64_t heads = (a.num_kv_heads_of(layer) + input.tp - 1) / input.tp;
    if (layer.has_attention_half && !layer.remembers())
      channels += 2 * heads * a.head_size_of(layer);
  }
  return channels * core::size_bytes(input.compute);
}

/// Of one text, whatever its length.
std::int64_t memory_bytes_of_text(const GenerationInput& input) {
  const model::Architecture& a = input.architecture;
  const auto by_delta_rule = std::ranges::count_if(a.layers, &model::Layer::has_delta_rule);
  const auto by_states = std::ranges::count_if(a.layers, &model::Layer::has_state_space);
  return (by_delta_rule * model::delta_memory_bytes(a.delta) +
          by_states * model::state_memory_bytes(a.states)) /
         input.tp;
}

/// Of prompts that begin at once.
std::int64_t tokens_of_pass(const GenerationInput& input) {
  return std::min(input.batch * input.prompt_tokens,
                  std::max(input.tokens_together, input.prompt_tokens));
}

/// What a pass of prompts holds.
model::BytesHeld held_in_pass(const GenerationInput& input, const model::ParameterTable& own) {
  PlanInput request;
  request.architecture = input.architecture;
  request.numbers.compute = input.compute;
  request.parallel.tp = input.tp;
  request.on_gpu = input.on_gpu;
  request.has_gpu_kernels = input.has_gpu_kernels;
  request.sample_tokens = input.prompt_tokens;
  return forward_bytes(request, own, tokens_of_pass(input));
}

class GenerationMemory {
 public:
  GenerationMemory(const GenerationInput& input, const model::ParameterTable& table)
      : input_(input),
        own_(own_table(input, table)),
        shards_(own_, input.world_size / input.tp, {.compute = input.compute}) {}

  std::vector<MemoryItem> items() {
    add(Category::weights, "as the files have them, or as is computed",
        shards_.frozen_shard_bytes());
    if (shards_.num_shards() > 1) {
      const auto buffers = count_buffers(
          shards_, stages_of(own_, shards_, head_row(input_.architecture, own_)), {.schedule = {}});
      add(Category::gathered, "whole units, as they are kept", buffers.gathered_bytes);
    }
    const model::BytesHeld held = held_in_pass(input_, own_);
    add(Category::gathered, "unpacked matrices", held.unpacked);
    add(Category::states, "keys and values of the texts", cache_bytes());
    add(Category::states, "what layers remember of the texts",
        input_.batch * memory_bytes_of_text(input_));
    add(Category::activations, "of the prompts that begin at once", held.bytes);
    add(Category::activations, "logits of the texts, fp32",
        input_.batch * input_.architecture.vocab_size * std::int64_t{sizeof(float)});
    add_rest();
    return std::move(items_);
  }

 private:
  void add(Category category, std::string name, std::int64_t bytes, bool is_tensor = true) {
    if (bytes > 0) items_.push_back({category, std::move(name), bytes, Place::device, is_tensor});
  }

  /// While a layer's grows, there is its smaller one as well.
  std::int64_t cache_bytes() const {
    const std::int64_t of_token = cache_bytes_of_token(input_);
    const std::int64_t rows = cached_rows(input_.prompt_tokens, input_.new_tokens);
    return of_token * (input_.batch * rows + rows / 2 / input_.architecture.num_layers);
  }

  /// What libtorch's allocator knows nothing of.
  void add_rest() {
    if (input_.on_gpu) {
      add(Category::other, "CUDA's context", gpu_context_bytes, false);
      return;
    }
    const bool is_wide = input_.widens || input_.compute == core::DType::f32;
    const std::int64_t panels = input_.widens ? model::product_scratch_bytes() : 0;
    const std::int64_t heads = model::attention_scratch_bytes(
        input_.prompt_tokens + input_.new_tokens, input_.architecture.head_size);
    if (is_wide)
      add(Category::activations, "panels in fp32, of each thread",
          input_.threads * (panels + heads), false);
    if (input_.tp > 1)
      add(Category::communication, "pieces of activations on their way",
          4 *
              std::min(core::message_elements,
                       tokens_of_pass(input_) * input_.architecture.d_model) *
              core::size_bytes(input_.compute),
          false);
    add(Category::other, "program and libraries", program_bytes, false);
  }

  const GenerationInput& input_;
  model::ParameterTable own_;
  ShardMap shards_;
  std::vector<MemoryItem> items_;
};

}  // namespace

std::int64_t cached_rows(std::int64_t prompt_tokens, std::int64_t new_tokens) {
  // As the attention op grows it (model/attention_pass.cpp).
  constexpr std::int64_t least = 64;
  const std::int64_t total = prompt_tokens + new_tokens;
  std::int64_t rows = prompt_tokens + least;
  while (rows < total)
    rows *= 2;
  return rows;
}

std::vector<MemoryItem> plan_generation(const GenerationInput& input,
                                        const model::ParameterTable& table) {
  return GenerationMemory(input, table).items();
}

}  // namespace finetune::plan
