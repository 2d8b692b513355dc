#pragma once
// SPDX-License-Identifier: Apache-2.0
// Models of random sizes, made of the configurations of tests/golden/models, with what training may
// put on them; and random meshes.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "adapters/lora/settings.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "model/adapter.hpp"
#include "model/family.hpp"
#include "model/fp8.hpp"
#include "plan/plan.hpp"
#include "registry.hpp"
#include "support/families.hpp"
#include "support/folders.hpp"

namespace finetune::tests {

/// Draws that are the same with every standard library.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}

  /// From `least` to `most`.
  std::int64_t number(std::int64_t least, std::int64_t most) {
    const auto range = static_cast<std::uint64_t>(most - least + 1);
    return least + static_cast<std::int64_t>(engine_() % range);
  }
  /// In one of `n` cases.
  bool one_in(std::int64_t n) { return number(1, n) == 1; }
  template <typename T>
  const T& of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(number(0, std::ssize(all) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

struct RandomModel {
  std::string name;
  core::Json config;
  model::Architecture architecture;
  model::ParameterTable table;
};

/// Other sizes in a configuration, where it has such keys.
inline void draw_sizes(Draws& draws, core::Json& config) {
  const auto set = [&](std::initializer_list<const char*> keys, std::int64_t value) {
    for (const char* key : keys)
      if (config.contains(key) && config[key].is_number_integer()) config[key] = value;
  };
  const bool is_gpt2 = config.value("model_type", "") == "gpt2";
  const bool has_own_heads = is_gpt2 || config.value("model_type", "") == "gpt_neox";
  const std::int64_t kv = draws.number(1, 9), group = has_own_heads ? 1 : draws.number(1, 4);
  const std::int64_t heads = kv * group, head_size = 2 * draws.number(1, 4);
  set({"num_attention_heads", "n_head"}, heads);
  set({"num_key_value_heads"}, kv);
  set({"head_dim"}, head_size);
  const bool is_free = !has_own_heads && config.contains("head_dim") && draws.one_in(2);
  set({"hidden_size", "n_embd"}, is_free ? draws.number(5, 50) : heads * head_size);
  set({"intermediate_size", "n_inner"}, draws.number(5, 40));
  set({"moe_intermediate_size", "shared_expert_intermediate_size"}, draws.number(3, 20));
  const std::int64_t experts = draws.number(2, 11);
  set({"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"}, experts);
  set({"num_experts_per_tok", "moe_k", "moe_topk"},
      draws.number(1, std::min<std::int64_t>(experts, 3)));
  set({"n_group", "topk_group"}, 1);
  set({"n_shared_experts", "moe_num_shared_experts"}, draws.number(1, 3));
  set({"vocab_size"}, draws.number(11, 90));
  set({"kv_lora_rank", "q_lora_rank"}, draws.number(3, 12));
  set({"linear_num_key_heads"}, kv);
  set({"linear_num_value_heads"}, kv * draws.number(1, 3));
  if (config.contains("tie_word_embeddings")) config["tie_word_embeddings"] = draws.one_in(2);
}

/// What the deck may do to the table: an adapter, frozen tensors, products in 8 bits.
inline void draw_training(Draws& draws, RandomModel& model) {
  const auto& adapters = modules::registry().adapters;
  const std::int64_t what = draws.number(0, 5);
  if (what < 2) {
    const model::Adapter& adapter = draws.of(adapters);
    model::AdapterSettings settings;
    settings.name = adapter.name;
    settings.kind = &adapter;
    settings.target_modules = adapter.usual_targets;
    settings.double_quant = draws.one_in(2);
    auto& lora = settings.of<adapters::lora::Settings>();
    lora.r = draws.number(1, 5);
    lora.use_dora = adapter.name != "ia3" && draws.one_in(3);
    model::put_on(adapter, settings, "", model.table);
    model.name += " with " + adapter.name;
  } else if (what == 2) {
    for (model::Parameter& row : model.table.rows)
      if (draws.one_in(3)) row.trainable = false;
    model.name += " partly frozen";
  } else if (what == 3) {
    model::keep_in_fp8({}, model.table);
    model.name += " in 8 bits";
  }
}

/// Nothing where the sizes are of no such model.
inline std::optional<RandomModel> draw_model(Draws& draws) {
  RandomModel model;
  model.name = golden_models[static_cast<std::size_t>(
      draws.number(0, static_cast<std::int64_t>(golden_models.size()) - 1))];
  model.config = core::read_json(
      source_folder() / "tests/golden/models" / model.name / "config.json", 1 << 20);
  draw_sizes(draws, model.config);
  if (model.config.contains("text_config")) draw_sizes(draws, model.config["text_config"]);
  try {
    const model::Identified found =
        model::identify(model.config.dump(), "config.json", modules::registry().families);
    model.architecture = found.architecture;
    model.table = found.family->describe(found.architecture);
    draw_training(draws, model);
  } catch (const core::Error& error) {
    if (error.kind() == core::ErrorKind::bug) throw;
    return std::nullopt;
  }
  const bool trains = std::ranges::any_of(model.table.rows, &model::Parameter::trainable);
  return trains ? std::optional(std::move(model)) : std::nullopt;
}

/// A plan of `model` on a random mesh of up to `most_ranks`; nothing where that is refused.
inline std::optional<plan::Plan> draw_plan(Draws& draws, const RandomModel& model,
                                           const plan::OptimizerFootprint& optimizer,
                                           std::int64_t most_ranks) {
  plan::PlanInput request;
  request.architecture = model.architecture;
  request.optimizer = optimizer;
  plan::ParallelSettings& parallel = request.parallel;
  parallel.tp = draws.number(1, 8);
  parallel.cp = draws.one_in(2) ? 1 : draws.number(1, 4);
  parallel.dp_shard = draws.number(1, 4);
  parallel.dp_replicate = draws.one_in(2) ? 1 : draws.number(1, 3);
  parallel.ep = draws.one_in(2) ? 1 : draws.number(1, 6);
  parallel.bucket =
      draws.of(std::vector{plan::Bucket::block, plan::Bucket::layer, plan::Bucket::whole});
  const std::int64_t ranks = parallel.tp * parallel.cp * parallel.dp_shard * parallel.dp_replicate;
  if (ranks > most_ranks) return std::nullopt;
  request.ranks = {.world_size = ranks, .ranks_per_node = ranks};
  request.numbers = {.compute = core::DType::f32};
  request.max_seq_length = 8;
  request.global_batch = ranks;
  try {
    return plan::make(request, model.table);
  } catch (const core::Error& error) {
    if (error.kind() == core::ErrorKind::bug) throw;
    return std::nullopt;
  }
}

inline std::string mesh_text(const plan::Mesh& mesh) {
  using plan::Axis;
  return "dp_replicate " + std::to_string(mesh.axes[Axis::dp_replicate]) + ", dp_shard " +
         std::to_string(mesh.axes[Axis::dp_shard]) + ", cp " + std::to_string(mesh.axes[Axis::cp]) +
         ", tp " + std::to_string(mesh.axes[Axis::tp]) + ", ep " + std::to_string(mesh.ep);
}

}  // namespace finetune::tests
