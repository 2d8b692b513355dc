# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/adapters: adapters as PEFT saves them, with the loss, the logits and the
gradients that PEFT computes with them on the model and the batch of tests/golden.

    python tests/modules/adapters/make_golden.py      (torch 2.11, transformers 5.23, peft 0.21)
"""
import json
import pathlib
import shutil
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

golden = pathlib.Path(__file__).resolve().parents[2] / "golden"
sys.path.insert(0, str(golden))
import drawn  # noqa: E402

SETTINGS = {
    "dora": dict(target_modules=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"], use_dora=True),
    "rslora": dict(target_modules=["k_proj", "v_proj", "gate_proj"], use_rslora=True,
                   modules_to_save=["lm_head", "embed_tokens", "norm"]),
    # Of matrices that are read as one some are adapted, some trained whole, some frozen.
    "mixed": dict(target_modules=["v_proj", "gate_proj"], modules_to_save=["q_proj", "up_proj"]),
    "vocabulary": dict(target_modules=["embed_tokens", "lm_head", "q_proj"]),
    # Of experts, of which transformers has one tensor per layer whatever the files have.
    "experts": dict(model="qwen3_moe", target_modules=["q_proj"],
                    target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]),
    "experts_down": dict(model="minimax_m2", target_modules=[],
                         target_parameters=["experts.down_proj"]),
    "experts_transposed": dict(model="gpt_oss", target_modules=["v_proj"], target_parameters=[
        "experts.gate_up_proj", "experts.down_proj"]),
    "experts_by_inputs": dict(model="llama4", target_modules=[],
                              target_parameters=["experts.gate_up_proj", "experts.down_proj"]),
    # Its head has the embedding's parts.
    "tied": dict(model="llama_tied", target_modules=["embed_tokens"], ensure_weight_tying=True),
}


def base_model(name):
    with tempfile.TemporaryDirectory() as folder:
        return transformers.AutoModelForCausalLM.from_pretrained(
            drawn.write_folder(name, folder), dtype=torch.float32, attn_implementation="eager")


def case(name, settings, seed):
    torch.manual_seed(seed)
    base = settings.pop("model", "llama")
    model = base_model(base)
    model = peft.get_peft_model(
        model, peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=6, **settings))
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_B" in key:
                p.normal_(std=0.1)
            elif "lora_embedding_A" in key:
                p.normal_(std=0.02)
            elif "magnitude" in key:
                p.mul_(1 + 0.1 * torch.randn_like(p))
            elif "modules_to_save" in key:
                p.add_(0.02 * torch.randn_like(p))
        if name == "tied":  # they share memory
            model.base_model.lm_head.lora_B["default"].weight.copy_(
                model.base_model.model.model.embed_tokens.lora_embedding_A["default"].t())
    batch = load_file(golden / f"cases/{base}.safetensors")
    out = model(input_ids=batch["input_ids"], labels=batch["labels"])
    out.loss.backward()
    shutil.rmtree(golden / "adapters" / name, ignore_errors=True)
    model.save_pretrained(golden / "adapters" / name, save_embedding_layers=False)
    tensors = {"loss": out.loss.detach()}
    if name in ("dora", "rslora", "mixed"):
        tensors["logits"] = out.logits.detach()
    if name == "tied":  # PEFT has their gradients one by one
        embedding, head = model.base_model.model.model.embed_tokens, model.base_model.lm_head
        for one, other in (("lora_embedding_A", "lora_B"), ("lora_embedding_B", "lora_A")):
            getattr(embedding, one)["default"].grad += getattr(head, other)["default"].weight.grad.t()
    for key, p in model.named_parameters():
        if p.requires_grad and not (name == "tied" and "lm_head" in key):
            key = key.replace(".modules_to_save.default", "").replace(".default", "")
            tensors["grad." + key] = p.grad
    save_file(tensors, golden / "adapters" / f"{name}.safetensors")
    (golden / "adapters" / name / "README.md").unlink(missing_ok=True)
    config = golden / "adapters" / name / "adapter_config.json"
    settings = json.loads(config.read_text()) | {"base_model_name_or_path": base}
    for key in ("target_modules", "target_parameters", "modules_to_save"):
        settings[key] = settings[key] and sorted(settings[key])
    config.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


def start(kind):
    """What PEFT begins with on Llama's matrices, and the gradients there."""
    model = base_model("llama")
    model = peft.get_peft_model(model, peft.LoraConfig(
        task_type="CAUSAL_LM", r=4, lora_alpha=6, init_lora_weights=kind,
        target_modules=["q_proj", "k_proj", "down_proj"]))
    batch = load_file(golden / "cases/llama.safetensors")
    out = model(input_ids=batch["input_ids"], labels=batch["labels"])
    out.loss.backward()
    tensors = {"loss": out.loss.detach()}
    for key, p in model.named_parameters():
        if p.requires_grad:
            key = key.replace(".default", "")
            tensors[key], tensors["grad." + key] = p.detach(), p.grad
    save_file(tensors, golden / "adapters" / f"start_{kind}.safetensors")


for kind in ("pissa", "olora"):
    if len(sys.argv) < 2 or kind in sys.argv[1:]:
        start(kind)
for i, (name, settings) in enumerate(SETTINGS.items()):
    if len(sys.argv) < 2 or name in sys.argv[1:]:
        case(name, settings, 100 + i)
