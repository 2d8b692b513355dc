#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes gpt_oss_mxfp4: gpt_oss beside it with its experts in MXFP4, as gpt-oss was published, and what transformers makes of it.

    python make_mxfp4.py        # after make_families.py gpt_oss; made with transformers 5.24 and torch 2.11

cases/gpt_oss_mxfp4.safetensors has input_ids [2, 32], logits and logits.scale as those of make_families.py, and expert.TENSOR:
what transformers unpacks of each tensor of experts of the first layer.
"""
import json
import pathlib

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from make_families import new_model
from reference import drawn, in_double

HERE = pathlib.Path(__file__).resolve().parent
LEVELS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
BLOCK, BIAS, LARGEST = 32, 127, 2  # inputs with one exponent; the exponent of the largest level


def pack(weight):
    """[E, in, out] -> blocks [E, out, in / 32, 16] and scales [E, out, in / 32], both uint8."""
    x = weight.transpose(1, 2).unflatten(2, (-1, BLOCK))
    exponent = x.abs().amax(-1).clamp_min(2.0**-100).log2().floor() - LARGEST
    scaled = x / exponent.exp2().unsqueeze(-1)
    code = (scaled.abs().unsqueeze(-1) - LEVELS).abs().argmin(-1) + 8 * (scaled < 0)
    blocks = code[..., 0::2] | code[..., 1::2] << 4
    return blocks.to(torch.uint8), (exponent + BIAS).to(torch.uint8)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dense = drawn.tensors(json.loads((HERE / "gpt_oss/weights.json").read_text()))
    packed, unpacked = {}, {}
    for name, value in dense.items():
        value = torch.from_numpy(value)
        if name.endswith((".gate_up_proj", ".down_proj")):
            packed[name + "_blocks"], packed[name + "_scales"] = pack(value)
            value = convert_moe_packed_tensors(packed[name + "_blocks"], packed[name + "_scales"], dtype=torch.float32)
        else:
            packed[name] = value
        unpacked[name] = value.contiguous()
    folder = HERE / "gpt_oss_mxfp4"
    folder.mkdir(exist_ok=True)
    config = json.loads((HERE / "gpt_oss/config.json").read_text())
    config["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=[
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file({k: v.contiguous() for k, v in packed.items()}, folder / "model.safetensors", metadata={"format": "pt"})

    del config["quantization_config"]
    ids = torch.randint(config["vocab_size"], (2, 32), generator=torch.Generator().manual_seed(7))
    model = new_model("gpt_oss").float()
    model.load_state_dict(unpacked)
    with in_double():
        wide = new_model("gpt_oss").double()
    wide.load_state_dict(unpacked)
    with torch.no_grad():
        logits = model(input_ids=ids).logits.numpy()
        with in_double():
            exact = wide(input_ids=ids).logits.numpy()
    far = np.abs(logits - exact).max() / np.abs(exact).max()
    result = dict(input_ids=ids, logits=torch.from_numpy(drawn.project(logits).astype(np.float32)),
                  **{"logits.scale": torch.tensor([np.abs(logits).max(), far], dtype=torch.float32)})
    result |= {"expert." + k: v for k, v in unpacked.items() if ".0.mlp.experts." in k and k.endswith("_proj")}
    save_file({k: v.contiguous() for k, v in result.items()}, HERE.parent / "cases/gpt_oss_mxfp4.safetensors")
    moved = max(np.abs(unpacked[k].numpy() - dense[k]).max() for k in dense)
    print(f"gpt_oss_mxfp4: logits {logits.std():.2f}, {far:.1e} from fp64, weights moved by {moved:.3f} at most")
