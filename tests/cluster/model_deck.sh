# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: Apache-2.0
# Sourced by what trains on two nodes: write_deck writes deck.toml and a model of 4.8 million parameters to $folder,
# for $num_steps steps; $root is the top folder.

# Large enough that a step's bytes take longer on the shaped cable than their latency; one pass a rank.
write_deck() {
  mkdir -p "$folder/model"
  cp "$root"/inputs/smoke/model/tokenizer*.json "$folder/model"
  cat >"$folder/model/config.json" <<'EOF'
{
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_size": 256,
  "intermediate_size": 688,
  "num_hidden_layers": 6,
  "num_attention_heads": 4,
  "num_key_value_heads": 4,
  "hidden_act": "silu",
  "max_position_embeddings": 512,
  "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0,
  "tie_word_embeddings": true,
  "torch_dtype": "bfloat16",
  "vocab_size": 257
}
EOF
  cat >"$folder/deck.toml" <<EOF
[model]
path = "$folder/model"
init = "random"
[data]
path = "$root/inputs/smoke/counting.txt"
format = "text"
max_seq_length = 64
[precision]
mode = "bf16-mixed"
[train]
output = "$folder/output"
max_steps = $num_steps
global_batch = 4
micro_batch = 1
[metrics]
log_steps = $num_steps
EOF
}
