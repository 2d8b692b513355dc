#pragma once
// SPDX-License-Identifier: Apache-2.0
// The parameter table of a decoder, in the order of memory, under the names of a family's files.

#include <string>
#include <vector>

#include "model/architecture.hpp"
#include "model/detail/decoder.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

/// Names of tensors in a family's files, as Hugging Face's Llama calls them unless given.
/// Those of a block follow `layers` and the layer's number.
struct TensorNames {
  std::string embedding = "model.embed_tokens";
  std::string positions;                                         ///< of a model that learns them
  std::string layer_embedding = "model.embed_tokens_per_layer";  ///< where layers have inputs
  std::string layer_projection = "model.per_layer_model_projection";
  std::string layer_projection_norm = "model.per_layer_projection_norm";
  std::string layers = "model.layers.";
  std::string final_norm = "model.norm";
  std::string head = "lm_head";

  std::string attention_norm = "input_layernorm";
  std::string qkv;  ///< one tensor of queries, keys and values; empty: three
  std::string query = "self_attn.q_proj";
  std::string key = "self_attn.k_proj";
  std::string value = "self_attn.v_proj";
  std::string query_norm = "self_attn.q_norm";
  std::string key_norm = "self_attn.k_norm";
  std::string query_latent = "self_attn.q_a_proj";
  std::string query_latent_norm = "self_attn.q_a_layernorm";
  std::string query_up = "self_attn.q_b_proj";
  std::string latent = "self_attn.kv_a_proj_with_mqa";
  std::string latent_norm = "self_attn.kv_a_layernorm";
  std::string key_value_up = "self_attn.kv_b_proj";
  std::string sinks = "self_attn.sinks";
  std::string delta = "linear_attn.";  ///< what a layer that remembers has follows
  std::string state = "mixer.";        ///< the same of one with a state space
  std::string attention_out = "self_attn.o_proj";
  std::string attention_added_norm;  ///< of blocks that norm what they add
  std::string feed_forward_norm = "post_attention_layernorm";
  std::string feed_forward_added_norm;
  std::string gate_up;  ///< one tensor of both; empty: two
  std::string gate = "mlp.gate_proj";
  std::string up = "mlp.up_proj";
  std::string down = "mlp.down_proj";
  std::string layer_input_gate = "per_layer_input_gate";
  std::string layer_input_out = "per_layer_projection";
  std::string layer_input_norm = "post_per_layer_input_norm";
  std::string block_scale = "layer_scalar";  ///< the tensor's whole name
  std::string activation = "mlp.act_fn.";    ///< its numbers' names follow

  std::string router = "mlp.gate";
  std::string router_scale = "router.scale";  ///< of its norm's channels: the tensor's whole name
  std::string expert_scales = "router.per_expert_scale";  ///< the same
  std::string experts_norm;                               ///< where experts are beside a dense part
  std::string experts_added_norm;
  std::string dense_added_norm;
  std::string correction = "mlp.gate.e_score_correction_bias";  ///< the tensor's whole name
  bool correction_is_matrix = false;                            ///< [1, E], not [E]
  std::string expert = "mlp.experts.";  ///< an expert's number follows, then these:
  std::string expert_gate = ".gate_proj";
  std::string expert_up = ".up_proj";
  std::string expert_down = ".down_proj";
  /// One tensor for all experts' gate and up [E, D, 2 F] and one for down [E, F, D], whole names;
  /// empty: `expert`. Their biases have the same names and "_bias".
  std::string fused_gate_up;
  std::string fused_down;
  bool fused_are_by_outputs = false;  ///< [E, 2 F, D] and [E, D, F]
  std::string shared_gate_up;         ///< one tensor of both; empty: two
  std::string shared_gate;
  std::string shared_up;
  std::string shared_down;
  std::string shared_expert_gate;

  bool blocks_are_by_inputs = false;  ///< matrices of blocks lie in the files as [in, out]

  /// Beginnings of names of tensors that are of other parts of the model (ParameterTable::foreign).
  std::vector<std::string> foreign = {};

  /// The same of a model that is a part of another one: all begin with `prefix`.
  TensorNames below(const std::string& prefix) const {
    TensorNames all = *this;
    for (std::string* name : {&all.embedding, &all.layer_embedding, &all.layer_projection,
                              &all.layer_projection_norm, &all.layers, &all.final_norm, &all.head})
      *name = prefix + *name;
    return all;
  }
};

/// Units: the embedding, each block, the final norm with the head (unless tied). Within a block q,
/// k, v lie next to each other, so do their biases, and gate and up.
ParameterTable lay_out(const Architecture& architecture, const TensorNames& names = {});

}  // namespace finetune::model
