# SPDX-License-Identifier: Apache-2.0
"""Renders the cases of a JSON file by Jinja, set up as in transformers' apply_chat_template.

python render.py CASES: prints a list with a text for each case, or null where the template raised an exception.
"""
import json
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """{% generation %} marks what it encloses for those who train; the text stays the same. As in transformers what it
    encloses is a block of its own, whose names nothing outside sees."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("written"), [], [], body).set_lineno(line)

    def written(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                            extensions=["jinja2.ext.loopcontrols", Generation])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception

compiled = {}
texts = []
with open(sys.argv[1], encoding="utf-8") as file:
    for case in json.load(file):
        text = case["template"]
        if text not in compiled:
            compiled[text] = environment.from_string(text)
        template = compiled[text]
        try:
            texts.append(template.render(messages=case["messages"], tools=case["tools"], bos_token="<B>",
                                         eos_token="</S>", add_generation_prompt=case["prompt"],
                                         is_training_data=not case["prompt"]))
        except jinja2.exceptions.TemplateError as error:
            if isinstance(error, (jinja2.exceptions.TemplateSyntaxError, jinja2.exceptions.UndefinedError)):
                raise
            texts.append(None)
print(json.dumps(texts, ensure_ascii=False))
