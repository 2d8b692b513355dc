# SPDX-License-Identifier: Apache-2.0
"""Reads a GGUF file with the package gguf, and compares it with the model folder that it was made of.

python3 read_gguf.py FILE FOLDER: exit code 1 and what differs: numbers and names of the header, tokens, each tensor (of float
types exactly as torch rounds, of q8_0 as the package quantises).
"""
import json
import pathlib
import re
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

file, folder = sys.argv[1], pathlib.Path(sys.argv[2])
reader = gguf.GGUFReader(file)
config = json.loads((folder / "config.json").read_text())
fields = {key: field.contents() for key, field in reader.fields.items()}
arch = fields["general.architecture"]


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got} instead of {wanted}")


heads = config["num_attention_heads"]
size = config.get("head_dim") or config["hidden_size"] // heads
expect("block_count", fields[f"{arch}.block_count"], config["num_hidden_layers"])
expect("embedding_length", fields[f"{arch}.embedding_length"], config["hidden_size"])
expect("feed_forward_length", fields[f"{arch}.feed_forward_length"], config["intermediate_size"])
expect("head_count", fields[f"{arch}.attention.head_count"], heads)
expect("head_count_kv", fields[f"{arch}.attention.head_count_kv"], config["num_key_value_heads"])
expect("epsilon", np.float32(fields[f"{arch}.attention.layer_norm_rms_epsilon"]), np.float32(config["rms_norm_eps"]))
num_experts = config.get("num_local_experts") or config.get("num_experts")
if num_experts:
    expect("expert_count", fields[f"{arch}.expert_count"], num_experts)
    expect("expert_used_count", fields[f"{arch}.expert_used_count"], config["num_experts_per_tok"])
    expect("expert_feed_forward_length", fields[f"{arch}.expert_feed_forward_length"],
           config.get("moe_intermediate_size") or config["intermediate_size"])
tokenizer = json.loads((folder / "tokenizer.json").read_text())
tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
expect("tokens", len(tokens), config["vocab_size"])
for text, number in tokenizer["model"]["vocab"].items():
    expect(f"token {number}", tokens[number], text)
for added in tokenizer.get("added_tokens", []):
    expect(f"token {added['id']}", tokens[added["id"]], added["content"])
    expect(f"type of {added['content']}", types[added["id"]], 3 if added["special"] else 4)
expect("merges", len(fields["tokenizer.ggml.merges"]), len(tokenizer["model"]["merges"]))

weights = {k: v.float() for k, v in load_file(folder / "model.safetensors").items()}
stacks = {}
for name in [name for name in weights if ".experts." in name]:
    layer, expert, part = re.fullmatch(r"(.*\.experts)\.(\d+)(\..*)", name).groups()
    stacks.setdefault(layer + part, {})[int(expert)] = weights.pop(name)
weights |= {name: torch.stack([value for _, value in sorted(parts.items())]) for name, parts in stacks.items()}
names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA if arch == "llama" else getattr(gguf.MODEL_ARCH, arch.upper()),
                                 config["num_hidden_layers"])
there = {tensor.name: tensor for tensor in reader.tensors}
for name, value in weights.items():
    tensor = there.pop(names.get_name(name, try_suffixes=(".weight", ".bias")))
    if arch == "llama" and (".q_proj." in name or ".k_proj." in name):
        n = heads if ".q_proj." in name else config["num_key_value_heads"]
        value = value.reshape(n, 2, value.shape[0] // n // 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
    kind = tensor.tensor_type.name
    expect(f"shape of {name}", list(reversed(tensor.shape.tolist())), list(value.shape))
    if value.dim() == 1 or ".ffn_gate_inp." in tensor.name:
        expect(f"type of {name}", kind, "F32")
    if kind == "Q8_0":
        wanted = gguf.quants.quantize(value.numpy(), gguf.GGMLQuantizationType.Q8_0)
        same = np.array_equal(wanted.reshape(-1), np.asarray(tensor.data).reshape(-1))
    else:
        wanted = value.to({"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind])
        got = torch.from_numpy(np.array(tensor.data).reshape(-1).view(np.uint8).copy())
        same = torch.equal(got, wanted.contiguous().reshape(-1).view(torch.uint8))
    if not same:
        sys.exit(f"{name}: other numbers ({kind})")
rest = set(there) - {"rope_freqs.weight"}
if rest:
    sys.exit(f"too many tensors: {sorted(rest)}")
print(f"{file}: {len(weights)} tensors, {len(tokens)} tokens, {arch}, {fields['tokenizer.ggml.pre']}")
