#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rounding.json: how far transformers' fp32 is from its own fp64 with the models of make_families.py.

    python make_rounding.py [NAME ...]        # next to this file; made with transformers 5.24 and torch 2.11

NAME: {"logits": the largest difference, "grad.TENSOR": the largest difference, as part of the tensor's largest entry}. One
run shows one sum of roundings, and another processor another one: so each is the largest of DRAWS runs with weights that
differ by a thousandth, each beside fp64 of the same weights. What is below USUAL is left out: the bounds for all models
cover it.
"""
import contextlib
import json
import pathlib
import sys

import torch

import make_families as families

HERE = pathlib.Path(__file__).resolve().parent
DRAWS, SPREAD = 8, 1e-3
USUAL = dict(logits=1e-5, grad=6.6e-6)  # a third of what tests/modules/families/rounding.hpp has for all models


@contextlib.contextmanager
def in_double():
    """What models say to compute in fp32, they compute in fp64."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept
        torch.set_default_dtype(torch.float32)


def new_model(name):
    model_class, config = families.configuration(name)
    config.eos_token_id = None
    config._attn_implementation = config._experts_implementation = "eager"
    model = model_class(config).eval()
    model.set_attn_implementation("eager")
    return model


def drawn(name):
    """As families.write draws them: the model, its input and labels."""
    model, seed = new_model(name).float(), families.FAMILIES[name][2]
    config = model.config
    ids = torch.randint(families.VOCABULARY, (families.BATCH, families.LENGTH), generator=torch.Generator().manual_seed(77 + seed))
    for attempt in range(100):
        is_less_one = name == "nemotron" or (name.startswith(families.WEIGHTS_LESS_ONE) and not name.startswith("gemma4"))
        families.draw(model, seed + 100 * attempt, 0.0 if is_less_one else 1.0,
                      0.7 / families.embedding_scale(name, config) if config.tie_word_embeddings else 0.7)
        if families.greedy(model, ids[:, :families.PROMPT])[1] > 4e-3:
            break
    labels = ids.clone()
    labels[0, :10] = labels[1, -5:] = labels[1, 7] = -100
    return model, ids, labels


def spread(model, reference, generator):
    """The weights of `reference`, each a little different, in both of the models."""
    with torch.no_grad():
        for to, of in zip(model.parameters(), reference.parameters()):
            to.copy_(of * (1 + SPREAD * torch.randn(of.shape, generator=generator)))


def run(model, ids, labels):
    model.zero_grad()
    result = model(input_ids=ids, labels=labels)
    result.loss.backward()
    return result.logits.detach(), families.gradients(model)


def distances(name):
    reference, ids, labels = drawn(name)
    narrow = new_model(name).float()
    narrow.load_state_dict(reference.state_dict())
    with in_double():
        wide = new_model(name).double()
    largest = {}
    for i in range(DRAWS):
        spread(narrow, reference, torch.Generator().manual_seed(i))
        wide.load_state_dict(narrow.state_dict())
        logits, gradients = run(narrow, ids, labels)
        with in_double():
            exact_logits, exact = run(wide, ids, labels)
        found = {"logits": (logits - exact_logits).abs().max().item()}
        for key, gradient in exact.items():
            found["grad." + key] = ((gradients[key] - gradient).abs().max() / gradient.abs().max().clamp_min(1e-300)).item()
        largest = {key: max(value, largest.get(key, 0)) for key, value in found.items()}
    return {k: float(f"{v:.2g}") for k, v in largest.items() if v > USUAL[k.split(".")[0]]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    path = HERE / "rounding.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for each in sys.argv[1:] or families.FAMILIES:
        known[each] = distances(each)
        print(f"{each}: {len(known[each])} tensors, up to {max(known[each].values(), default=0):.1e}", flush=True)
    path.write_text(json.dumps({k: v for k, v in known.items() if v}, indent=1, sort_keys=True) + "\n")
