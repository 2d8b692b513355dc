# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of the whole program train: models without weights and text, from the quickstart's."""
import json
import pathlib
import shutil

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "inputs/quickstart"


def make_model(model, **sizes):
    """A folder with a config.json of these sizes and a tokenizer. Returns the configuration."""
    model.mkdir()
    config = json.loads((SOURCE / "model/config.json").read_text())
    config.update(tie_word_embeddings=False, **sizes)
    config.pop("head_dim", None)
    (model / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SOURCE / "model" / name, model / name)
    return config


def make_text(file):
    samples = json.loads((SOURCE / "train.json").read_text())
    file.write_text("\n".join(" ".join(str(v) for v in s.values()) for s in samples))
