# SPDX-License-Identifier: Apache-2.0
"""Renders the cases of a JSON file by Jinja, set up as in transformers' apply_chat_template.

python render.py CASES: prints a list with a text for each case, or null where the template raised an exception.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import python_jinja
from python_jinja import jinja2

environment = python_jinja.environment(now=0)
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
