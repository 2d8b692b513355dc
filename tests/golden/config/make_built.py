#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what transformers builds of config.json in random variants (variants.json) of each family.

    python make_built.py [FAMILY ...]       # writes built.json next to this file; made with transformers 5.24 and torch 2.11

A variant is the family's base with one patch of each of its choices, the index drawn from (seed, family, variant, choice);
tests/modules/configs/built_test.cpp draws them again. built.json has for each family and fact the distinct values, and "of" each
variant one digit of base 36, or two where there are more values, the index of its own; "-" where transformers builds nothing.

Facts are read off a model that runs, wherever a run shows them: attention's function and the makers of masks are replaced by
ones that look at what they are given, and the head's output by numbers whose way to the logits shows scale and cap.
"""
import json
import logging
import pathlib
import sys
import tempfile

import torch
import transformers
from transformers import (AttentionInterface, AttentionMaskInterface, AutoConfig, AutoModelForCausalLM,
                          AutoModelForImageTextToText, masking_utils)

HERE = pathlib.Path(__file__).resolve().parent
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
LENGTH, SHIFT = 8, 7  # within what any variant calls the original length
ABSENT = object()
FACTS = ("rope", "window_rope", "layers", "tied", "norm_eps", "score_scale", "score_cap", "logits", "embedding", "residual", "act",
         "experts", "parameters")


def draw(seed, family, variant, choice, size):
    """FNV-1a of the names, mixed once more."""
    state = 0xCBF29CE484222325
    for byte in f"{seed}/{family}/{variant}/{choice}".encode():
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    state = ((state ^ (state >> 32)) * 0x9E3779B97F4A7C15) % 2**64
    return (state >> 32) % size


def patched(config, patch):
    """Objects are merged, all else is replaced."""
    result = dict(config)
    for key, value in patch.items():
        both = isinstance(result.get(key), dict) and isinstance(value, dict)
        result[key] = patched(result[key], value) if both else value
    return result


def variant_of(described, family, variant):
    of_family = described["families"][family]
    drawn = 0

    def chosen(config, choices):
        nonlocal drawn
        for choice in choices:
            patches = described["choices"][choice] if isinstance(choice, str) else choice
            config = patched(config, patches[draw(described["seed"], family, variant, drawn, len(patches))])
            drawn += 1
        return config

    if "text" not in of_family:
        return chosen(patched(described["base"], of_family["base"]), of_family["choices"])
    # A model that sees, too: its text is as that of another family, or as it says itself.
    text = of_family["text"]
    text = described["families"][text] if isinstance(text, str) else text
    config = chosen(patched(described["base"], text["base"]), text["choices"])
    return chosen({**of_family["base"], "text_config": config}, of_family["choices"])


SEEN = []  # of each layer that attends, in order
NEXT_MASK = {"kind": "f"}


def watch_masks():
    def watched(name, letter):
        original = getattr(masking_utils, name)

        def maker(size, *more):
            NEXT_MASK["kind"] = f"{letter}{size}"
            return original(size, *more)
        setattr(masking_utils, name, maker)

    watched("sliding_window_causal_mask_function", "s")
    watched("chunked_causal_mask_function", "c")

    def mask(*args, **kwargs):
        made = masking_utils.eager_mask(*args, **kwargs)
        made.kind = NEXT_MASK["kind"]
        NEXT_MASK["kind"] = "f"
        return made

    def attend(module, query, key, value, attention_mask, scaling=None, softcap=None, **_):
        SEEN.append(dict(kind=getattr(attention_mask, "kind", "f"), scaling=scaling, softcap=softcap or 0, query=query.detach(),
                         rank=query.shape[-1]))
        heads = query.shape[1] // value.shape[1]
        return value.repeat_interleave(heads, 1).transpose(1, 2).contiguous(), None

    AttentionMaskInterface.register("probe", mask)
    AttentionInterface.register("probe", attend)


def number(value):
    return float(f"{float(value):.6g}")


def rope_of(module, prefix=""):
    """Channels, amplitude, and two sums over the pairs: of frequencies and of their logarithms."""
    if not hasattr(module, prefix + "inv_freq"):  # no layer is of this kind
        return None
    frequencies = getattr(module, prefix + "inv_freq").double()
    turning = frequencies[frequencies > 0]
    amplitude = getattr(module, prefix + "attention_scaling")
    return [2 * len(frequencies), number(amplitude), number(frequencies.sum()), number(turning.log().sum())]


def first(module, names):
    for each in module.modules():
        for name in names:
            found = getattr(each, name, None)
            if found is not None and not isinstance(found, (bool, dict)):
                return found
    return None


def experts_of(config):
    def of(*names):
        return next((getattr(config, name) for name in names if getattr(config, name, None) is not None), 0)
    if config.model_type == "nemotron_h" and "moe" not in config.layers_block_type:
        return []
    # Whatever its configuration says, Qwen 3 VL's weights sum to 1.
    if config.model_type == "qwen3_vl_moe_text":
        return [config.num_experts, config.num_experts_per_tok, -1]
    num = of("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
    return [num, of("num_experts_per_tok", "moe_k", "moe_topk"), int(getattr(config, "norm_topk_prob", None) or 0) if hasattr(config, "norm_topk_prob") else -1] if num else []


def facts_of(config):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        read = AutoConfig.from_pretrained(folder)
    torch.manual_seed(0)
    sees = "text_config" in config
    of = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    model = of.from_config(read, attn_implementation="probe", dtype=torch.float32).eval()
    base, text = model.base_model, read.get_text_config()
    run = model
    if sees:
        base = next(module for name, module in model.named_modules() if name.split(".")[-1] == "language_model")
        run = base if hasattr(base, "lm_head") else model
        base = getattr(base, "model", base)
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    seen = {}
    first_layer = next(m for n, m in base.named_modules() if n.endswith(("layers.0", "h.0")))
    first_layer.register_forward_pre_hook(lambda _, args, kwargs: seen.__setitem__("read", (args or [kwargs["hidden_states"]])[0]),
                                          with_kwargs=True)

    def planted(_, __, out):
        planted_out = torch.full_like(out, 1e-3)
        planted_out[..., 0] = 1e6
        return planted_out
    head.register_forward_hook(planted)
    tokens, positions = torch.arange(LENGTH)[None] + 3, torch.arange(LENGTH)[None]
    runs = []
    with torch.no_grad():
        for shift in (0, SHIFT):
            SEEN.clear()
            out = run(input_ids=tokens, position_ids=positions + shift, use_cache=False)
            runs.append(list(SEEN))
    layers = []
    for before, after in zip(*runs):
        turns = (before["query"] - after["query"]).abs().max() > 1e-3 * before["query"].abs().max()
        layers.append(before["kind"] + ("" if turns else "n"))
    small, large = out.logits[0, 0, 1].item() / 1e-3, out.logits[0, 0, 0].item()
    cap = 0 if large > 1e5 * small else large
    rotary = next((m for n, m in base.named_modules() if n.endswith("rotary_emb")), None)
    ropes = [None, None]
    if hasattr(rotary, "inv_freq"):
        ropes = 2 * [rope_of(rotary)]
    elif rotary is not None:
        ropes = [rope_of(rotary, "full_attention_"), rope_of(rotary, "sliding_attention_")]
    # What state spaces have of that name is theirs alone.
    act = first(base, ("act_fn",) if config["model_type"] == "nemotron_h" else ("act_fn", "activation_fn", "activation", "act"))
    points = torch.tensor([0.7, -1.3], dtype=torch.float64)
    final = first(base, ("norm", "ln_f", "final_layer_norm", "final_layernorm"))
    scale = (seen["read"] / embedding.weight[tokens]).flatten()[0].item()
    unique = {v.data_ptr(): v.numel() for name, v in model.state_dict().items()
              if not sees or "language_model." in name or name.startswith("lm_head.")}
    return dict(
        rope=ropes[0], window_rope=ropes[1], layers=",".join(layers), tied=int(head.weight is embedding.weight),
        norm_eps=number(getattr(final, "variance_epsilon", None) or final.eps),
        score_scale=number(runs[0][0]["scaling"]), score_cap=number(runs[0][0]["softcap"]), logits=[number(f"{small:.4g}"), number(cap)],
        embedding=number(f"{scale:.4g}") if read.model_type != "gpt2" else 1.0, residual=number(getattr(first_layer, "residual_multiplier", 1)),
        act=[number(x) for x in act(points)] if callable(act) and config["model_type"] not in ("gpt_oss", "apertus") else None,
        experts=experts_of(text), parameters=sum(unique.values()))


def packed(column):
    values = []
    for value in column:
        if value is not ABSENT and value not in values:
            values.append(value)
    width = 1 if len(values) <= 36 else 2
    digits = [DIGITS[i // 36] + DIGITS[i % 36] for i in range(len(values))]
    return {"values": values, "of": "".join("-" * width if value is ABSENT else digits[values.index(value)][-width:] for value in column)}


def write(built, described, out):
    families = {family: built["families"][family] for family in described["families"] if family in built["families"]}
    head = {k: v for k, v in built.items() if k != "families"}
    lines = [f" {json.dumps(family)}: {json.dumps(of, separators=(',', ':'))}" for family, of in families.items()]
    out.write_text(json.dumps(head)[:-1] + ', "families": {\n' + ",\n".join(lines) + "\n}}\n")


def main():
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    watch_masks()
    described = json.loads((HERE / "variants.json").read_text())
    out = HERE / "built.json"
    built = json.loads(out.read_text()) if out.exists() else {"families": {}}
    built.update(seed=described["seed"], transformers=transformers.__version__, torch=torch.__version__.split("+")[0])
    for family in sys.argv[1:] or described["families"]:
        columns, reasons = {fact: [] for fact in FACTS}, {}
        for i in range(described["variants"]):
            facts = {}
            try:
                facts = facts_of(variant_of(described, family, i))
            except Exception as error:  # whatever transformers cannot build or run
                reasons.setdefault(f"{type(error).__name__}: {str(error)[:90]}", []).append(i)
            for fact in FACTS:
                columns[fact].append(facts.get(fact, ABSENT))
        built["families"][family] = {fact: packed(column) for fact, column in columns.items()}
        print(family, sum(map(len, reasons.values())), "not built", {k: len(v) for k, v in reasons.items()}, flush=True)
        write(built, described, out)


if __name__ == "__main__":
    main()
