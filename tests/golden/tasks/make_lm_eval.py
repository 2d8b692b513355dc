#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What lm-evaluation-harness says of the quickstart's model, for tasks of its own questions.

    python make_lm_eval.py    # pip: lm_eval 0.4, transformers, torch

Writes choices.jsonl, texts.jsonl and questions.jsonl, which the tasks beside this file read, and lm_eval.json: of each
request its log-likelihood and whether it is greedy, of each task its metrics, of each question what was generated. fp32.
"""
import json
import pathlib
import sys
import tempfile

import torch
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

HERE = pathlib.Path(__file__).resolve().parent
QUICKSTART = HERE.parent.parent.parent / "inputs" / "quickstart"

COMMON = "dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {file}\ntest_split: test\n"
TASKS = {
    "choices": COMMON + """task: choices
output_type: multiple_choice
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{right}}}}"
metric_list:
  - metric: acc
  - metric: acc_norm
""",
    "texts": COMMON + """task: texts
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
""",
    "questions": COMMON + """task: questions
output_type: generate_until
doc_to_text: "{{{{question}}}} "
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["."]
  max_gen_toks: 24
  do_sample: false
metric_list:
  - metric: exact_match
    ignore_case: true
""",
}


def write(name, rows):
    with open(HERE / f"{name}.jsonl", "w") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


def main():
    data = json.loads((QUICKSTART / "train.json").read_text())
    rows = data[::97][:24]
    answers = [row["output"] for row in rows]
    choices = []
    for i, row in enumerate(rows):
        others = [answers[(i + k) % len(answers)] for k in (5, 11, 17)]
        right = i % 4
        choices.append({"question": row["instruction"], "choices": others[:right] + [row["output"]] + others[right:], "right": right})
    write("choices", choices)
    long = [" ".join(r["instruction"] + " " + r["output"] for r in data[i * 40:i * 40 + 40]) for i in range(3)]
    write("texts", [{"text": r["output"]} for r in rows[:5]] + [{"text": text} for text in long])
    write("questions", [{"question": r["instruction"], "answer": r["output"].rstrip(".")} for r in rows[:8]])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in TASKS.items():
            (pathlib.Path(folder) / f"{name}.yaml").write_text(text.format(file=HERE / f"{name}.jsonl"))
        manager = TaskManager(include_path=folder, include_defaults=False)
        # With the tokenizer's own begin token lm_eval also asks how likely that is behind itself.
        all_results = {name: simple_evaluate(
            model="hf", tasks=[name], task_manager=manager, batch_size=1, bootstrap_iters=0, log_samples=True,
            model_args=dict(pretrained=str(QUICKSTART / "model"), dtype="float32", device="cpu",
                            add_bos_token=False if name == "texts" else None)) for name in TASKS}
    out = {}
    for name, results in all_results.items():
        samples = sorted(results["samples"][name], key=lambda s: s["doc_id"])
        metrics = {k.split(",")[0]: v for k, v in results["results"][name].items() if isinstance(v, float)}
        out[name] = {"metrics": metrics, "responses": [s["resps"] if name == "questions" else s["filtered_resps"] for s in samples]}
    (HERE / "lm_eval.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
