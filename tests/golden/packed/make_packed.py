#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes models in few bits as they are published, and the numbers that their matrices stand for.

    python make_packed.py [NAME ...]   # made with compressed-tensors 0.20 and torch 2.11

Each folder is the first layer of ../models/llama: config.json and model.safetensors in one format. numbers.safetensors next to
them has every packed matrix [out, in] in fp32, computed from its codes before they are packed by the definition of the format:
scale * (code - zero); for bitsandbytes code * SCB * (1 / 127), rounded to fp32 after each product; for NVFP4
level * (scale / global scale). What compressed-tensors wrote is unpacked by it as well, to the same numbers in bf16.
"""
import json
import pathlib
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
LLAMA = HERE.parent / "models/llama"
MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
GROUP = 32
LEVELS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def grouped(weight, size):
    return weight.unflatten(1, (-1, size))


def quantise(weight, bits, size, scale_dtype, symmetric=False):
    """-> codes [out, in] from 0 on, scales and zeros [out, groups]."""
    x, top = grouped(weight, size), 2**bits - 1
    if symmetric:
        zero = torch.full(x.shape[:2], 2 ** (bits - 1))
        scale = x.abs().amax(-1) / (2 ** (bits - 1) - 0.5)
    else:
        low, high = x.amin(-1).clamp_max(0), x.amax(-1).clamp_min(0)
        scale = (high - low) / top
        zero = (-low / scale).round().clamp(1, top).int()
    scale = scale.clamp_min(1e-4).to(scale_dtype)
    codes = (x / scale.float().unsqueeze(-1)).round() + zero.unsqueeze(-1)
    return codes.clamp(0, top).flatten(1).int(), scale, zero.int()


def numbers(codes, scale, zero, size):
    return ((grouped(codes, size) - zero.unsqueeze(-1)).float() * scale.float().unsqueeze(-1)).flatten(1)


def words(codes, bits, order=None):
    """Codes along the last dim, lowest bits first: [..., N] -> [..., N * bits / 32] int32."""
    num = 32 // bits
    parts = codes.long().unflatten(-1, (-1, num))
    order = order or range(num)
    sums = sum(parts[..., of] << bits * place for place, of in enumerate(order))
    return torch.where(sums >= 2**31, sums - 2**32, sums).int()


def awq(module, weight, tensors):
    codes, scale, zero = quantise(weight, 4, GROUP, torch.float16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    tensors |= {f"{module}.qweight": words(codes.t(), 4, order), f"{module}.qzeros": words(zero.t(), 4, order),
                f"{module}.scales": scale.t()}
    reverse, packed = AutoAWQConverter.AWQ_REVERSE_ORDER, tensors[f"{module}.qweight"]
    for place, output in enumerate(reverse):  # its own table of places
        assert torch.equal((packed >> 4 * output) & 15, codes.t()[:, place::8])
    return numbers(codes, scale, zero, GROUP)


def gptq_8(module, weight, tensors):
    inputs = weight.shape[1]
    place = torch.arange(inputs) * 7 % inputs  # 7 is prime to all sizes here
    sorted_codes, scale, zero = quantise(weight[:, place.argsort()], 8, GROUP, torch.float16)
    tensors |= {f"{module}.qweight": words(sorted_codes[:, place], 8).t(),
                f"{module}.qzeros": words(zero.t() - 1, 8), f"{module}.scales": scale.t(),
                f"{module}.g_idx": (place // GROUP).int()}
    return numbers(sorted_codes, scale, zero, GROUP)[:, place]


def compressed(module, weight, tensors, form, **arguments):
    bits, size = arguments["num_bits"], arguments.get("group_size") or weight.shape[1]
    codes, scale, zero = quantise(weight, bits, size, torch.bfloat16, arguments["symmetric"])
    half = 2 ** (bits - 1)
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(type="int", **arguments))
    expected = numbers(codes, scale, zero, size)
    writer = BaseCompressor.get_value_from_registry(form)
    state = {"weight": expected.clone(), "weight_scale": scale}
    if not arguments["symmetric"]:
        state["weight_zero_point"] = (zero - half).to(torch.int8)
    packed = writer.compress(state, scheme)
    back = writer.decompress(packed, scheme)["weight"]
    assert torch.equal(back.bfloat16(), expected.bfloat16()), module
    tensors |= {f"{module}.{k}": v.contiguous() for k, v in packed.items()}
    return expected


def bitsandbytes_8(module, weight, tensors):
    scb = weight.abs().amax(1)
    codes = (weight * (127 / scb).unsqueeze(1)).round().to(torch.int8)
    tensors |= {f"{module}.weight": codes, f"{module}.SCB": scb, f"{module}.weight_format": torch.tensor(0, dtype=torch.uint8)}
    return codes * scb.unsqueeze(1) * 7.874015718698502e-3


def floats_of_4_bits(weight):
    """-> numbers before scales [out, groups, 16], scales [out, groups] in 8 bits, what they are divided by, codes in bytes."""
    x = grouped(weight, 16)
    divisor = (448 * 6 / weight.abs().max()).reshape(1)
    scale = (x.abs().amax(-1) * divisor / 6).to(torch.float8_e4m3fn)
    scaled = x / (scale.float() / divisor).clamp_min(1e-12).unsqueeze(-1)
    code = (scaled.abs().unsqueeze(-1) - LEVELS).abs().argmin(-1)
    values = LEVELS[code] * torch.where(scaled < 0, -1.0, 1.0)
    code = (code + 8 * (scaled < 0)).flatten(1).to(torch.uint8)
    return values, scale, divisor, code[:, 0::2] | code[:, 1::2] << 4


def nvfp4(module, weight, tensors):
    values, scale, divisor, codes = floats_of_4_bits(weight)
    packed = {"weight_packed": codes, "weight_scale": scale, "weight_global_scale": divisor}
    expected = (values * (scale.float() / divisor).unsqueeze(-1)).flatten(1)
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(
        num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True))
    back = BaseCompressor.get_value_from_registry("nvfp4-pack-quantized").decompress(dict(packed), scheme)["weight"]
    assert torch.equal(back.bfloat16(), expected.bfloat16()), module
    tensors |= {f"{module}.{k}": v.contiguous() for k, v in packed.items()}
    return expected


def modelopt(module, weight, tensors):
    """Scales are multiplied by a factor there; here they are divided by one over it."""
    values, scale, divisor, codes = floats_of_4_bits(weight)
    factor = (1 / divisor).reshape(())
    tensors |= {f"{module}.weight": codes, f"{module}.weight_scale": scale, f"{module}.weight_scale_2": factor,
                f"{module}.input_scale": torch.tensor(0.5)}
    expected = values * (scale.float() / (1 / factor)).unsqueeze(-1)
    assert torch.allclose(expected, values * (scale.float() * factor).unsqueeze(-1), rtol=3e-7, atol=0), module
    return expected.flatten(1)


def config_of(form, **weights):
    weights = {"actorder": None, "block_structure": None, "dynamic": False, "group_size": None, "observer": "minmax",
               "observer_kwargs": {}, "type": "int"} | weights
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": ["lm_head"],
            "kv_cache_scheme": None, "config_groups": {"group_0": {
                "targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}}}


def compressed_as(form, **arguments):
    return (lambda *of: compressed(*of, form, **arguments)), config_of(form, **arguments)


FORMATS = {
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True,
                  "modules_to_not_convert": None}),
    "gptq_8": (gptq_8, {"quant_method": "gptq", "bits": 8, "group_size": GROUP, "desc_act": True, "sym": False}),
    "words_4": compressed_as("pack-quantized", num_bits=4, strategy="group", group_size=GROUP, symmetric=True),
    "words_4_zeros": compressed_as("pack-quantized", num_bits=4, strategy="group", group_size=16, symmetric=False),
    "words_8": compressed_as("pack-quantized", num_bits=8, strategy="channel", symmetric=True),
    "bytes_8": compressed_as("int-quantized", num_bits=8, strategy="channel", symmetric=True),
    "bytes_8_zeros": compressed_as("int-quantized", num_bits=8, strategy="group", group_size=16, symmetric=False),
    "bitsandbytes_8": (bitsandbytes_8, {
        "quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False, "llm_int8_threshold": 6.0,
        "llm_int8_skip_modules": None, "llm_int8_has_fp16_weight": False, "bnb_4bit_quant_type": "fp4",
        "bnb_4bit_quant_storage": "uint8"}),
    "nvfp4": (nvfp4, config_of("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16,
                               symmetric=True)),
    "modelopt": (modelopt, {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}),
}


def write(name):
    pack, quantization = FORMATS[name]
    config = json.loads((LLAMA / "config.json").read_text()) | {"num_hidden_layers": 1, "quantization_config": quantization}
    tensors, stands_for = {}, {}
    for key, value in load_file(LLAMA / "model.safetensors").items():
        if ".layers." in key and ".layers.0." not in key:
            continue
        if key.removesuffix(".weight").endswith(MATRICES):
            stands_for[key] = pack(key.removesuffix(".weight"), value.float(), tensors).contiguous()
        else:
            tensors[key] = value.bfloat16()
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(stands_for, folder / "numbers.safetensors", metadata={"format": "pt"})
    moved = max((stands_for[k] - v).abs().max().item() for k, v in load_file(LLAMA / "model.safetensors").items()
                if k in stands_for)
    print(f"{name}: weights moved by {moved:.4f} at most")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in sys.argv[1:] or FORMATS:
        write(each)
