#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many configurations of other programs become a deck that plans.

    tests/import/count.py [--program build/finetune] [--all] FOLDER...

Each FOLDER is searched for .yml, .yaml and .json. A configuration counts as kept if `finetune import` prints a deck in
which every key has a place (none is unknown), and `finetune plan` accepts that deck with a stand-in for the model: the
config.json of a small Llama with long positions, or of Llama 4, Mixtral or Qwen 3 where the deck is about experts or
layers that remember, as models and data are not here. What is no supervised fine-tuning of
text by all weights, LoRA or QLoRA is counted apart, by keys of the file and not by what the importer says.
Prints a line for each file that is not kept, with the reason, then a table. Exit code 1 below --least percent.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

STAND_IN = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": 64, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 32000,
    "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}

# Where experts are shared out over ranks.
STAND_IN_WITH_EXPERTS = {**STAND_IN, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
                         "num_local_experts": 64, "num_experts_per_tok": 2, "sliding_window": None}

# Whose experts get low-rank parts.
STAND_IN_WITH_TENSORS_OF_EXPERTS = {
    **STAND_IN, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 64,
    "num_experts_per_tok": 8, "moe_intermediate_size": 256, "norm_topk_prob": True,
}

# Of Llama 4, whose experts have names of their own: the one of tests/golden.
# And of Qwen 3 Next, whose layers that remember have.
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden/models"


def of_golden(name):
    config = json.loads((GOLDEN / name / "config.json").read_text())
    for part in (config, config.get("text_config", {})):
        if "max_position_embeddings" in part:
            part["max_position_embeddings"] = 1048576
    return config


# A reason to count a file apart, and what of its text shows it. The first that matches is taken.
APART = [
    ("trains nothing", r"(?m)^(distributed_type|compute_environment|infer_backend|export_dir|provider|branch|tasks"
                       r"|prompt|.<\|START_OF_SVG\|>.): ?|^  export_dir:|^do_predict: true"),
    ("trains nothing", r"\A(?=(?:.|\n)*^quantizer:)(?!(?:.|\n)*^optimizer:)"),
    ("images or sound", r"(?m)^(processor_type|freeze_vision_tower|image_max_pixels|video_max_pixels): \S"
                        r"|_trainable:|multimodal|mllm_demo|llava_1k|_vl\b|vision_decoder"),
    ("preferences, rewards, a teacher", r"(?m)^(rl|reward_model|process_reward_model|policy_model|teacher_model|orchestration"
                                        r"|ref_checkpointer):|^stage: (dpo|kto|rm|ppo)|dpo_demo|DPOLoss|grpo"),
    ("pre-training", r"(?m)^pretraining_dataset:|^stage: pt|^initial_checkpoint_dir:"),
    ("rounded or pruned weights", r"(?m)^(qat|llmcompressor|quantizer|use_onebitllms):"),
    ("another loss, optimizer of its own or adapter", r"(?m)^(diffusion|use_eaft|use_(galore|apollo|badam|adam_mini"
     r"|llama_pro|asft_loss|dft_loss|eaft_loss)|mixture_of_depths|pissa_init|oft_block_size|lisa_n_layers"
     r"|relora|optim_config):|loftq_config|^finetuning_type: (oft|freeze)|^  name: freeze"),
]


def reason_apart(path, text):
    if path.suffix == ".json" and "zero_optimization" in text:
        return "a part of another configuration"
    for reason, pattern in APART:
        if re.search(pattern, text, re.MULTILINE):
            return reason
    return ""


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr.strip()


def outcome(program, path, work):
    """Why the file is not kept; "" if it is."""
    code, deck, problem = run(program, "import", str(path))
    if code != 0:
        return f"import {code}: {problem}"
    unknown = re.search(r"# Unknown keys.*\n((?:#   .*\n)+)", deck)
    if unknown:
        return "unknown: " + " ".join(unknown[1].split())
    (work / "deck.toml").write_text(deck)
    ranks = re.search(r"--ranks\s+(?:# )?(\d+)", deck)
    model = ("experts" if "\nep = " in deck else "llama_4" if "shared_expert" in deck else
             "next" if "linear_attn" in deck else "tensors" if "\ntarget_parameters" in deck else "model")
    code, _, problem = run(program, "plan", str(work / "deck.toml"), f"model.path={work / model}",
                           "--ranks", ranks[1] if ranks else "1")
    return f"plan {code}: {problem}" if code != 0 else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--program", default="build/finetune")
    parser.add_argument("--all", action="store_true", help="also try what is counted apart")
    parser.add_argument("--least", type=float, default=0, help="percent")
    options = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        stand_ins = {"model": STAND_IN, "experts": STAND_IN_WITH_EXPERTS, "tensors": STAND_IN_WITH_TENSORS_OF_EXPERTS,
                     "llama_4": of_golden("llama4"), "next": of_golden("qwen3_next")}
        for model, config in stand_ins.items():
            (work / model).mkdir()
            (work / model / "config.json").write_text(json.dumps(config))
        for folder in options.folders:
            counts = {"kept": 0, "not kept": 0}
            files = sorted(p for p in folder.rglob("*") if p.suffix in (".yml", ".yaml", ".json"))
            for path in files:
                text = path.read_text(errors="replace")
                apart = reason_apart(path, text)
                if apart and not options.all:
                    counts[apart] = counts.get(apart, 0) + 1
                    continue
                why = outcome(options.program, path, work)
                if apart:
                    key = f"{apart}{'' if why else ' (kept)'}"
                    counts[key] = counts.get(key, 0) + 1
                else:
                    counts["not kept" if why else "kept"] += 1
                if why:
                    print(f"{path}: {apart + ': ' if apart else ''}{why.splitlines()[0]}")
            table.append((folder, counts))
    failed = False
    for folder, counts in table:
        total = counts["kept"] + counts["not kept"]
        percent = 100 * counts["kept"] / total if total else 0
        failed = failed or percent < options.least
        apart = ", ".join(f"{n} {what}" for what, n in counts.items() if what not in ("kept", "not kept"))
        print(f"{folder}: {counts['kept']} of {total} ({percent:.0f} %); apart: {apart or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
