#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random weights of a Llama's config.json as one model.safetensors in bf16, drawn on the GPU: seconds for 8B.

  random_weights.py CONFIG.json FOLDER"""
import json
import os
import sys

import torch


def shapes_of(config):
    d, ff, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], d), "model.norm.weight": (d,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], d)
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {
            "input_layernorm": (d,), "post_attention_layernorm": (d,), "self_attn.q_proj": (q, d),
            "self_attn.k_proj": (kv, d), "self_attn.v_proj": (kv, d), "self_attn.o_proj": (d, q),
            "mlp.gate_proj": (ff, d), "mlp.up_proj": (ff, d), "mlp.down_proj": (d, ff),
        }.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return shapes


def main(config_path, folder):
    with open(config_path, encoding="utf-8") as file:
        shapes = shapes_of(json.load(file))
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            values = torch.ones(shape, dtype=torch.bfloat16, device=device)
            if len(shape) > 1:
                values.normal_(0, 0.02)
            file.write(memoryview(values.view(torch.int16).cpu().numpy()))


if __name__ == "__main__":
    main(*sys.argv[1:])
