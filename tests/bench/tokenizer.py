#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the tokenizer beside the Python package tokenizers on the same text, in turns: MiB/s a core for three vocabularies.

    python3 tests/bench/tokenizer.py [--build build] [--rounds 7] [--text FILE]

Both encode the text as documents of some 4 KiB, on one thread, and the numbers of ids are compared. Rates are by the
processor time of a process, those of two at once their sum. Rates on the wall are given as well: on a machine with other
things to do they say more about those.
Needs pip install tokenizers, the material (FINETUNE_MATERIAL, default ../shared/material beside the sources), two cores,
and build/tests/tokenizer_tool. Without --text: the English data sets of the material, 5 MB.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402  (the variables come first)

ROOT = pathlib.Path(__file__).resolve().parents[2]
MATERIAL = pathlib.Path(os.environ.get("FINETUNE_MATERIAL", ROOT / "../shared/material"))
VOCABULARIES = ["llama3", "qwen2.5", "mistral-7b-instruct-v0.3"]
REPEATS = 3  # of a process, a round: the first fills caches


def english(path):
    """Prose, questions with answers, and instructions."""
    lines = []
    for name in ("plain-text/c4_demo.jsonl", "gsm8k/train.jsonl", "dolly/dolly_hhrlhf_train_small.jsonl"):
        with open(MATERIAL / "datasets" / name, encoding="utf-8") as file:
            for line in file:
                lines += [str(value) for value in json.loads(line).values()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def documents(text):
    """As tokenizer_tool cuts them."""
    result, begin = [], 0
    while begin < len(text):
        end = text.find(b"\n", min(begin + 4096, len(text)))
        end = len(text) if end < 0 else end + 1
        result.append(text[begin:end].decode())
        begin = end
    return result


def start(tool, vocabulary, text):
    return subprocess.Popen([tool, "rate", MATERIAL / "tokenizers" / vocabulary, text, str(REPEATS)],
                            stdout=subprocess.PIPE, text=True)


def finish(process):
    """Medians of the repeats: rate by processor time, rate on the wall; and the number of ids."""
    rows = [line.split() for line in process.communicate()[0].splitlines()]
    if process.returncode != 0:
        raise SystemExit("tokenizer_tool failed")
    by_processor = statistics.median(float(row[0]) / float(row[1]) for row in rows)
    by_wall = statistics.median(float(row[0]) / float(row[2]) for row in rows)
    return by_processor, by_wall, int(rows[0][3])


def theirs(library, texts, mib):
    begin = time.process_time()
    num_ids = sum(len(library.encode(text, add_special_tokens=False).ids) for text in texts)
    return mib / (time.process_time() - begin), num_ids


def shown(rates):
    return f"{statistics.median(rates):6.1f} ({min(rates):.1f} to {max(rates):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--text")
    arguments = parser.parse_args()
    tool = os.path.join(arguments.build, "tests/tokenizer_tool")
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(arguments.text or os.path.join(scratch, "english.txt"))
        if not arguments.text:
            english(path)
        texts = documents(path.read_bytes())
        mib = path.stat().st_size / 2**20
        print(f"{mib:.1f} MiB in {len(texts)} documents, {arguments.rounds} rounds: MiB/s, median (range)")
        print(f"tokenizers {tokenizers.__version__}")
        for vocabulary in VOCABULARIES:
            library = tokenizers.Tokenizer.from_file(str(MATERIAL / "tokenizers" / vocabulary / "tokenizer.json"))
            rates = {"ours": [], "tokenizers": [], "both": [], "one": [], "two": []}
            for _ in range(arguments.rounds):
                by_processor, by_wall, num_ids = finish(start(tool, vocabulary, path))
                rates["ours"].append(by_processor)
                rates["one"].append(by_wall)
                rate, expected = theirs(library, texts, mib)
                rates["tokenizers"].append(rate)
                if num_ids != expected:
                    raise SystemExit(f"{vocabulary}: {num_ids} ids, the library makes {expected}")
                pair = [start(tool, vocabulary, path) for _ in range(2)]
                results = [finish(process) for process in pair]
                rates["both"].append(sum(result[0] for result in results))
                rates["two"].append(sum(result[1] for result in results))
            times = statistics.median(rates["ours"]) / statistics.median(rates["tokenizers"])
            print(f"{vocabulary}: ours {shown(rates['ours'])}, tokenizers {shown(rates['tokenizers'])}: {times:.1f} times; "
                  f"two at once {shown(rates['both'])}; on the wall one {shown(rates['one'])}, two {shown(rates['two'])}",
                  flush=True)


if __name__ == "__main__":
    main()
