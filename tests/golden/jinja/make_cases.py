#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Templates and what Python's jinja2 makes of them, set up as transformers does it.

    python3 tests/golden/jinja/make_cases.py > tests/golden/jinja/cases.json
    python3 tests/golden/jinja/make_cases.py --against build/tests/render_template --count 20000 --seed 7

The second compares random programs with this program's interpreter; exit code 1 if a text differs. Needs jinja2 3.1."""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import python_jinja


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


ENVIRONMENT = python_jinja.environment(now=0, refuse=refuse)

NAMES = dict(a=3, b=-7, f=2.5, s="Hello World", t="  x y\n z ", e="", n=None, y=True, l=[3, 1, 2], m=["b", "A", "c"],
             d={"k": 1, "items": 2, "z": {"q": "w"}}, o=[{"n": "x", "v": 2}, {"n": "y", "v": 1}, {"n": "X"}], u="é日😀")
LITERALS = ["0", "1", "2", "-3", "1.5", "'ab'", r'"c\n"', "true", "none", "[]", "{}", "[1,'x']", "{'k': 2, 'j': [1]}", "()",
            "(1,)", "1e3", "'%s'", "' '", "0x1f", "1_000", r"'\u00e9\x41'", "'a' 'b'"]
SIGNS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in", "not in", "**"]
FILTERS = """length|upper|lower|trim|default('dd')|default('x', true)|first|last|join(',')|list|sort|string|int|float|abs|round
|round(1)|tojson|tojson(indent=2)|capitalize|title|unique~list|min|max|sum|replace('l','L')|string~indent(2)|dictsort|count
|map('upper')~list|select~list|reject('none')~list|map(attribute='n')~list|selectattr('v')~list|selectattr('n','equalto','x')~list
|sum(attribute='v')|batch(2)~list|wordcount|e|groupby('n')|join('-', attribute='n')|center(9)|sort(reverse=true)
|string~truncate(5)|sort(attribute='n')|rejectattr('v','defined')~list|map('string')~join('~')|safe|string~reverse|list~reverse~list
|int(7)|float(1.5)|tojson(sort_keys=true)|string~length|trim('l')""".replace("\n", "").split("|")
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "mapping", "iterable", "boolean", "true", "false",
         "odd", "even", "lower", "upper", "divisibleby(2)", "in [1,2]", "eq 3", "not none", "not defined", "callable", "gt 1"]
METHODS = """strip()|upper()|split()|split('l')|lower()|startswith('H')|endswith(('d','x'))|replace('o','0')|items()~list|keys()~list
|values()~list|get('k')|get('q', 5)|title()|strip('Hd')|lstrip()|rstrip()|find('W')|count('l')|join(['a','b'])|splitlines()|isdigit()
|zfill(12)|index(2)|format(1)|capitalize()|rsplit('l',1)|split(' ',1)|partition('o')|k|z.q|n|append(1)|rjust(14)|center(13)|isalpha()
|isspace()|removeprefix('He')|rfind('o')""".replace("\n", "").split("|")
TEXTS = ["a", "\n", "  ", "x\n  ", "\n\n", "é ", " .\n", "\t"]


class Programs:
    """Random ones, most of which have a meaning."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, of):
        return self.random.choice(of)

    def variable(self):
        return self.pick(list(NAMES) + ["missing"])

    def expression(self, depth=0):
        kind, inner = self.random.random(), lambda: self.expression(depth + 1)
        if depth > 3 or kind < .22:
            return self.variable()
        if kind < .36:
            return self.pick(LITERALS)
        if kind < .54:
            return f"({inner()} {self.pick(SIGNS)} {inner()})"
        if kind < .70:
            return f"{inner()}|" + self.pick(FILTERS).replace("~", "|")
        if kind < .78:
            return f"({inner()} is {self.pick(TESTS)})"
        if kind < .86:
            return f"{self.variable()}." + self.pick(METHODS).replace("~", "|")
        if kind < .91:
            return f"{self.variable()}[{self.pick(['0', '-1', '1:', '::-1', ':2', chr(34) + 'k' + chr(34), '-2:', '5', '1:3:2', 'a'])}]"
        if kind < .95:
            return f"({inner()} if {inner()} else {inner()})"
        return f"-{self.variable()}" if kind < .97 else f"(not {inner()})"

    def block(self, text):
        return "{%" + self.pick(["", "-", "+", ""]) + f" {text} " + self.pick(["", "-", "+", ""]) + "%}"

    def loop(self, depth):
        target = self.pick(["i", "i", "k, v", "a"])
        over = self.pick(["l", "m", "d", "o", "range(3)", "s", "d.items()", "missing", "[1,2]", "t", self.expression()])
        condition = self.pick([""] * 4 + [" if i"])
        last = self.pick(["", "{{ loop.index }}", "{{loop.last}}{{ loop.nextitem }}", "{{ i }}", "{{ loop.changed(i) }}",
                          "{% if loop.first %}{% continue %}{% endif %}{{ loop.revindex0 }}", "{{ loop.cycle('o','e') }}",
                          "{{ loop.length }}"])
        otherwise = self.block("else") + self.body(depth) if self.random.random() < .2 else ""
        return self.block(f"for {target} in {over}{condition}") + self.body(depth) + last + otherwise + self.block("endfor")

    def statement(self, depth=0):
        kind, inner = self.random.random(), lambda: self.body(depth + 1)
        if kind < .3:
            return self.pick(TEXTS)
        if kind < .55 or depth > 3:
            return "{{" + self.pick(["", "-", ""]) + f" {self.expression()} " + self.pick(["", "-", ""]) + "}}"
        if kind < .65:
            more = self.block("elif " + self.expression()) + inner() if self.random.random() < .3 else ""
            otherwise = self.block("else") + inner() if self.random.random() < .5 else ""
            return self.block("if " + self.expression()) + inner() + more + otherwise + self.block("endif")
        if kind < .77:
            return self.loop(depth + 1)
        if kind < .85:
            return self.block("set " + self.pick(["a", "s", "q", "ns.x", "k, v"]) + " = " + self.expression())
        if kind < .88:
            return self.block("set q") + inner() + self.block("endset")
        if kind < .92:
            head = self.pick(["mm", "m2"]) + self.pick(["()", "(p)", "(p, q=2)", "(p='d')"])
            return self.block("macro " + head) + inner() + "{{ p }}{{ q }}{{ varargs }}" + self.block("endmacro")
        if kind < .95:
            return "{{ " + self.pick(["mm", "m2"]) + self.pick(["()", "(1)", "(1, q=3)", "(p=a)", "(1,2,3)"]) + " }}"
        if kind < .965:
            return "{# c " + self.pick(["", "-"]) + "#}"
        if kind < .98:
            return self.block("with w = " + self.expression()) + inner() + "{{ w }}" + self.block("endwith")
        if kind < .99:
            return self.block("raw") + "{{ x }} " + self.pick(TEXTS) + self.block("endraw")
        return self.block("filter " + self.pick(["upper", "trim", "indent(2)"])) + inner() + self.block("endfilter")

    def body(self, depth=0):
        return "".join(self.statement(depth) for _ in range(self.random.randint(1, 4)))

    def program(self):
        return "{% set ns = namespace(x=1) %}" + self.body()


# What models' templates do, by feature.
CHOSEN = [
    "{% generation %}a{{ s }}{% endgeneration %}\nb",
    "{{ raise_exception('no: ' ~ a) }}",
    "{{ strftime_now('%d %B %Y') }}",
    "{% set ns = namespace(found=false) %}{% for x in l %}{% if x == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}",
    "{% for x in l %}{% set a = x %}{% endfor %}{{ a }}",
    "{% macro f(x, y=2, *z) %}{% endmacro %}",
    "{% macro f(x, y=a) %}{{ x }}-{{ y }}-{{ kwargs }}{% endmacro %}{{ f(1) }}{{ f(1, y=3, q=4) }}",
    "{% macro f() %}[{{ caller(5) }}]{% endmacro %}{% call(v) f() %}{{ v }}{% endcall %}",
    "{{ d | tojson }}{{ o | tojson(indent=4) }}{{ u | tojson(ensure_ascii=true) }}{{ d | tojson(separators=(',', ':')) }}",
    "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for x in [1, 2, 3, 4] if x is even %}{{ loop.index }}:{{ x }}{{ ', ' if not loop.last }}{% endfor %}",
    "{{ o | selectattr('v', 'gt', 1) | map(attribute='n') | join }}",
    "  {%- if true -%}  x  {%- endif -%}  ",
    "  {% if true %}\n  x\n  {% endif %}\n  y\n",
    "a\n  {#- c -#}  \nb", "a {# c #}\nb",
    "{{ '%s of %05.1f' % (s, f) }}{{ '%d%%' | format(a) }}",
    "{{ 7 // -2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ 1e16 }} {{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e-5 }}",
    "{{ [1, 'a', none, true, 2.0, {'k': (1,)}] }}{{ \"it's\" }}{{ [\"it's\", 'a\"b\\'', '\\n\\t\\\\'] }}",
    "{{ l[::-1] }}{{ s[-5:] }}{{ s[::2] }}{{ l[5:] }}{{ l[-1] }}{{ u[1] }}{{ u | length }}",
    "{{ missing is defined }}{{ missing }}{{ d.missing }}{{ d.k is defined }}{{ d.items is callable }}{{ d['items'] }}",
    "{{ missing.x }}", "{{ a.b.c }}", "{{ l.append(4) }}", "{{ ''.__class__ }}", "{{ range(1000000) }}", "{% include 'x' %}", "{{ 1 +",
    "{{ x y }}", "{% if %}", "{% for x in %}{% endfor %}", "{% endif %}", "{{ nothing() }}", "{{ 1 / 0 }}", "{{ s | nofilter }}",
    "{{ s is notest }}", "{% set d.k = 1 %}", "{{ a < s }}", "{{ s + a }}", "{% break %}",
]


def theirs(template):
    try:
        return {"text": ENVIRONMENT.from_string(template).render(**NAMES)}
    except Refused as error:
        return {"refusal": str(error)}
    except Exception as error:  # each program has its own words
        return {"error": type(error).__name__}


def prints_an_object(outcome):
    return re.search(r"<\w+ (object|'|\w+ at)|object at 0x|dict_(items|keys)", outcome.get("text", "")) is not None


def cases(count, seed):
    programs = Programs(seed)
    for template in CHOSEN + [programs.program() for _ in range(count)]:
        outcome = theirs(template)
        if not prints_an_object(outcome):
            yield {"template": template, **outcome}


def compare(program, count, seed):
    ours = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    texts = differences = 0
    for case in cases(count, seed):
        ours.stdin.write(json.dumps({"template": case["template"], "names": NAMES}) + "\n")
        ours.stdin.flush()
        mine = json.loads(ours.stdout.readline())
        if "text" not in case or "text" not in mine:
            continue
        texts += 1
        if mine["text"] != case["text"]:
            differences += 1
            print(f"{case['template']!r}\n  ours   {mine['text']!r}\n  theirs {case['text']!r}")
    print(f"{texts} of {count} programs have a text in both, {differences} of them differ")
    return 1 if differences or texts < count // 4 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", help="a program that renders, a line of JSON each")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.against:
        return compare(options.against, options.count, options.seed)
    with_text = [case for case in cases(options.count, options.seed) if len(case["template"]) < 600]
    chosen = {template for template in CHOSEN}
    kept = [case for case in with_text if case["template"] in chosen or "text" in case]
    print(json.dumps({"names": NAMES, "cases": kept}, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
