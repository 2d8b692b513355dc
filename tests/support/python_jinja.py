# SPDX-License-Identifier: Apache-2.0
"""Python's Jinja as transformers sets it up for chat templates: the one place where tests do."""
import datetime
import json
import sys

try:
    import jinja2
except ImportError:
    print(f"skipped: {sys.executable} has no jinja2")
    sys.exit(77)
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment(now, refuse=refuse, marks=("", "")):
    """`now`: the UTC time that templates are told, in seconds since 1970. `refuse`: what raise_exception calls.
    `marks`: what is written where {% generation %} begins and ends. As in transformers what it encloses is a block of its
    own, whose names nothing outside sees."""

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("written"), [], [], body).set_lineno(line)

        def written(self, caller):
            return marks[0] + caller() + marks[1]

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, "jinja2.ext.loopcontrols"])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = refuse
    day = datetime.datetime.fromtimestamp(now, datetime.timezone.utc).replace(tzinfo=None)
    made.globals["strftime_now"] = day.strftime
    return made
