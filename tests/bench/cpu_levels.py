#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps in bf16 compared with fp32 at every level of instructions that this processor has, in turns.

    python3 tests/bench/cpu_levels.py [--build build] [--rounds 3] [--steps 6] [--threads 2] [--lora] [--only LEVEL]

A newer processor plays an older one by ONEDNN_MAX_CPU_ISA, ATEN_CPU_CAPABILITY and MKL_ENABLE_INSTRUCTIONS. A Llama of 26M
parameters (512 wide, 8 blocks) with random weights, sequences of 512 tokens, 2 per step, one rank. Prints for each level what
the program says of its products, tokens/s by precision.mode as median (least to most), and the ratios to 32-true: of tokens/s,
and of processor time per step, which is what to look at while others use the cores. Aim: bf16-mixed and bf16-true at 0.9 or
more. Ends with 1 if a median of either ratio is below 0.9.
Needs no Python packages.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

import material

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODES = ["32-true", "bf16-mixed", "bf16-true", "16-mixed"]
AIMED = ["bf16-mixed", "bf16-true"]
LEVELS = {  # name: (flag of /proc/cpuinfo, environment)
    "AVX2": ("avx2", dict(ONEDNN_MAX_CPU_ISA="AVX2", ATEN_CPU_CAPABILITY="avx2", MKL_ENABLE_INSTRUCTIONS="AVX2")),
    "AVX-512": ("avx512bw", dict(ONEDNN_MAX_CPU_ISA="AVX512_CORE_VNNI", MKL_ENABLE_INSTRUCTIONS="AVX512")),
    "AVX-512 BF16": ("avx512_bf16", dict(ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16")),
    "AMX": ("amx_bf16", {}),
    "as it is": ("", {}),
}


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=str(ROOT / "build"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--lora", action="store_true", help="train an adapter of rank 16")
    p.add_argument("--only", default="", help="levels whose name contains this")
    return p.parse_args()


def levels(args):
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith(("flags", "Features"))), "").split()
    here = {name: environment for name, (flag, environment) in LEVELS.items() if flag == "" or flag in flags}
    # The newest level that has a name is the machine as it is.
    if len(here) > 1:
        del here["as it is"]
    return {name: environment for name, environment in here.items() if args.only in name}


def make_deck(folder):
    material.make_model(folder / "model", hidden_size=512, num_hidden_layers=8, intermediate_size=1408,
                        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=2048)
    material.make_text(folder / "text.txt")
    (folder / "deck.toml").write_text(
        f'[model]\npath = "{folder}/model"\ninit = "random"\n[data]\npath = "{folder}/text.txt"\nformat = "text"\n'
        f'max_seq_length = 512\n[train]\noutput = "{folder}/out"\nglobal_batch = 2\nmicro_batch = 2\n'
        f'[metrics]\nlog_steps = 1000000\n')


def train(args, folder, environment, mode, steps):
    """What the program prints, and the processor seconds it needs."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    command = [f"{args.build}/finetune", str(folder / "deck.toml"), f'precision.mode="{mode}"', f"train.max_steps={steps}"]
    if args.lora:
        command += ['adapter.name="lora"', "adapter.lora_r=16"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env={**os.environ, **environment, "OMP_NUM_THREADS": str(args.threads)},
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(args, folder, environment, mode):
    """Tokens/s of the median step; processor seconds per step: a long run without a short one."""
    short = train(args, folder, environment, mode, 2)[1]
    out, long = train(args, folder, environment, mode, args.steps + 2)
    rows = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    said = re.search(r"products of \w+16 .*", out)
    return dict(tokens_per_s=statistics.median([row["tokens_per_s"] for row in rows if "loss" in row][2:]),
                processor_s=(long - short) / args.steps, said=said.group(0) if said else "")


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main():
    args = parse()
    is_slow = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make_deck(folder)
        for name, environment in levels(args).items():
            rounds = [{mode: measure(args, folder, environment, mode) for mode in MODES} for _ in range(args.rounds)]
            print(f"{name}: {rounds[0]['bf16-mixed']['said']}")
            for mode in MODES:
                speed = [r[mode]["tokens_per_s"] / r["32-true"]["tokens_per_s"] for r in rounds]
                work = [r["32-true"]["processor_s"] / r[mode]["processor_s"] for r in rounds]
                is_slow |= mode in AIMED and min(statistics.median(speed), statistics.median(work)) < 0.9
                print(f"  {mode:10}  {spread([r[mode]['tokens_per_s'] for r in rounds], 0)} tokens/s; of 32-true: "
                      f"speed {spread(speed)}, by processor time {spread(work)}", flush=True)
    sys.exit(1 if is_slow else 0)


if __name__ == "__main__":
    main()
