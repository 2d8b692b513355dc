# SPDX-License-Identifier: Apache-2.0
"""Compares folders that this program wrote with what PEFT and transformers make of them.

python3 check_adapter.py load BASE ADAPTER LOGITS   PEFT's logits of ADAPTER beside BASE against LOGITS
python3 check_adapter.py nf4 BASE NF4 LOGITS        what transformers and bitsandbytes load from NF4 against LOGITS
python3 check_adapter.py merge BASE ADAPTER MERGED  PEFT's merged weights against those in MERGED
python3 check_adapter.py make BASE ADAPTER KIND     writes a new adapter with numbers in all of its parts
LOGITS holds fp32 logits [40, V] of ids 37 i mod 500. Exit code 1 if something is missing, unexpected or differs.
"""

import sys
import warnings

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

TOLERANCE = 3e-5  # of logits; ten times the difference between two correct programs


def base_model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def adapted(base, adapter):
    from peft import PeftModel

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PeftModel.from_pretrained(base_model(base), adapter)
    problems = [str(w.message) for w in caught if "adapter keys" in str(w.message)]
    if problems:
        sys.exit("\n".join(problems))
    return model.eval()


def compare_logits(model, file):
    ids = (torch.arange(40) * 37 % 500).unsqueeze(0)
    with torch.no_grad():
        expected = model(ids).logits[0]
    got = torch.frombuffer(bytearray(open(file, "rb").read()), dtype=torch.float32).view(40, -1)
    difference = (got - expected).abs().max().item()
    print(f"logits differ by at most {difference:.2e}")
    if not difference < TOLERANCE:
        sys.exit(1)


def dequantised(base, folder):
    """The loaded 4-bit layers' values, by definition: bitsandbytes 0.50 errs on a CPU where blocks cross rows."""
    from bitsandbytes.functional import dequantize_blockwise

    model = base_model(base)
    num_layers = 0
    for name, module in base_model(folder).named_modules():
        if type(module).__name__ != "Linear4bit":
            continue
        num_layers += 1
        packed, state = module.weight.data.view(-1), module.weight.quant_state
        absmax = state.absmax
        if state.nested:
            absmax = dequantize_blockwise(state.absmax, state.state2) + state.offset
        codes = torch.stack([packed >> 4, packed & 15], -1).view(-1, state.blocksize).long()
        weight = model.get_submodule(name).weight
        weight.data = (state.code[codes] * absmax.view(-1, 1)).view(weight.shape)
    if num_layers != 14:
        sys.exit(f"{num_layers} layers were loaded in 4 bits")
    return model


def compare_merged(base, adapter, folder):
    expected = adapted(base, adapter).merge_and_unload().state_dict()
    got = load_file(f"{folder}/model.safetensors")
    for name, tensor in got.items():
        difference = (tensor - expected[name]).abs().max().item()
        if not difference < 1e-6:
            sys.exit(f"{name} differs by {difference:.2e}")
    print(f"{len(got)} tensors are PEFT's")


def make(base, folder, kind):
    from peft import LoraConfig, get_peft_model

    options = {
        "plain": {"target_modules": "all-linear"},
        "pattern": {"target_modules": r".*\.1\..*[qv]_proj"},
        "layers": {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1], "layers_pattern": "layers"},
        "exclude": {"target_modules": "all-linear", "exclude_modules": r".*\.0\..*|.*\.k_proj"},
        "rich": {
            "target_modules": ["q_proj", "down_proj"],
            "use_dora": True,
            "use_rslora": True,
            "modules_to_save": ["lm_head", "embed_tokens"],
        },
    }[kind]
    torch.manual_seed(7)
    model = get_peft_model(base_model(base), LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **options))
    for name, value in model.named_parameters():
        if value.requires_grad:
            value.data += 0.05 * torch.randn_like(value)
    model.save_pretrained(folder)


command, *words = sys.argv[1:]
if command == "load":
    compare_logits(adapted(words[0], words[1]), words[2])
elif command == "nf4":
    compare_logits(dequantised(words[0], words[1]), words[2])
elif command == "merge":
    compare_merged(*words)
else:
    make(*words)
