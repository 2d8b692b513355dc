# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/adapters: adapters as PEFT saves them, with the loss, the logits and the
gradients that PEFT computes with them on the model and the batch of tests/golden.

    python tests/modules/adapters/make_golden.py      (torch 2.11, transformers 5.23, peft 0.21)
"""
import json
import pathlib
import shutil

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

golden = pathlib.Path(__file__).resolve().parents[2] / "golden"
SETTINGS = {
    "dora": dict(target_modules=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"], use_dora=True),
    "rslora": dict(target_modules=["k_proj", "v_proj", "gate_proj"], use_rslora=True,
                   modules_to_save=["lm_head", "embed_tokens", "norm"]),
    # Of matrices that are read as one some are adapted, some trained whole, some frozen.
    "mixed": dict(target_modules=["v_proj", "gate_proj"], modules_to_save=["q_proj", "up_proj"]),
}


def case(name, settings, seed):
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        golden / "models/llama", dtype=torch.float32, attn_implementation="eager")
    model = peft.get_peft_model(
        model, peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=6, **settings))
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_B" in key:
                p.normal_(std=0.1)
            elif "magnitude" in key:
                p.mul_(1 + 0.1 * torch.randn_like(p))
            elif "modules_to_save" in key:
                p.add_(0.02 * torch.randn_like(p))
    batch = load_file(golden / "cases/llama.safetensors")
    out = model(input_ids=batch["input_ids"], labels=batch["labels"])
    out.loss.backward()
    shutil.rmtree(golden / "adapters" / name, ignore_errors=True)
    model.save_pretrained(golden / "adapters" / name, save_embedding_layers=False)
    tensors = {"loss": out.loss.detach(), "logits": out.logits.detach()}
    for key, p in model.named_parameters():
        if p.requires_grad:
            key = key.replace(".modules_to_save.default", "").replace(".default", "")
            tensors["grad." + key] = p.grad
    save_file(tensors, golden / "adapters" / f"{name}.safetensors")
    (golden / "adapters" / name / "README.md").unlink(missing_ok=True)
    config = golden / "adapters" / name / "adapter_config.json"
    settings = json.loads(config.read_text()) | {"base_model_name_or_path": "llama"}
    for key in ("target_modules", "modules_to_save"):
        settings[key] = settings[key] and sorted(settings[key])
    config.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


for i, (name, settings) in enumerate(SETTINGS.items()):
    case(name, settings, 100 + i)
