"""A template takes neither the memory nor the time of the machine: what is too much is named, before it is done."""

import json
import resource
import time
from typing import Any

import pytest

from batchrun.core.line import LineFault
from batchrun.files.template import Template

ROW: dict[str, Any] = {"a": "text", "n": 7, "many": list(range(1_000)), "tags": ["x", "y"], "big": "y" * 100_000}

DOUBLED = "{% set b = 'ab' %}" + "{% set b = b OP b %}" * 60 + "{{ b }}"
TOO_MUCH = [
    "{{ 'a' * 10**10 }}",
    "{{ 10**10 * a }}",
    "{{ [1] * 10**10 }}",
    "{{ 10**(10**10) }}",
    "{{ 9 ** (9 ** 9) }}",
    DOUBLED.replace("OP", "+"),
    DOUBLED.replace("OP", "~"),
    "{% set b = 3 %}" + "{% set b = b * b %}" * 60 + "{{ b }}",
    "{% set b = 'ab' %}" + "{% set b %}{{ b }}{{ b }}{% endset %}" * 60 + "{{ b }}",
    "{% set b = [1] %}" + "{% set b = [b, b] %}" * 60 + "{{ b }}",
    "{% set b = [1] %}" + "{% set b = {'x': b, 'y': b} %}" * 60 + "{{ b == b }}",
    "{% for i in many %}{% for j in many %}{% for k in many %}{% endfor %}{% endfor %}{% endfor %}x",
    "{% for i in many %}{% for j in many %}{{ big }}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}x",
    "{% macro f(n) %}{% if n %}{{ f(n - 1, varargs, varargs) }}{% endif %}{{ varargs }}{% endmacro %}{{ f(60, 1, 1) }}",
    "{{ a | center(10**10) }}",
    "{{ a.center(10**10) }}",
    "{{ a.ljust(10**10) }}",
    "{{ '1'.zfill(10**10) }}",
    "{{ '\\t'.expandtabs(10**10) }}",
    "{{ n.to_bytes(10**10, 'big') }}",
    "{{ ('\\n' * 100000) | indent(10000) }}",
    "{{ many | tojson(indent=10**9) }}",
    "{{ many | batch(10**10, a) | list }}",
    "{{ many | slice(10**10) | list }}",
    "{{ '%09999999999d' % n }}",
    "{{ '%*d' % (10**10, n) }}",
    "{{ '%9999999999s' | format(a) }}",
    "{{ '{:>9999999999}'.format(a) }}",
    "{{ '{:>{w}}'.format(a, w=10**10) }}",
    "{{ '{a:>9999999999}'.format_map(row) }}",
    "{{ big | replace('y', big) }}",
    "{{ big.replace('y', big) }}",
    "{{ big | join(big) }}",
    "{{ big.join(many | map('string')) | length }}{{ big.join(big) }}",
]
FINE = {
    "{{ '-' * 40 }}{{ a ~ ', ' ~ n }}": "-" * 40 + "text, 7",
    "{% for tag in tags %}{{ loop.index }}/{{ loop.length }} {{ tag }}{{ ', ' if not loop.last }}{% endfor %}": (
        "1/2 x, 2/2 y"
    ),
    "{% for k, v in {'p': 1}.items() %}{{ k }}={{ v }}{% endfor %}": "p=1",
    "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(a) }}{{ f(n) }}": "<text><7>",
    "{{ '%05.2f' % n }} {{ '%s: %s' | format(a, n) }} {{ '{:>6}'.format(a) }}": "07.00 text: 7   text",
    "{{ a | center(8) }}|{{ a | indent(4, true) }}|{{ tags | join(' & ') }}|{{ a | replace('t', 'T') }}": (
        "  text  |    text|x & y|TexT"
    ),
    "{{ {'q': tags} | tojson(indent=2) }}": json.dumps({"q": ["x", "y"]}, indent=2),
    "{{ tags + ['z'] }} {{ n ** 3 + 1 }} {{ n % 4 }} {{ many | sum }} {{ a[:2] | upper }}": (
        '["x", "y", "z"] 344 3 499500 TE'
    ),
    "{{ tags | map('upper') | join }}{{ ','.join(tags) }}{{ (1, 2) | list }}": "XYx,y[1, 2]",
    "{% set x, y = tags %}{{ y }}{{ x if n in (6, 7) }}": "yx",
    "{{ big }}": "y" * 100_000,
}


def test_what_is_too_much_is_a_fault_of_its_own_name_and_costs_neither_memory_nor_time() -> None:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    for source in TOO_MUCH:
        with pytest.raises(LineFault) as fault:
            Template(source).render(ROW)
        words = fault.value.what
        assert "is too much for prompt_template, which " in words, (source, words)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000  # kB
    assert time.process_time() - began < 30


def test_what_people_write_is_written_as_before() -> None:
    for source, text in FINE.items():
        assert Template(source).render(ROW) == text, source
