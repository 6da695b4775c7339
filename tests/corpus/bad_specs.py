"""Specs as people get them wrong: each is one text, the lines on which the fault stands, and what must be said."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from jsonschema import Draft202012Validator

from batchrun.core.client_options import CLIENT_OPTIONS
from batchrun.core.spec import NOT_YET, JobSpec
from batchrun.core.spec_schema import spec_schema
from tests.corpus.gate import GOOD, SECRET, good_line

PRICE = {"input_per_1m_usd": 1, "output_per_1m_usd": "0.6"}
FULL: dict[str, Any] = GOOD | {
    "endpoint": "/v1/chat/completions",
    "params": {"temperature": 0},
    "timeout_s": 60,
    "on_unknown": "hold",
    "unknown_statuses": [500],
    "refused_statuses": [502],
    "trial": {"size": 3},
    "price": PRICE,
    "max_cost_usd": 1,
    "metadata": {"who": "me"},
}
KEYS = sorted(JobSpec.model_fields)
VALIDATOR = Draft202012Validator(spec_schema())
# Every type of value in several sizes. Those that a key takes are left out for that key.
POOL: list[Any] = [
    *(None, True, False, 0, -1, 1, 0.5, -0.5, 2.5, 10**7 + 1, 10**20, 1e300, -1e300),
    *(
        "",
        " ",
        "eight",
        "8",
        "0",
        "-1",
        "0.5",
        "true",
        "null",
        "auto",
        "hold",
        "a" * 600,
        "\t",
        "ü",
        "a b",
        "a/b",
        "../x",
    ),
    *([], [None], [1], [-1], ["a"], [[500]], [500, 500.5], ["500"], [200], [600], [True]),
    *({}, {"a": 1}, {"a": None}, {"a": []}, {"size": -1}, {"size": "ten"}, {"sample": "best"}, {"seed": 0.5}),
    *({"": ""}, {"max_failed_share": 2}, {"input_per_1m_usd": 1}, {**PRICE, "input_per_1m_usd": "free"}),
    *({**PRICE, "output_per_1m_usd": -1}, {**PRICE, "currency": "USD"}, {"stream": True}, {"messages": []}),
]


@dataclass(frozen=True)
class BadSpec:
    """One faulty spec."""

    name: str
    text: str
    first: int  # the lines on which the faults stand
    last: int
    words: tuple[str, ...]  # each must be said of one of the faults
    content: bytes = good_line()  # of the input, which is right


def written(spec: dict[str, Any]) -> str:
    """Write a spec as people do, each key on a line of its own."""
    return json.dumps(spec, indent=1, ensure_ascii=False)


def span_of(text: str, key: str) -> tuple[int, int]:
    """Return the first and the last line of a key of the spec, from 1."""
    lines = text.split("\n")
    first = next(
        no for no, line in enumerate(lines, start=1) if line.startswith(f" {json.dumps(key, ensure_ascii=False)}:")
    )
    last = first
    while last < len(lines) - 1 and not re.match(r' "', lines[last]):
        last += 1
    return first, last


def case(name: str, spec: dict[str, Any], key: str, *words: str) -> BadSpec:
    """Make a case whose faults stand at one key."""
    text = written(spec)
    return BadSpec(name, text, *span_of(text, key), words)


def with_value(key: str, value: Any) -> dict[str, Any]:
    """Return a full spec with this value, and without what would be wrong with it for another reason."""
    spec = FULL | {key: value}
    if key == "price":
        del spec["max_cost_usd"]
    return spec


def wrong_values() -> Iterator[BadSpec]:
    """Every key with every value of the pool that its schema refuses."""
    for key in KEYS:
        for value in POOL:
            spec = with_value(key, value)
            if not VALIDATOR.is_valid(spec):
                yield case(f"{key}={json.dumps(value)[:40]}", spec, key, f"'{key}")


def unknown_keys() -> Iterator[BadSpec]:
    """Keys as they come out of tired fingers, with the one that was meant."""
    for key in KEYS:
        middle = len(key) // 2
        near = {
            key[:-1] + key[-1] * 2,
            key[:middle] + key[middle + 1 :],
            key[:middle] + key[middle + 1] + key[middle] + key[middle + 2 :],
            key.replace("_", ""),
            key.replace("_", "-"),
            key.upper(),
            key.title().replace("_", ""),
            f"{key}s",
        }
        for wrong in sorted(near - set(KEYS) - set(NOT_YET)):
            yield case(
                f"unknown {wrong}", GOOD | {wrong: FULL.get(key, 1)}, wrong, f"unknown key '{wrong}'", "did you mean"
            )
        for wrong in (f" {key}", f"{key} ", f"{key}\t"):
            told = wrong.encode("unicode_escape").decode()
            yield case(f"blank in {told}", GOOD | {wrong: 1}, wrong, "white space", f'write "{key}"')


def foreign_keys() -> Iterator[BadSpec]:
    """Keys of other programs, of secrets, and of later releases."""
    for key in (
        "gpus",
        "queue",
        "callback",
        "webhook_url",
        "num_workers",
        "n_jobs",
        "dataset",
        "\u00fcber",
        "0",
        "a.b",
    ):
        yield case(f"foreign {key}", GOOD | {key: 1}, key, f"unknown key '{key}'")
    for key in ("api_key", "key", "token"):
        yield case(f"secret {key}", GOOD | {key: SECRET}, key, "does not belong in a spec")
    for key in NOT_YET:
        yield case(f"later {key}", GOOD | {key: 1}, key, "not available in this release")


def client_options() -> Iterator[BadSpec]:
    """What a client would obey, in `params`."""
    for option in sorted(CLIENT_OPTIONS):
        spec = GOOD | {"params": {"temperature": 0, option: SECRET}}
        yield case(f"params.{option}", spec, "params", option, "not obeyed")


def missing_keys() -> Iterator[BadSpec]:
    """Every set of the seven that may be missing, but all of them being there."""
    for chosen in range(1, 2 ** len(GOOD)):
        gone = [key for number, key in enumerate(GOOD) if chosen >> number & 1]
        text = written({key: value for key, value in GOOD.items() if key not in gone})
        yield BadSpec(f"without {','.join(gone)}", text, 0, 0, tuple(f"'{key}' is missing" for key in gone))


def repeated_keys() -> Iterator[BadSpec]:
    """Every key twice, with the same value and with another."""
    for key in FULL:
        for value in (FULL[key], None):
            text = written(FULL).removesuffix("\n}") + f",\n {json.dumps(key)}: {json.dumps(value)}\n}}"
            yield BadSpec(f"{key} twice", text, span_of(text, key)[0], text.count("\n") + 1, (f"'{key}' stands twice",))


def not_numbers() -> Iterator[BadSpec]:
    """What Python writes as JSON and is none, and what is too large to be a number, as the value of every key."""
    for key in KEYS:
        for literal in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999"):
            text = written(FULL | {key: "@"}).replace('"@"', literal)
            yield BadSpec(f"{key}={literal}", text, *span_of(text, key), ())


def broken_json() -> Iterator[BadSpec]:
    """JSON as people write it: every mistake on every line."""
    lines = written(FULL).split("\n")
    for no, line in enumerate(lines, start=1):
        key = re.match(r' "(\w+)": (.*?)(,?)$', line)
        if key is None:
            continue
        name, value, comma = key.groups()
        wrong = {
            "single quotes": f" '{name}': {value}{comma}",
            "no quotes": f" {name}: {value}{comma}",
            "curly quotes": f" \u201c{name}\u201d: {value}{comma}",
            "an equals sign": f' "{name}" = {value}{comma}',
            "a comment behind": f"{line} // the {name}",
            "a comment with a hash": f"{line} # the {name}",
            "two commas": f" {line},,",
            "no colon": f' "{name}" {value}{comma}',
            "a semicolon": line.removesuffix(",") + ";",
            "Python's None": f' "{name}": None{comma}',
            "Python's True": f' "{name}": True{comma}',
            "an open string": f' "{name}: {value}{comma}',
        }
        if comma and not value.endswith(("{", "[")):
            wrong["no comma"] = line.removesuffix(",")
        for what, bad in wrong.items():
            text = "\n".join([*lines[: no - 1], bad, *lines[no:]])
            # The parser may see it only when it comes to the next line.
            yield BadSpec(f"{what} at {name}", text, no, no + 1, ("is not JSON",))
    yield from _cut()


def _cut() -> Iterator[BadSpec]:
    text = written(FULL)
    lines = text.split("\n")
    for count in range(1, len(lines)):
        cut = "\n".join(lines[:count])
        yield BadSpec(f"cut after line {count}", cut, count, count + 1, ("is not JSON",))
    count = len(lines)
    whole = [
        ("a comma before the end", text.removesuffix("\n}") + ",\n}", count - 1, count, ("comma",)),
        ("two specs", text + "\n" + text, count + 1, count + 1, ("one object a file",)),
        ("words behind", text + " thanks", count, count, ("is not JSON",)),
        ("a line break in a string", text.replace("mock", "mo\nck"), 3, 3, ("is not JSON",)),
        ("YAML", text.replace('"', "").replace("{", "").replace("}", "").replace(",", ""), 1, 3, ("is not JSON",)),
    ]
    for name, bad, first, last, words in whole:
        yield BadSpec(name, bad, first, last, words)


def odd_amounts() -> Iterator[BadSpec]:
    """Amounts of money as no decimal number is written."""
    for amount in (
        "1_0",
        " 1",
        "1 ",
        "1e3",
        "+1",
        "$1",
        "1,5",
        "1.",
        ".5",
        "0x1",
        "Infinity",
        "NaN",
        "\u0663",
        "1.5 USD",
    ):
        yield case(f"max_cost_usd {amount!r}", FULL | {"max_cost_usd": amount}, "max_cost_usd", "'max_cost_usd'")
        for name in PRICE:
            yield case(f"{name} {amount!r}", FULL | {"price": {**PRICE, name: amount}}, "price", f"'price.{name}'")
    for amount in (1_000_001, 2_000_000, 1e19, "1000001", "99999999999"):
        yield case(f"max_cost_usd {amount!r}", FULL | {"max_cost_usd": amount}, "max_cost_usd", "'max_cost_usd'")


def crossed() -> Iterator[BadSpec]:
    """What is right by itself and wrong together."""
    for statuses in ([500], [500, 502], [502, 501, 500]):
        spec = GOOD | {"unknown_statuses": [500, 503], "refused_statuses": statuses}
        yield case(f"both lists have {statuses}", spec, "refused_statuses", "stands in unknown_statuses and in")
    yield case("a limit without a price", GOOD | {"max_cost_usd": 1}, "max_cost_usd", "needs a 'price'")
    for endpoint, content in (("/v1/completions", b'{"prompt": "a"}'), ("/v1/embeddings", b'{"input": "a"}')):
        spec = GOOD | {"system": "Be brief.", "endpoint": endpoint}
        yield replace(case(f"system for {endpoint}", spec, "system", endpoint), content=content)
    for source in ("{{ text", "{% if %}", "{{ a b }}", "{% for x in y %}", "{% include 'x' %}{%", "{{ 1 + }}"):
        yield case(f"template {source}", GOOD | {"prompt_template": source}, "prompt_template", "is no template")


FAMILIES = [
    wrong_values,
    unknown_keys,
    foreign_keys,
    client_options,
    missing_keys,
    repeated_keys,
    not_numbers,
    broken_json,
    odd_amounts,
    crossed,
]
