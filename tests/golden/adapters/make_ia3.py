# SPDX-License-Identifier: Apache-2.0
"""Writes the adapters ia3 and ia3_mixed as PEFT saves them, and NAME.safetensors with the loss, the gradients and the
merged weights that PEFT has for them: of the small Llama with the usual targets, and of the small Qwen2, whose products
have biases, with matrices next to each other of which some scale their inputs and some their outputs.

python make_ia3.py [NAME ...]      in this folder, with torch, transformers and peft
"""
import os
import sys
import tempfile

import torch
from peft import IA3Config, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

sys.path.insert(0, "..")
import drawn  # noqa: E402

CASES = {
    "ia3": ("llama", ["k_proj", "v_proj", "down_proj"], ["down_proj"], ["norm"]),
    "ia3_mixed": ("qwen2", ["q_proj", "k_proj", "gate_proj", "up_proj", "down_proj"],
                  ["q_proj", "gate_proj", "down_proj"], None),
}


def adapted(family, targets, feedforward, saved):
    with tempfile.TemporaryDirectory() as folder:
        model = AutoModelForCausalLM.from_pretrained(drawn.write_folder(family, folder), dtype=torch.float32)
    config = IA3Config(task_type="CAUSAL_LM", target_modules=targets, feedforward_modules=feedforward,
                       modules_to_save=saved)
    return get_peft_model(model, config)


def make(name):
    family = CASES[name][0]
    model = adapted(*CASES[name]).eval()
    random = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "ia3_l" in key:
                value.copy_(0.5 + torch.rand(value.shape, generator=random))
    case = load_file(f"../cases/{family}.safetensors")
    loss = model(input_ids=case["input_ids"], labels=case["labels"]).loss
    loss.backward()
    result = {"loss": loss.detach().reshape(1)}
    for key, value in model.named_parameters():
        if value.requires_grad:
            usual = key.replace(".ia3_l.default", ".ia3_l").replace(".modules_to_save.default.", ".")
            result["grad." + usual] = value.grad.clone()
    model.peft_config["default"].base_model_name_or_path = family
    model.save_pretrained(name)
    os.remove(os.path.join(name, "README.md"))
    merged = model.merge_and_unload().state_dict()
    targets = tuple(CASES[name][1])
    for key, value in merged.items():
        if key.rsplit(".", 2)[-2] in targets:
            result["merged." + key] = value.clone()
    save_file({key: value.contiguous() for key, value in result.items()}, f"{name}.safetensors")


if __name__ == "__main__":
    for case_name in sys.argv[1:] or CASES:
        make(case_name)
