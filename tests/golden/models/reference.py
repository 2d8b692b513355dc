# SPDX-License-Identifier: Apache-2.0
"""What make_families.py computes of a model, whichever it is: where its weights are, fp32 and fp64."""
import contextlib
import pathlib
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import drawn  # noqa: E402

DRAWS, SPREAD = 8, 1e-3
NEW = 16  # tokens that are generated
FOREIGN = ("vision", "visual", "multi_modal")
CONSTANT = "e_score_correction_bias"  # which no gradient changes
LAYER_SCALE = "layer_scalar"  # nor this


def spread_of(key, shape, constant, centre, embedding):
    """Centre and standard deviation of a parameter: far enough from a fresh model's that every tensor matters."""
    is_buffer = constant is not None
    if key.endswith(CONSTANT):
        return 0, 0.2 if is_buffer else 0.05  # the second among probabilities
    if key.endswith(LAYER_SCALE):
        return 1, 0.3
    if is_buffer:
        return constant, 0
    if len(shape) == 1:
        return centre * int(("norm" in key or "ln_" in key) and "bias" not in key), 0.2
    return 0, embedding if any(part in key for part in ("embed", "wte", "wpe")) else shape[-1] ** -0.5


def holders(model):
    """What the weights are in: (name, tensor, whether it is a buffer)."""
    saved = model.state_dict()
    return [*((k, p, False) for k, p in model.named_parameters()), *((k, b, True) for k, b in model.named_buffers() if k in saved)]


class Layout:
    """Where the elements of the folder's tensors are in the model: a model that is saved with its elements numbered tells."""

    def __init__(self, model):
        self.holders = [(k, p.shape, p.flatten()[0].item() if is_buffer else None) for k, p, is_buffer in holders(model)]
        self.ends = np.cumsum([shape.numel() for _, shape, _ in self.holders])
        assert self.ends[-1] < 2**24  # exact in fp32
        fill(model, np.arange(self.ends[-1], dtype=np.float32))
        self.places = {k: v.long().numpy() for k, v in as_saved(model).items()}
        elements = np.sort(np.concatenate([v.ravel() for v in self.places.values()]))
        assert np.array_equal(elements, np.arange(self.ends[-1])), "each element is saved once"

    def recipe(self, key, centre, embedding, files):
        """weights.json. `files`: {TENSOR: FILE} where there are several."""
        described = {}
        for tensor, places in self.places.items():
            holder = self.holders[np.searchsorted(self.ends, places.flat[0], side="right")]
            mean, deviation = spread_of(*holder, centre, embedding)
            described[tensor] = [list(places.shape), mean, drawn.scale(deviation)]
        names = sorted({files.get(k, "model.safetensors") for k in described})
        return {"key": key, "files": {file: {k: v for k, v in described.items() if files.get(k, "model.safetensors") == file}
                                      for file in names}}

    def as_in_model(self, tensors):
        """All elements in the model's order."""
        flat = np.empty(self.ends[-1], dtype=np.float32)
        for tensor, places in self.places.items():
            flat[places] = tensors[tensor]
        return flat

    def gradients(self, model):
        parts = [np.zeros(p.numel()) if p.grad is None else p.grad.numpy().ravel() for _, p, _ in holders(model)]
        flat = np.concatenate(parts)
        return {k: flat[v] for k, v in self.places.items()
                if not any(part in k for part in (*FOREIGN, CONSTANT, LAYER_SCALE))}


def fill(model, flat):
    first = 0
    with torch.no_grad():
        for _, p, _ in holders(model):
            p.copy_(torch.from_numpy(np.ascontiguousarray(flat[first:first + p.numel()])).view(p.shape))
            first += p.numel()


def joined(tensors):
    """Experts in one tensor, [E, 2 F, D] and [E, D, F], as Qwen 3.5's folders have them; transformers saves each by itself."""
    def matrices(of, part):
        return torch.stack([tensors[f"{of}{i}.{part}_proj.weight"] for i in range(4)])

    experts = {k[:k.index(".experts.") + len(".experts.")] for k in tensors if ".mlp.experts." in k}
    rest = {k: v for k, v in tensors.items() if ".mlp.experts." not in k}
    for of in sorted(experts):
        rest[of + "gate_up_proj"] = torch.cat([matrices(of, "gate"), matrices(of, "up")], 1)
        rest[of + "down_proj"] = matrices(of, "down")
    return rest


def as_published(model, tensors):
    """Experts as Qwen's folders have them, [E, D, 2 F] and [E, F, D]; transformers 5 saves them the other way round."""
    if model.config.model_type == "gpt_oss":
        return tensors  # which are like that
    if model.config.model_type == "qwen3_5_moe":
        return joined(tensors)
    return {k: v.transpose(1, 2).contiguous() if ".mlp.experts." in k and v.dim() == 3 else v for k, v in tensors.items()}


def as_saved(model):
    """Parameters under the names and shapes of the folder."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size="1GB")
        return as_published(model, load_file(pathlib.Path(folder) / "model.safetensors"))


def greedy(model, tokens):
    """The tokens with NEW more, and how near the nearest choice was."""
    margin = float("inf")
    with torch.no_grad():
        for _ in range(NEW):
            best = model(input_ids=tokens).logits[:, -1].topk(2)
            margin = min(margin, (best.values[:, 0] - best.values[:, 1]).min().item())
            tokens = torch.cat([tokens, best.indices[:, :1]], 1)
    return tokens, margin


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


def run(model, layout, ids, labels):
    """{NAME: array}: logits, loss, grad.TENSOR."""
    model.zero_grad()
    result = model(input_ids=ids, labels=labels)
    result.loss.backward()
    tensors = {"grad." + k: v for k, v in layout.gradients(model).items()}
    return tensors | {"logits": result.logits.detach().numpy(), "loss": result.loss.detach().numpy()}


def largest(values):
    return np.abs(values).max()


def distances(narrow, wide, layout, flat, ids, labels):
    """{NAME: fp64_distance}."""
    found = {}
    random = np.random.Generator(np.random.Philox(0))
    for i in range(DRAWS):
        near = flat if i == 0 else (flat * (1 + SPREAD * random.standard_normal(flat.shape))).astype(np.float32)
        fill(narrow, near)
        fill(wide, near.astype(np.float64))
        got = run(narrow, layout, ids, labels)
        with in_double():
            exact = run(wide, layout, ids, labels)
        assert exact["logits"].dtype == np.float64
        for key, values in exact.items():
            distance = largest(got[key] - values) / max(largest(values), 1e-300)
            found[key] = max(found.get(key, 0), distance)
    return found
