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

# The same, recorded behind the random ones: seeds of tests/fuzz are named after the places of cases.
LATER = [
    r"""{{ "a\nb\r\nc\rd\x0be\x0cf\x1cg\x1dh\x1ei\x85j\u2028k\u2029l\x1fm" | indent(2) | tojson(ensure_ascii=true) }}""",
    r"""{{ "a\nb\r\nc\rd\x0be\x0cf\x1cg\x1dh\x1ei\x85j\u2028k\u2029l\x1fm".splitlines() }}""",
    r"""{{ "a\nb\r\nc\rd\x85j\u2028".splitlines(true) }}{{ "\r\n\n\r".splitlines(keepends=true) }}{{ "".splitlines() }}""",
    r"""{% for s in ["", "\n", "\r", "\r\n", "a\n", "a\r", "a\r\n", "a\u2029", "a\n\n", "a\n\r", "a\r\r", "\na", "\u00e2\u0080x"] %}"""
    r"""{{ [s | indent(1), s | indent(1, true), s | indent('>', true, true), s | indent(width='>', blank=true)] }}{% endfor %}""",
    "{{ none | indent }}", "{{ 5 | indent }}", "{{ missing | indent }}", "{{ d | indent }}",
    "{% for x in [1] %}{% continue %}{% else %}e{% endfor %}{% for x in l %}{% break %}{% else %}e{% endfor %}"
    "{% for x in l %}{% if loop.last %}{% break %}{% endif %}{% else %}e{% endfor %}",
    "{% set tree = [{'v': 1, 'c': [{'v': 2, 'c': [{'v': 3}]}, {'v': 4}]}, {'v': 5}] %}{% for x in tree recursive %}"
    "[{{ loop.depth }}{{ loop.depth0 }}{{ loop.index }}/{{ loop.length }} {{ x.v }}{% set q = x.v %}{{ loop(x.c) }}{{ q }}]{% else %}.{% endfor %}",
    "{% for x in [1, [2, [3, [], 4]], 5] recursive %}{{ '<' ~ loop(x) | upper ~ '>' if x is iterable else x }}{% endfor %}",
    "{% for x in [1, 2, [4, 5, [6]]] if (x is iterable or x is even) recursive %}{{ loop(x) if x is iterable else x }};{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for k, v in d.items() recursive %}{{ k }}{% set ns.n = ns.n + 1 %}{{ loop(v.items()) if v is mapping }}{% endfor %}{{ ns.n }}",
    "{% for x in [1, [2, 3]] recursive %}{% set outside = loop %}{% for y in [1] %}{{ loop.depth }}{{ outside(x) if x is iterable else x }}{% endfor %}{% endfor %}",
    "{% for x in [3, [4, 5, 6], 7] recursive %}{% if x == 5 %}{% break %}{% endif %}{% if x is iterable %}{{ loop(x) }}{% continue %}{% endif %}{{ x }}{% else %}e{% endfor %}",
    "{% macro f(l, v) %}({{ l(v) }}){% endmacro %}{% for x in [1, [2]] recursive %}{{ f(loop, x) if x is iterable else x }}{% endfor %}",
    "{% for x in l recursive %}{{ loop(missing) }}{{ loop(d.missing) }}{{ x }}{% else %}e{% endfor %}",
    "{% for x in l %}{{ loop(l) }}{% endfor %}", "{% for x in l recursive %}{{ loop() }}{% endfor %}", "{% for x in l recursive %}{{ loop(5) }}{% endfor %}",
    "{% for x in [[1]] recursive %}{% for y in x %}{{ loop(x) }}{% endfor %}{% endfor %}", "{% for x in l recursive if x %}{% endfor %}",
    "{{ 'aaa bbb cc d' | wordwrap(5) }}|{{ 'a-long-hyphenated word--and a dash -- to x-y-z-w' | wordwrap(6) }}|{{ 'abcdefghij k' | wordwrap(4) }}",
    r"""{% for s in ["", " ", "\n\n", "  a  b  ", "a\r\n\u2028 bb cccc", "\u00e9\u00e9\u00e9 \u65e5\u672c\u8a9e\u65e5\u672c \U0001f600", "abcd efghij", "a\tb\u00a0c d\x0be"] %}"""
    "{% for w in [1, 2, 4, 7] %}{{ [s | wordwrap(w), s | wordwrap(w, false), s | wordwrap(w, true, '<>'), s | wordwrap(w, break_on_hyphens=false)] }}{% endfor %}{% endfor %}",
    "{% for w in range(1, 14) %}{{ 'a--b cd---ef- -g well-known-\u0131t x1-2y 3-4 --opt --- \"q\"--r aa-bb-cc-d-e' | wordwrap(w, wrapstring='|') }};"
    "{{ 'aa-bb-cc --ddddd-- eeeee-f-----g' | wordwrap(w, false, '|') }};{{ 'aa-bb-cc --d' | wordwrap(w, true, '|', false) }}{% endfor %}",
    "{{ 'a b' | wordwrap(0) }}", "{{ none | wordwrap }}", "{{ missing | wordwrap }}", "{{ t | wordwrap('x') }}", "{{ 'x ' * 60 | wordwrap }}{{ ('x ' * 60) | wordwrap }}",
    "{{ range(7) | slice(3) | list }}{{ range(7) | slice(3, 'x') | list }}{{ l | slice(3, 'x') | list }}{{ l | slice(5) | list }}{{ [] | slice(2, 0) | list }}{{ s | slice(4) | map('join') | list }}",
    "{{ l | slice(0) | list }}", "{{ l | slice | list }}",
    "{% for n in [0, 1, 2, 999, 1000, 1023, 1024, 1049, 999949, 999950, 1048576, 1.5, '77', true, 12345678901234, 1e30, -5] %}{{ n | filesizeformat }} {{ n | filesizeformat(true) }};{% endfor %}",
    "{{ 'x' | filesizeformat }}", "{{ none | filesizeformat }}",
    "{{ 'a b/c?d=\u00e9&~_.-+%' | urlencode }} {{ {'a b': 'c/d', 'e': 5, 'f': none} | urlencode }} {{ [('k', 'v w'), ('x', 1.5)] | urlencode }} {{ 7 | urlencode }}",
    "{{ [1, 2] | urlencode }}", "{{ \"<a href='x'>&amp;\\\"\" | forceescape }}",
    "{{ 'a\u00b2b \u0661 _ \u2167-x' | wordcount }}",
    "{{ '{:>5}|{:<5}|{:^5}|{:*^6}|{:5}|{:.2}|{:>4.1}|{:05}|{:s}|{:\u65e5>4}|{:}|{!r:>8}|{!s:.1}'.format('ab', 'ab', 'ab', 'ab', 'ab', 'abc', 'abc', 'ab', 'ab', 'ab', 'ab', 'ab', 'ab') }}",
    "{{ '{:5}|{:<5}|{:^5}|{:05}|{:+}|{: d}|{:x}|{:#X}|{:o}|{:#b}|{:,}|{:_}|{:_x}|{:*=+6}|{:<05}|{:#06x}|{:3}'.format(a, a, a, b, a, a, 255, 255, 8, 5, 1234567, -1234567, 1048575, a, a, 255, true) }}",
    "{{ '{:8}|{:.2f}|{:08.3f}|{:+.1f}|{:e}|{:.3G}|{:g}|{:%}|{:.0%}|{:,.2f}|{:<8}|{:.1f}|{:f}|{:.2e}|{:5.1f}|{:.0f}'.format(f, f, f, f, f, 12345.678, 1e20, 0.25, 0.5, 1234567.891, '-0.0' | float, a, true, b, -1.25, 2.5) }}",
    "{{ '{:.3} {:.3} {:.3} {:.2} {:.1} {:.1} {:.0} {:.4} {:.2}'.format(f, 12.345, 123.4, 1e-7, 0.0, 1e2, 9.9, 100.0, 0.00012) }}",
    "{{ '{0} {1} {0} {x} {x!r} {{}} {{{0}}}'.format('a', 2, x='q') }}{{ '{} {}'.format(none, [1, 'a']) }}{{ '{:}'.format(none) }}",
    "{{ '{0[k]} {0[z][q]} {0.k} {1[0][n]} {1[1].v:>3} {2[0]} {m}'.format(d, o, s, m=missing) }}{{ '{0.missing}|{0[5]}|{1[q]}'.format(l, d) }}",
    "{{ '{:{}}|{:{w}.{p}}|{:{f}{g}4}'.format('ab', 4, 'abc', 1, w=3, p=2, f='*', g='^') }}{{ '{k}-{z[q]}'.format_map(d) }}",
    "{{ '{0.__class__}|{0[__class__]}|{0.__class__.__mro__}'.format(s) }}", "{{ '{0.__class__}|{0[__class__]}'.format(s) }}", "{{ '{}'.format() }}", "{{ '{1}'.format(1) }}", "{{ '{x}'.format(1) }}",
    "{{ '{'.format(1) }}", "{{ '}'.format(1) }}", "{{ '{0'.format(1) }}", "{{ '{0!}'.format(1) }}", "{{ '{0!rx}'.format(1) }}", "{{ '{a{b}}'.format(1) }}", "{{ '{:{:{:{}}}}'.format(1, 2, 3, 4) }}",
    "{{ '{0} {}'.format(1, 2) }}", "{{ '{} {0}'.format(1, 2) }}", "{{ '{0[}'.format(l) }}", "{{ '{0[]}'.format(l) }}", "{{ '{0.}'.format(l) }}", "{{ '{0[0]x}'.format(l) }}",
    "{{ '{:>5}'.format(none) }}", "{{ '{:>5}'.format(l) }}", "{{ '{:>5}'.format(missing) }}", "{{ '{:d}'.format(s) }}", "{{ '{:s}'.format(a) }}", "{{ '{:.2}'.format(a) }}", "{{ '{:d}'.format(f) }}",
    "{{ '{:x}'.format(f) }}", "{{ '{:+}'.format(s) }}", "{{ '{:,}'.format(s) }}", "{{ '{:=5}'.format(s) }}", "{{ '{:>5q}'.format(s) }}", "{{ '{:5 }'.format(s) }}", "{{ '{:.}'.format(f) }}", "{{ '{:,x}'.format(a) }}",
    r"""{% set w = " a b\u00a0c  \u00e9 d " %}{{ [w.split(none, 2), w.rsplit(none, 2), w.split(maxsplit=0), w.rsplit(none, 0), w.rsplit(), w.split(none, 9), w.rsplit(none, 9)] }}"""
    "{{ [' '.split(none, 1), ''.rsplit(none, 1), 'a '.split(none, 1), ' a'.rsplit(none, 1), ' a'.split(none, 0)] }}",
    "{{ [u.find('😀', 1), u.find('é', 1), u.find('日', 0, 1), u.find('日', -2), u.find('', 3), u.find('', 4), u.rfind('', 0, 2), s.count('l', 3), s.count('l', 3, -2), s.count('', 9)"
    ", s.count('', 12), s.startswith('World', 6), s.startswith(('x', 'ell'), 1), s.startswith('', 12), s.endswith('o', 0, 5), s.endswith('lo', 4, 5), s.index('o', 5), s.rindex('o', none, 7), s.find('l', 5, 2)] }}",
    "{{ s.index('H', 1) }}", "{{ s.find('o', 'x') }}", "{{ s.startswith('H', 0, 1, 2) }}",
]


class TextPrograms:
    """Random texts, through what looks at their lines, words and widths: what Programs seldom meets."""

    PIECES = ["\\n", "\\r", "\\r\\n", "\\x0b", "\\x0c", "\\x1c", "\\x1d", "\\x1e", "\\x1f", "\\x85", "\\u2028", "\\u2029", "\\u00a0", " ", " ", "  ", "\\t",
              "a", "b", "cd", "efghi", "-", "-", "--", "\\u00e9", "\\u65e5\\u672c", "\\u0661", "_", ".", ",", "!", "1", "23", "\\u2167", "\\U0001f600", "{", "}"]
    SPECS = ["", "", "<", ">", "^", "=", "*<", "\\u65e5>", "_^", "0=", "x="]
    KINDS = ["", "", "s", "d", "x", "X", "o", "b", "e", "f", "g", "E", "F", "G", "%"]
    VALUES = ["0", "7", "-7", "255", "1234567", "-98765", "true", "0.5", "-1.25", "1e16", "1234567.891", "1e-7", "100.0", "0.0", "12.5", "1e300", "none", "'ab'", "''", "'\\u00e9\\u65e5x'", "9223372036854775807"]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, of):
        return self.random.choice(of)

    def text(self):
        return '"' + "".join(self.pick(self.PIECES) for _ in range(self.random.randint(0, 14))) + '"'

    def spec(self):
        width, precision = self.pick(["", "", "1", "5", "9", "14"]), self.pick(["", "", "", ".0", ".1", ".3", ".12"])
        return (self.pick(self.SPECS) + self.pick(["", "", "", "+", "-", " "]) + self.pick(["", "", "", "#"]) + self.pick(["", "", "", "0"]) + width
                + self.pick(["", "", "", ",", "_"]) + precision + self.pick(self.KINDS))

    def tree(self, depth=0):
        inner = [self.tree(depth + 1) if self.random.random() < .4 and depth < 3 else str(self.random.randint(0, 9)) for _ in range(self.random.randint(0, 3))]
        return "[" + ", ".join(inner) + "]"

    def program(self):
        flag = lambda: self.pick(["true", "false"])
        kind = self.random.random()
        if kind < .2:
            return f"{{{{ [{self.text()} | indent({self.pick(['0', '1', '3', chr(39) + '> ' + chr(39)])}, {flag()}, {flag()})] }}}}"
        if kind < .35:
            return f"{{{{ {self.text()}.splitlines({flag()}) }}}}{{{{ {self.text()} | wordcount }}}}"
        if kind < .65:
            return f"{{{{ [{self.text()} | wordwrap({self.random.randint(1, 9)}, {flag()}, {self.pick(['none', chr(39) + '|' + chr(39)])}, {flag()})] }}}}"
        if kind < .9:
            return f"{{{{ '<{{:{self.spec()}}}>'.format({self.pick(self.VALUES)}) }}}}"
        body = self.pick(["{{ loop(x) }}", "<{{ loop(x) }}>{% continue %}", "{{ loop(x) | upper ~ loop(x) }}", "{% set q = loop(x) %}({{ q }}"])
        return (f"{{% for x in {self.tree()}{self.pick(['', ' if (x != 3)'])} recursive %}}{{% if x is iterable %}}{body}{{% else %}}{{{{ x }}}}{{{{ loop.depth }}}}"
                f"{{{{ loop.index }}}}{self.pick(['', '{% break %}'])}{{% endif %}}{self.pick(['', '{{ loop.revindex }}'])}{self.pick(['', '{% else %}-'])}{{% endfor %}}")


def theirs(template):
    try:
        return {"text": ENVIRONMENT.from_string(template).render(**NAMES)}
    except Refused as error:
        return {"refusal": str(error)}
    except Exception as error:  # each program has its own words
        return {"error": type(error).__name__}


def prints_an_object(outcome):
    return re.search(r"<\w+ (object|'|\w+ at)|object at 0x|dict_(items|keys)", outcome.get("text", "")) is not None


def cases(count, seed, kind=Programs):
    programs = kind(seed)
    for template in CHOSEN + [programs.program() for _ in range(count)] + LATER:
        outcome = theirs(template)
        if not prints_an_object(outcome):
            yield {"template": template, **outcome}


def compare(program, count, seed, kind=Programs):
    ours = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    texts = differences = 0
    for case in cases(count, seed, kind):
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
    parser.add_argument("--texts", action="store_true", help="programs about lines, words and widths of texts, and recursive loops")
    options = parser.parse_args()
    if options.against:
        return compare(options.against, options.count, options.seed, TextPrograms if options.texts else Programs)
    with_text = [case for case in cases(options.count, options.seed) if len(case["template"]) < 600]
    chosen = {template for template in CHOSEN + LATER}
    kept = [case for case in with_text if case["template"] in chosen or "text" in case]
    print(json.dumps({"names": NAMES, "cases": kept}, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
