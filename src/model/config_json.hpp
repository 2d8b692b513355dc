#pragma once
// SPDX-License-Identifier: Apache-2.0
// config.json, read strictly: every number is checked before it becomes a size.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "model/architecture.hpp"

namespace finetune::model {

/// Reads keys of one JSON object. Errors name `where` and the key.
class ConfigReader {
 public:
  ConfigReader(const core::Json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  /// An integer in [1, 2^40]. Without a fallback the key must be there.
  std::int64_t size(const char* key, std::optional<std::int64_t> fallback = std::nullopt) const;
  double real(const char* key, std::optional<double> fallback = std::nullopt) const;
  bool boolean(const char* key, bool fallback) const;
  std::string text(const char* key, const std::string& fallback) const;
  /// Whole numbers from 0 to 2^40; empty if the key is not there.
  std::vector<std::int64_t> numbers(const char* key) const;
  std::vector<double> reals(const char* key) const;
  std::vector<std::string> texts(const char* key) const;
  bool has(const char* key) const;
  /// Whether the key is there, be it as null: what is not there has the family's own default.
  bool names(const char* key) const { return object_.contains(key); }

  /// Refuses a setting this family does not implement, unless it has one of the `accepted` values.
  void require_text(const char* key, const std::string& fallback,
                    std::initializer_list<const char*> accepted) const;
  void require_false(const char* key) const;

  /// Refuses the value of `key`: config.json is damaged, or this program does not support it.
  [[noreturn]] void fail(const char* key, const std::string& problem, const std::string& why) const;
  [[noreturn]] void fail_unsupported(const char* key, const std::string& problem,
                                     const std::string& why) const;

  const core::Json& object() const { return object_; }
  const std::string& where() const { return where_; }

 private:
  const core::Json* find(const char* key) const;

  const core::Json& object_;
  std::string where_;
};

inline constexpr std::int64_t most_layers = 100'000;

/// What configurations of Hugging Face's decoders say under the same keys: sizes, norm, positions,
/// dtype. `default_head_size`: of a family whose head_dim is not hidden_size / heads where it is
/// not told.
void read_decoder(const ConfigReader& config, Architecture& architecture,
                  std::optional<std::int64_t> default_head_size = std::nullopt);

/// By transformers' name of it.
Activation::Function read_activation(const ConfigReader& config, const char* key,
                                     const std::string& fallback);

/// A number above 0.
double read_factor(const ConfigReader& config, const char* key, double fallback = 1);

/// Attention's scores are multiplied by `factor`, not by 1 / sqrt(K): turned queries and keys have
/// half of the difference each. Every layer turns them.
void scale_scores(Architecture& architecture, double factor);

/// attention_bias: of queries, keys, values and the output; mlp_bias.
void read_biases(const ConfigReader& config, Architecture& architecture);

/// Which layers slide: layer_types ("sliding_attention" or "full_attention" each), or where it is
/// not told every layer but each `pattern`-th (0: none). Throws: ErrorKind::input.
std::vector<bool> read_sliding_layers(const ConfigReader& config, std::int64_t num_layers,
                                      std::int64_t pattern);

/// Of layers that slide, as above, the window is `window`. The layers are there already.
void read_windows(const ConfigReader& config, std::int64_t pattern, std::int64_t window,
                  Architecture& architecture);

/// Which layers have positions: no_rope_layers (0 or 1 each), or where it is not told every layer
/// but each no_rope_layer_interval-th (4).
std::vector<bool> read_rotation(const ConfigReader& config, std::int64_t num_layers);

/// "text_config" of a model that also sees or hears: the part that is trained.
ConfigReader text_config(const core::Json& config, const std::string& where);

/// The coefficient of the load-balancing term: router_aux_loss_coef where output_router_logits asks
/// for it, else 0.
double read_balance(const ConfigReader& config);

/// Scores by sigmoids and a constant for the choice (Experts::scores_apart, corrects_choice):
/// scoring_func says nothing else.
void read_apart_scores(const ConfigReader& config, Architecture& architecture);

/// Experts with such scores in groups, and shared ones, as DeepSeek 3's configuration has them:
/// n_routed_experts, n_group, first_k_dense_replace and so on. `unsaid`: what it is where it is not
/// told, but for the first layer with experts. The layers are there already.
void read_grouped_experts(const ConfigReader& config, const Experts& unsaid,
                          Architecture& architecture, std::int64_t first_with_experts = 1);

/// The same of DeepSeek 2: scores are a softmax, and groups go by their best expert, if a token
/// takes of some alone.
void read_softmax_experts(const ConfigReader& config, const Experts& unsaid,
                          Architecture& architecture, std::int64_t first_with_experts);

/// What read_decoder reads, and attention with latents (Architecture::latents): q_lora_rank (null:
/// none), kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, rope_interleave. `layers`
/// get an entry each.
void read_latent_decoder(const ConfigReader& config, Architecture& architecture);

/// rope_theta, rope_scaling and partial_rotary_factor (transformers 4) or rope_parameters
/// (transformers 5); what is not told stays as it is. Of heads and positions that were read before.
/// Scalings that begin beyond some position ("dynamic", "longrope") limit the positions to it.
void read_rope(const ConfigReader& config, Architecture& architecture);

/// Where layers with a window have angles of their own: those of rope_parameters, else the others'
/// without their scaling. After read_rope.
void read_window_rope(const ConfigReader& config, Architecture& architecture);

/// torch_dtype (transformers 4) or dtype (transformers 5).
core::DType read_dtype(const ConfigReader& config);

}  // namespace finetune::model
