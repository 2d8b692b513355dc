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

/// What a family has where its configuration is silent, as transformers' class of it says.
struct Unsaid {
  /// head_dim; hidden_size / heads without one, and where the key is there as null.
  std::optional<std::int64_t> head_size = {};
  /// num_key_value_heads; as many as query heads without one, and where the key is there as null.
  std::optional<std::int64_t> num_kv_heads = {};
  double norm_eps = 1e-6;
  bool is_tied = false;
  /// partial_rotary_factor: the part of a head's channels that turns. Without it all turn, as in
  /// most families of transformers, and a configuration that says another part is refused.
  std::optional<double> turned_part = {};
};

/// What configurations of Hugging Face's decoders say under the same keys: sizes, norm, positions,
/// dtype.
void read_decoder(const ConfigReader& config, Architecture& architecture,
                  const Unsaid& unsaid = {});

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

/// Of layers that slide, as above, the window is sliding_window, or `unsaid` without the key. The
/// layers are there already. Throws: ErrorKind::input, also where some slide and the key is null.
void read_windows(const ConfigReader& config, std::int64_t pattern, std::int64_t unsaid,
                  Architecture& architecture);

/// Which layers have positions: no_rope_layers (0 or 1 each), or where it is not told every layer
/// but each no_rope_layer_interval-th (4).
std::vector<bool> read_rotation(const ConfigReader& config, std::int64_t num_layers);

/// "text_config" of a model that also sees or hears: the part that is trained.
ConfigReader text_config(const core::Json& config, const std::string& where);

/// Of such a model: whether head and embedding are one is said of the whole, if it is.
void read_ties_of_whole(const core::Json& config, const std::string& where,
                        Architecture& architecture);

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
/// get an entry each. `unsaid_eps`: Unsaid::norm_eps.
void read_latent_decoder(const ConfigReader& config, Architecture& architecture,
                         double unsaid_eps = 1e-6);

/// Positions, as transformers 5 takes them: rope_scaling is another name of rope_parameters, and
/// what either has of rope_theta and partial_rotary_factor counts before what the configuration has
/// beside it; original_max_position_embeddings beside it counts before the one inside. What is not
/// told stays as it is. Of heads and positions that were read before. `turned_part`: as
/// Unsaid's. Scalings that begin beyond some position ("dynamic", "longrope") limit the positions
/// to it. Throws: ErrorKind::input, also where rope_scaling and rope_parameters say different
/// things.
void read_rope(const ConfigReader& config, Architecture& architecture,
               std::optional<double> turned_part = {});

/// The configuration with these rope_parameters where it has none and no rope_scaling.
core::Json with_rope(const core::Json& config, const core::Json& unsaid);

/// Of families whose layers with a window have angles of their own: those of rope_parameters' entry
/// "sliding_attention", without scaling and with `theta` where it does not tell. After read_rope.
void read_window_rope(const ConfigReader& config, double theta, Architecture& architecture);

/// torch_dtype (transformers 4) or dtype (transformers 5).
core::DType read_dtype(const ConfigReader& config);

}  // namespace finetune::model
