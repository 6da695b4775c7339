"""Input lines as people get them wrong: each is the bytes of one line, and what must be said of it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from batchrun.core.client_options import CLIENT_OPTIONS
from tests.corpus.gate import SECRET

CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
)
MESSAGES = [{"role": "user", "content": "Name a colour."}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": MESSAGES, "temperature": 0},
    COMPLETIONS: {"prompt": "Once upon a time", "stop": ["."]},
    EMBEDDINGS: {"input": ["a", "b"]},
    RESPONSES: {"input": "Name a colour.", "reasoning": {"effort": "low"}},
}


@dataclass(frozen=True)
class BadLine:
    """One faulty line, without its newline."""

    name: str
    raw: bytes
    words: str  # what the fault or its hint must say


def batch(path: str = CHAT, /, custom_id: object = "x", **fields: Any) -> dict[str, Any]:
    """Return one OpenAI Batch line; `fields` go over it."""
    return {"custom_id": custom_id, "method": "POST", "url": path, "body": BODIES[path]} | fields


def line(value: Any) -> bytes:
    """Write a line."""
    return json.dumps(value, ensure_ascii=False).encode()


def bad(name: str, value: Any, words: str) -> BadLine:
    """Make a case of a value that is JSON."""
    return BadLine(name, line(value), words)


def broken_json() -> Iterator[BadLine]:
    """JSON as people write it, of every endpoint."""
    for path in BODIES:
        for no, text in enumerate((json.dumps(batch(path)), json.dumps(BODIES[path]))):
            form = f"{path} {'batch' if no == 0 else 'bare'}"
            for name, wrong, words in _mistakes(text):
                yield BadLine(f"{name}: {form}", wrong.encode(), words)


def _mistakes(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (name, the mistaken text, words) for one good object."""
    inner = text[1:-1]
    key = text.split('"')[1]
    yield "a comma before the end", f"{{{inner},}}", "comma"
    yield "a comma behind", f"{text},", "comma"
    yield "two commas", text.replace(", ", ",, ", 1) if ", " in text else f"{{{inner},,}}", "comma"
    yield "a comma in front", f",{text}", "not JSON"
    yield "a comma in an inner object", text.replace("}", ",}", 1) if "}" in inner else f"{{{inner}, }}", "comma"
    yield (
        "a comma in an array",
        text.replace("]", ",]", 1) if "]" in text else f"[{text},]",
        "comma" if "]" in text else "",
    )
    yield "in an array", f"[{text}]", "an array, not an object"
    yield "the first of an array", f"[{text},", "not whole"
    yield "two objects", text + text, "two values"
    yield "two objects and a blank", f"{text} {text}", "two values"
    yield "two objects and a comma", f"{text}, {text}", "two values"
    yield "words behind", f"{text} done", "something stands behind"
    yield "words in front", f"data: {text}", "not JSON"
    yield "single quotes", str(json.loads(text)), "single quotes"
    yield "one single quote", text.replace(f'"{key}"', f"'{key}'", 1), "single quotes"
    yield "curly quotes", text.replace(f'"{key}"', f"\u201c{key}\u201d", 1), "curly quote"
    yield "no quotes", text.replace(f'"{key}"', key, 1), "not JSON"
    yield "a comment behind", f"{text} // {key}", "something stands behind"
    yield "a comment inside", text.replace("{", "{/* x */ ", 1), "no comments"
    yield "a comment in front", f"// {text}", "no comments"
    yield "a hash in front", f"# {text}", "no comments"
    yield "an equals sign", text.replace(":", "=", 1), "not JSON"
    yield "no colon", text.replace(":", "", 1), "not JSON"
    yield "no end", text[:-1], "not whole"
    yield "no begin", text[1:], "not JSON" if not inner.startswith('"') else ""
    yield "an end too many", f"{text}}}", "something stands behind"
    yield "a bracket in place of a brace", f"{{{inner}]", "not JSON"
    yield "Python's True", f'{{{inner}, "logprobs": True}}', "it has no True"
    yield "Python's False", f'{{{inner}, "logprobs": False}}', "it has no False"
    yield "Python's None", f'{{{inner}, "seed": None}}', "it has no None"
    yield "undefined", f'{{{inner}, "seed": undefined}}', "it has no undefined"
    yield "a raw tab in a string", text.replace(f'"{key}', f'"\t{key}', 1), "escape"
    yield "a wrong escape", text.replace(f'"{key}', f'"\\x{key}', 1), "not JSON"
    yield "half an escape", text.replace(f'"{key}', f'"\\u12{key}', 1), "not JSON"
    yield "an open string", text.replace(f'{key}"', key, 1), ""
    yield "a number with a zero in front", f'{{{inner}, "seed": 07}}', "not JSON"
    yield "a number with a plus", f'{{{inner}, "seed": +7}}', "not JSON"
    yield "a number with a point alone", f'{{{inner}, "seed": 7.}}', "not JSON"
    yield "a hexadecimal number", f'{{{inner}, "seed": 0x7}}', "not JSON"
    yield "a semicolon", f"{text};", "something stands behind"
    yield "a field twice", f'{{{inner}, "{key}": 1}}', ""
    yield "an array too deep", f'{{{inner}, "x": {"[" * 300}{"]" * 300}}}', "nested more than 200 levels"
    for name, literal in (("NaN", "NaN"), ("Infinity", "Infinity"), ("-Infinity", "-Infinity")):
        yield name, f'{{{inner}, "x": {literal}}}', "no NaN and no Infinity"
        yield f"{name} in a list", f'{{{inner}, "x": [1, {literal}]}}', "no NaN and no Infinity"


def too_large_numbers() -> Iterator[BadLine]:
    """Numbers that JSON can write and nothing can hold: they would be sent as Infinity, which is no JSON."""
    for path, body in BODIES.items():
        for place, value in (("top", "@"), ("list", [1, "@"]), ("object", {"a": {"b": "@"}})):
            for literal in ("1e999", "-1e999", "1E+400", "1" + "0" * 400 + ".0"):
                raw = line(batch(path, body=body | {"x": value})).replace(b'"@"', literal.encode())
                yield BadLine(f"{literal[:7]} in a {place}: {path}", raw, "a number that is too large")


def no_objects() -> Iterator[BadLine]:
    """Values that are JSON and no object."""
    for value in (
        [],
        [1],
        [{}],
        [[]],
        [batch(), batch()],
        "",
        "hello",
        "{}",
        0,
        1,
        -1,
        0.5,
        1e10,
        True,
        False,
        None,
        ["a", "b"],
    ):
        yield bad(f"the value {json.dumps(value)[:30]}", value, "not an object")
    for text in (
        "hello",
        "Name a colour.",
        "id,prompt",
        "---",
        "a: 1",
        "<html>",
        "key=value",
        "\u00fc",
        "\ufffd",
        "nan",
        "0x1",
    ):
        yield BadLine(f"the words {text}", text.encode(), "not JSON")


def no_requests() -> Iterator[BadLine]:
    """Objects that ask for nothing."""
    rows: list[dict[str, Any]] = [
        {},
        {"a": 1},
        {"text": "hello"},
        {"question": "why?", "answer": "so"},
        {"id": "a", "prompt_id": 3},
        {"Messages": MESSAGES},
        {"message": "hello"},
        {"promt": "hello"},
        {"conversations": [{"from": "human", "value": "hi"}]},
        {"instruction": "do", "output": "done"},
        {"": ""},
        {"custom_id": "x"},
        {"role": "user", "content": "hi"},
        # A line of an output file, given as input.
        {"id": "b", "custom_id": "x", "response": {"status_code": 200, "body": {}}, "error": None},
    ]
    for row in rows:
        yield bad(f"fields {', '.join(row) or 'none'}", row, "holds no request")


def other_vendors() -> Iterator[BadLine]:
    """Batch formats of others, named as such."""
    texts = [{"parts": [{"text": "hi"}], "role": "user"}]
    for key in ({}, {"key": "r1"}, {"id": "r1"}, {"custom_id": "r1"}):
        yield bad(f"Gemini with {key}", key | {"request": {"contents": texts}}, "Gemini's batch format")
        params = {"model": "m", "max_tokens": 9, "messages": MESSAGES}
        yield bad(f"Anthropic with {key}", key | {"params": params}, "Anthropic's batch format")
        model_input = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": MESSAGES}
        yield bad(f"Bedrock with {key}", key | {"recordId": "r1", "modelInput": model_input}, "Bedrock's batch format")


def wrong_envelopes() -> Iterator[BadLine]:
    """Batch lines with a wrong id, method, url or body."""
    for value in ("GET", "post", "PUT", "", 1, True, [], {}):
        yield bad(f"method {value!r}", batch(method=value), "'method' must be POST")
    for value in (
        "",
        "chat/completions",
        "/chat/completions",
        "/v1/messages",
        "/v1/chat",
        "/v2/chat/completions",
        1,
        [],
        {},
        True,
    ):
        yield bad(f"url {value!r}", batch(url=value), "'url' must be one of")
    for value in (
        "https://api.openai.com/v1/chat/completions",
        "http://127.0.0.1:1/v1/chat/completions",
        "//x/v1",
        "https://a:b@c/",
    ):
        yield bad(f"url {value}", batch(url=value), "a full address")
    for value in (None, [], "{}", 1, True, json.dumps(BODIES[CHAT]), MESSAGES):
        yield bad(f"body {json.dumps(value)[:20]}", batch(body=value), "'body' must be an object")
    for gone in ("body",):
        yield bad(
            f"no {gone}", {name: value for name, value in batch().items() if name != gone}, f"'{gone}' is missing"
        )
    for field in ("model", "max_tokens", "temperature", "messages", "stop", "tools", "n", "response_format"):
        body = {name: value for name, value in BODIES[CHAT].items() if name != field} | {"messages": MESSAGES}
        body.pop(field, None)
        yield bad(f"{field} beside the body", batch(body=body or {"x": 1}, **{field: 1}), f"'{field}'")


def wrong_ids() -> Iterator[BadLine]:
    """Ids that cannot be one."""
    for name in ("custom_id", "id"):
        rest = {"method": "POST", "url": CHAT, "body": BODIES[CHAT]}
        for value in (1.5, True, False, [], ["a"], {}, {"a": 1}, 1e30):
            yield bad(f"{name} {json.dumps(value)}", {name: value} | rest, f"'{name}' must be a string")
        for value, words in (("", "empty"), (" ", "blank"), ("\u3000", "blank"), ("a" * 501, "501 characters")):
            yield bad(f"{name} {words}", {name: value} | rest, words)
        for char in ("\n", "\t", "\r", "\0", "\x1b", "\x7f", "\x85", "\x9b"):
            told = f"control character U+{ord(char):04X}"
            yield bad(f"{name} with {told}", {name: f"a{char}b"} | rest, told)
        raw = json.dumps({name: "a\ud800b"} | rest).encode()
        yield BadLine(f"{name} with half of a pair", raw, "half of a surrogate pair")
        yield bad(f"{name} with nothing but a body", {name: 1.5, **BODIES[CHAT]}, f"'{name}' must be a string")
    yield bad("custom_id null", batch(custom_id=None), "'custom_id' is null")
    yield bad("no id", {"method": "POST", "url": CHAT, "body": BODIES[CHAT]}, "'custom_id' is missing")


def wrong_contents() -> Iterator[BadLine]:
    """Bodies whose one needed field is missing or wrong, of every endpoint."""
    for path, body in BODIES.items():
        field = next(iter(body))
        gone = {name: value for name, value in body.items() if name != field}
        yield bad(f"{path} without {field}", batch(path, body=gone), f"'{field}' is missing")
        yield bad(f"{path} with {field} null", batch(path, body={field: None}), f"'{field}' is null")
        for value in (1, 0.5, True, False, {}, {"role": "user"}, *(("hello", "") if field == "messages" else ())):
            yield bad(f"{path} {field}={value!r}", batch(path, body={field: value}), f"'{field}' must be")
        for empty in ([], *(("",) if field != "messages" else ())):
            yield bad(f"{path} {field} empty {empty!r}", batch(path, body={field: empty}), f"'{field}' is empty")
        for other in ("messages", "prompt", "input"):
            if other != field and not (path == RESPONSES and other == "input"):
                yield bad(f"{path} with {other}", batch(path, body={other: "hello"}), f"'{field}' is missing")
    for message in ("hello", None, 1, [], True):
        told = "'messages[1]' must be an object"
        yield bad(f"a message {message!r}", batch(body={"messages": [*MESSAGES, message]}), told)
    for message in ({}, {"content": "hi"}, {"role": None}, {"role": 1, "content": "x"}, {"role": ["user"]}):
        yield bad(f"a message {message!r}", batch(body={"messages": [message]}), "'messages[0].role' must be a string")
    for field in ("prompt", "input"):
        yield bad(f"a bare {field} for chat", {field: "hello"}, f"has '{field}', but the job's endpoint")


def wrong_fields() -> Iterator[BadLine]:
    """Fields that decide about cost or about how the answer comes."""
    limits = {CHAT: "max_tokens", COMPLETIONS: "max_tokens", RESPONSES: "max_output_tokens"}
    for path, name in limits.items():
        for value in (-1, 0.5, "64", True, [], {}, 10**9, 1e3):
            yield bad(f"{path} {name}={value!r}", batch(path, body=BODIES[path] | {name: value}), f"'{name}' must be")
    for value in (-1, "64", 2.5, 10**12):
        told = "'max_completion_tokens' must be"
        yield bad(f"max_completion_tokens={value!r}", batch(body=BODIES[CHAT] | {"max_completion_tokens": value}), told)
    for path in (CHAT, COMPLETIONS):
        for name in ("n", "best_of"):
            for value in (0, -1, "2", 1.5, True, 10**6, []):
                yield bad(
                    f"{path} {name}={value!r}", batch(path, body=BODIES[path] | {name: value}), f"'{name}' must be"
                )
    for path, body in BODIES.items():
        for value in ("", " ", 1, True, [], {}, ["gpt"]):
            yield bad(f"{path} model={value!r}", batch(path, body=body | {"model": value}), "'model' must be a name")
        for value in (1, "yes", "true", [], {}, 0):
            yield bad(f"{path} stream={value!r}", batch(path, body=body | {"stream": value}), "'stream' must be")
    for value in (True, 1, "yes", {}):
        yield bad(
            f"background={value!r}", batch(RESPONSES, body=BODIES[RESPONSES] | {"background": value}), "'background' is"
        )


def client_options() -> Iterator[BadLine]:
    """Credentials, addresses, headers and options of a client, beside the body and in it."""
    for option in sorted(CLIENT_OPTIONS):
        yield bad(f"{option} beside the body", batch(**{option: SECRET}), "not obeyed")
        yield bad(f"{option} in the body", batch(body=BODIES[CHAT] | {option: {"a": SECRET}}), "not obeyed")
        yield bad(f"{option} in a bare body", BODIES[CHAT] | {option: None}, "not obeyed")


def no_text() -> Iterator[BadLine]:
    """Bytes that are no UTF-8, or none of a line."""
    good = line(batch())
    for at in range(0, len(good), 9):
        yield BadLine(f"a byte FF at {at}", good[:at] + b"\xff" + good[at:], f"byte 0xff at column {at + 1}")
    for name, raw in (
        ("Latin-1", '{"messages": [{"role": "user", "content": "caf\u00e9"}]}'.encode("latin-1")),
        ("Windows-1252", '{"messages": [{"role": "user", "content": "\u201chi\u201d"}]}'.encode("cp1252")),
        ("a character cut in two", good[:40] + b"\xe2\x82" + good[40:]),
        ("an overlong slash", good[:40] + b"\xc0\xaf" + good[40:]),
        ("half of a pair in UTF-8", good[:40] + b"\xed\xa0\x80" + good[40:]),
    ):
        yield BadLine(name, raw, "not UTF-8")
    yield BadLine("NUL bytes", b"\0" * 40, "only NUL bytes")
    yield BadLine("a NUL between tokens", b'{"messages"\0: []}', "not JSON")
    yield BadLine("a byte order mark in the middle of the file", b"\xef\xbb\xbf" + good, "byte order mark")


FAMILIES = [
    broken_json,
    too_large_numbers,
    no_objects,
    no_requests,
    other_vendors,
    wrong_envelopes,
    wrong_ids,
    wrong_contents,
    wrong_fields,
    client_options,
    no_text,
]
