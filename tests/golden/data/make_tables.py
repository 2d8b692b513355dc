# SPDX-License-Identifier: Apache-2.0
"""Writes tables.json: random tables of text, and the rows that Python's csv module reads in them.

Half of them are what csv.writer writes, with each way to quote and each end of lines; the others are random characters,
which strict reading often refuses ("rows" is null then). Empty lines are no rows. Run by python3, without arguments."""

import csv
import io
import json
import pathlib
import random

random.seed(20261127)
LETTERS = ["a", "b", "é", "😀", " ", "1", "'", "\\", "|", ";"]


def text(special, most):
    return "".join(random.choice(LETTERS + special) for _ in range(random.randint(0, most)))


def written(separator):
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=separator, lineterminator=random.choice(["\n", "\r\n", "\r"]),
                        quoting=random.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
    columns = random.randint(1, 4)
    for _ in range(random.randint(2, 5)):
        writer.writerow([text([",", "\t", '"', "\n", "\r", '""', "\r\n"], 8) for _ in range(columns)])
    return out.getvalue()


def scattered(separator):
    body = "".join(random.choice(["a", "é", " ", separator, separator, '"', '"', "\n", "\r", "\r\n", ",", "\t"])
                   for _ in range(random.randint(1, 14)))
    return "h\n" + body


def rows_of(table, separator):
    try:
        return [row for row in csv.reader(io.StringIO(table, newline=""), delimiter=separator, strict=True) if row]
    except csv.Error:
        return None


tables = []
for number in range(400):
    separator = random.choice([",", "\t"])
    table = written(separator) if number % 2 else scattered(separator)
    tables.append({"separator": separator, "text": table, "rows": rows_of(table, separator)})
path = pathlib.Path(__file__).with_name("tables.json")
path.write_text("[\n" + ",\n".join(json.dumps(each, ensure_ascii=False) for each in tables) + "\n]\n", encoding="utf-8")
print(sum(each["rows"] is None for each in tables), "of", len(tables), "are refused")
