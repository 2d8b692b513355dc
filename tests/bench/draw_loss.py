#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the loss of a run from its metrics.jsonl: training as points and their mean, validation as rings.

draw_loss.py METRICS.jsonl OUT.svg "title"        inputs/quickstart/loss.svg was drawn so from a run of the quickstart
"""
import html
import json
import math
import sys

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 44


def read(path):
    """[(step, loss)] of training and [(step, loss, exact match or None)] of validation."""
    training, validation = [], []
    with open(path, encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if "validation_loss" in row:
                validation.append((row["step"], row["validation_loss"], row.get("exact_match")))
            elif "loss" in row:
                training.append((row["step"], row["loss"]))
    return training, validation


def smoothed(points, weight=0.9):
    """Exponential mean, corrected for its beginning."""
    result, mean, norm = [], 0.0, 0.0
    for step, loss in points:
        mean = weight * mean + (1 - weight) * loss
        norm = weight * norm + (1 - weight)
        result.append((step, mean / norm))
    return result


def ticks(high, count):
    """Round numbers from 0 to at least `high`."""
    raw = high / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= raw)
    return [i * step for i in range(math.ceil(high / step) + 1)]


def draw(training, validation, title):
    last = max(step for step, *_ in training + validation)
    x_ticks = [value for value in ticks(last, 6) if value <= last]
    y_ticks = ticks(max(row[1] for row in training + validation), 4)

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(loss):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * loss / y_ticks[-1]

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="13">{html.escape(title)}</text>',
    ]
    for value in y_ticks:
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
                     f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in x_ticks:
        parts.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">step</text>')
    parts.append("".join(f'<circle cx="{x(s):.1f}" cy="{y(v):.1f}" r="1" fill="#9ecae1"/>' for s, v in training))
    line = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in smoothed(training))
    parts.append(f'<polyline points="{line}" fill="none" stroke="#08519c" stroke-width="1.5"/>')
    for step, loss, match in validation:
        parts.append(f'<circle cx="{x(step):.1f}" cy="{y(loss):.1f}" r="4" fill="#ffffff" stroke="#d94801" stroke-width="2"/>')
        if match is not None:
            side = -8 if x(step) > WIDTH - 100 else 8
            anchor = ' text-anchor="end"' if side < 0 else ""
            unit = "% exact" if step == validation[0][0] else "%"
            parts.append(f'<text x="{x(step) + side:.1f}" y="{y(loss) - 8:.1f}" fill="#d94801"{anchor}>'
                         f'{100 * match:.0f} {unit}</text>')
    legend = WIDTH - 250
    parts.append(f'<path d="M{legend} {TOP + 8}h20" stroke="#08519c" stroke-width="1.5"/>'
                 f'<text x="{legend + 26}" y="{TOP + 12}">training loss</text>'
                 f'<circle cx="{legend + 130}" cy="{TOP + 8}" r="4" fill="#ffffff" stroke="#d94801" stroke-width="2"/>'
                 f'<text x="{legend + 140}" y="{TOP + 12}">validation loss</text>')
    return "\n".join(parts) + "\n</svg>\n"


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    training, validation = read(sys.argv[1])
    if not training:
        sys.exit(f"{sys.argv[1]}: has no steps")
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write(draw(training, validation, sys.argv[3]))


if __name__ == "__main__":
    main()
