#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does it cost that a run is watched? Steps with everything that is on by default, in turns with runs that have it off.

    python3 tests/bench/watching.py [--build build] [--rounds 6] [--steps 40]

A Llama of 26M parameters, 2 x 512 tokens a rank and step. Off: no event files, no report, no sampling of devices, a
report of times each million steps; what cannot be switched off (flight recorder, rates of links) is on in both.
"profile" has [profile] too, with a window that the run never reaches. "between" is what lies between steps: the time of
the whole training less that of its steps, per step. Prints parts of the time of "off", of the medians of all steps and
of the quickest quarters. Needs no Python packages; mpirun, and as many cores as ranks.
"""
import argparse
import pathlib
import statistics
import tempfile

import material

ROOT = pathlib.Path(__file__).resolve().parents[2]
OFF = ["metrics.tensorboard=false", "metrics.report=false", "metrics.devices_every_s=0", "metrics.log_steps=1000000"]
DEFAULT = ["metrics.log_steps=10"]
WAYS = {"off": OFF, "default": DEFAULT, "profile": DEFAULT + ["profile.active=1", "profile.wait=1000000"]}
SKIPPED = 3  # steps that fill buffers and caches


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=str(ROOT / "build"))
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--steps", type=int, default=40)
    return p.parse_args()


def run(args, folder, ranks, threads, overrides):
    """Seconds of each step; and per step those from one step's end to the next's begin."""
    rows = material.train(args.build, folder, ranks, threads, args.steps, overrides)[SKIPPED:]
    ends = [row["unix_time_s"] for row in rows]
    between = [b - a - row["step_s"] for a, b, row in zip(ends, ends[1:], rows[1:])]
    return [row["step_s"] for row in rows], statistics.mean(between)


def main():
    args = parse()
    print(f"{'ranks':>5} {'way':10} {'step s':>9} {'medians':>9} {'quickest':>9} {'between ms':>11}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        material.make_run(folder)
        for ranks, threads in ((1, 2), (2, 1)):
            steps = {way: [] for way in WAYS}
            between = {way: [] for way in WAYS}
            for turn in range(args.rounds):
                # Who goes first changes, so that a machine that slows down favours nobody.
                names = list(WAYS)
                for way in names[turn % 3:] + names[:turn % 3]:
                    seconds, pause = run(args, folder, ranks, threads, WAYS[way])
                    steps[way] += seconds
                    between[way].append(pause)
            for way in WAYS:
                print(f"{ranks:5} {way:10} {statistics.median(steps[way]):9.4f}"
                      f" {statistics.median(steps[way]) / statistics.median(steps['off']):9.4f}"
                      f" {material.quickest_quarter(steps[way]) / material.quickest_quarter(steps['off']):9.4f}"
                      f" {1e3 * statistics.median(between[way]):11.3f}", flush=True)


if __name__ == "__main__":
    main()
