# SPDX-License-Identifier: Apache-2.0
"""Compares a folder in FP8 that this program wrote with what compressed-tensors and transformers make of it.

python3 check_fp8.py written DENSE FP8           every value against compressed-tensors' own rounding
python3 check_fp8.py load FP8 LOGITS             what transformers loads, dequantised, against LOGITS
python3 check_fp8.py random OUT                  writes a dense model whose matrices are of whole blocks
python3 check_fp8.py deepseek FP8 OUT            writes the same model as DeepSeek and transformers' "fp8" have it
LOGITS holds fp32 logits [40, V] of ids 37 i mod 500. Exit code 1 if something is missing, unexpected or differs.
"""

import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file

TOLERANCE = 3e-5  # of logits; ten times the difference between two correct programs


def tensors_of(folder):
    tensors = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def compare_written(dense, folder):
    from compressed_tensors.compressors import NaiveQuantizationCompressor
    from compressed_tensors.quantization import QuantizationConfig

    config = json.load(open(f"{folder}/config.json"))["quantization_config"]
    config.pop("quant_method")
    (scheme,) = QuantizationConfig(**config).config_groups.values()
    expected, got = tensors_of(dense), tensors_of(folder)
    num = 0
    for name in [n for n in got if n.endswith("_scale")]:
        weight, scale = name.removesuffix("_scale"), got.pop(name)
        state = {"weight": expected.pop(weight).float(), "weight_scale": scale.float()}
        theirs = NaiveQuantizationCompressor.compress(state, scheme)["weight"]
        if not torch.equal(theirs.view(torch.uint8), got.pop(weight).view(torch.uint8)):
            sys.exit(f"{weight} was rounded otherwise")
        num += 1
    for name, tensor in got.items():
        if not torch.equal(expected.pop(name), tensor):
            sys.exit(f"{name} was changed")
    if num == 0 or expected:
        sys.exit(f"{num} matrices in FP8, {sorted(expected)} are missing")
    print(f"{num} matrices are as compressed-tensors rounds them")


def with_fp32_scales(folder, out):
    """A copy that compressed-tensors unpacks to fp32: it rounds products to the dtype of scales."""
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("*.safetensors*"))
    tensors = {n: t.float() if n.endswith("_scale") else t for n, t in tensors_of(folder).items()}
    save_file(tensors, f"{out}/model.safetensors", metadata={"format": "pt"})
    return out


def compare_logits(folder, file):
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig, FineGrainedFP8Config

    if not pathlib.Path(f"{folder}.fp32").exists():
        with_fp32_scales(folder, f"{folder}.fp32")
    folder = f"{folder}.fp32"
    kind = json.load(open(f"{folder}/config.json"))["quantization_config"]["quant_method"]
    choice = FineGrainedFP8Config(dequantize=True) if kind == "fp8" else CompressedTensorsConfig(dequantize=True)
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", quantization_config=choice, output_loading_info=True
    )
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[what]:
            sys.exit(f"{what}: {info[what]}")
    ids = (torch.arange(40) * 37 % 500).unsqueeze(0)
    with torch.no_grad():
        expected = model.eval()(ids).logits[0].float()
    got = torch.frombuffer(bytearray(open(file, "rb").read()), dtype=torch.float32).view(40, -1)
    difference = (got - expected).abs().max().item()
    print(f"logits differ by at most {difference:.2e}")
    if not difference < TOLERANCE:
        sys.exit(1)
    if kind == "compressed-tensors":  # as it serves: activations are quantised as well
        served = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            served = served(ids).logits[0].float()
        apart = (served - expected).abs().max().item()
        print(f"served, logits differ by at most {apart:.2e}")
        if not apart < 0.1 * expected.abs().max().item():
            sys.exit(1)


def write_random(out):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        vocab_size=512,
        initializer_range=0.1,
    )
    LlamaForCausalLM(config).save_pretrained(out)


def write_deepseek(folder, out):
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("*.safetensors*"))
    tensors = {}
    for name, tensor in tensors_of(folder).items():
        is_scale = name.endswith("_scale")
        tensors[name.replace("_scale", "_scale_inv") if is_scale else name] = tensor.float() if is_scale else tensor
    save_file(tensors, f"{out}/model.safetensors", metadata={"format": "pt"})
    config = json.load(open(f"{out}/config.json"))
    config["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    }
    json.dump(config, open(f"{out}/config.json", "w"))


command, *words = sys.argv[1:]
{"written": compare_written, "load": compare_logits, "random": write_random, "deepseek": write_deepseek}[command](*words)
