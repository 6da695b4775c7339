"""Every fault on the wire that is known, in one table: what an endpoint sends, and the one outcome that comes of it."""

import gzip
import json
import re
import zlib
from typing import Any

import pytest

from batchrun.core.states import AttemptState
from batchrun.endpoint.classify import Profile, classify
from batchrun.endpoint.mask import Mask
from tests.endpoint.replies import PAGE, chat, error, flat, row
from tests.endpoint.scripted import ANSWER, PATH, Wire, exchange_with, reply

KEY = "sk-Wq83nVzL0pTr5KyB"
MASK = Mask(KEY)
NO_PYTHON = re.compile(r"Connection error\.|Traceback|0x[0-9a-f]{6}|\b\w+Error\b|\bb'|\\x|<class|\(\)|None")
OK = "answered - item certain"
LOST, CUT = "unknown connection_lost item possible", "unknown cut_body item possible"
BAD, HTML = "unusable bad_json item possible", "unusable html item possible"
USELESS, WORKED = "unusable no_choices item possible", "unusable no_choices item certain"
DOUBT, REDIRECT = "unknown gateway_error item possible", "refused redirect everyone none"


def js(value: object, **how: Any) -> bytes:
    return reply(json.dumps(value).encode(), **how)


def coded(body: bytes, coding: str) -> bytes:
    return reply(body, headers=f"Content-Encoding: {coding}\r\n")


def chunked(*pieces: bytes, end: bytes = b"0\r\n\r\n", head: str = "") -> bytes:
    start = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{head}Transfer-Encoding: chunked\r\n\r\n".encode()
    return start + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + end


def head(*lines: str, status: str = "HTTP/1.1 200 OK", body: bytes = ANSWER) -> bytes:
    return "\r\n".join([status, *lines, "", ""]).encode("latin-1") + body


def err(status: str, value: object, headers: str = "") -> bytes:
    return js(value, status=status, headers=headers)


def choice(**changes: object) -> bytes:
    body = chat()
    body["choices"][0] |= changes
    return js(body)


LENGTH = f"Content-Length: {len(ANSWER)}"
DEEP = b"[" * 100_000 + b"]" * 100_000

# name: what is sent before the connection is closed, and what comes of it
TABLE: dict[str, tuple[bytes, str]] = {
    # the head
    "nothing": (b"", LOST),
    "half a status line": (b"HTTP/1.1 20", LOST),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-Type: appl", LOST),
    "a head without its end": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", LOST),
    "a body without a head": (ANSWER, LOST),
    "a page without a head": (PAGE.encode(), LOST),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", LOST),
    "a mail server": (b"220 mail.example.org ESMTP\r\n", LOST),
    "a TLS alert": (b"\x15\x03\x01\x00\x02\x02\x46", LOST),
    "HTTP/2": (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", LOST),
    "NUL bytes": (b"\x00" * 64, LOST),
    "a status that is no number": (head(LENGTH, status="HTTP/1.1 OK 200"), LOST),
    "a status of two digits": (head(LENGTH, status="HTTP/1.1 99 Odd"), LOST),
    "a status of four digits": (head(LENGTH, status="HTTP/1.1 2000 Odd"), LOST),
    "status 999": (head(LENGTH, status="HTTP/1.1 999 Odd"), DOUBT),
    "status 600": (head(LENGTH, status="HTTP/1.1 600 Odd"), DOUBT),
    "no reason phrase": (head(LENGTH, status="HTTP/1.1 200 "), OK),
    "the key as reason phrase": (err(f"400 {KEY}", error("no")), "refused bad_request item none"),
    "HTTP/1.0 without a length": (head("Content-Type: application/json", status="HTTP/1.0 200 OK"), OK),
    "HTTP/1.0, cut": (head(status="HTTP/1.0 200 OK", body=ANSWER[:60]), CUT),
    "a header line without a colon": (head("what is this", LENGTH), LOST),
    "a refusal that ends with its connection": (
        b'HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n\r\n{"error": {"mess',
        DOUBT,
    ),
    "a header with a NUL": (head("X-Odd: a\x00z", LENGTH), LOST),
    "a header of 100 kB": (head("X-Odd: " + "a" * 100_000, LENGTH), LOST),
    "200 headers": (head(*[f"X-{number}: {number}" for number in range(200)], LENGTH), LOST),
    "bare line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 3\n\n{} ", USELESS),
    # lengths
    "no body where one is promised": (head(LENGTH, body=b""), CUT),
    "fewer bytes than promised": (reply(length=len(ANSWER) + 50), CUT),
    "more bytes than promised": (reply(length=len(ANSWER) - 40), LOST),
    "an error, fewer bytes than promised": (err("400 Bad", error("no"))[:-5], CUT),
    "a 429, fewer bytes than promised": (err("429 Slow", error("no"))[:-5], CUT),
    "two different lengths": (head(LENGTH, "Content-Length: 7"), LOST),
    "a negative length": (head("Content-Length: -5"), LOST),
    "a length in words": (head("Content-Length: many"), LOST),
    "a length of 30 digits": (head("Content-Length: " + "9" * 30), LOST),
    "a length and chunks": (chunked(ANSWER, head=LENGTH + "\r\n"), LOST),
    # chunks
    "one chunk": (chunked(ANSWER), OK),
    "many chunks": (chunked(*[ANSWER[at : at + 7] for at in range(0, len(ANSWER), 7)]), OK),
    "chunks without an end": (chunked(ANSWER, end=b""), CUT),
    "chunks with half an end": (chunked(ANSWER, end=b"0\r\n"), CUT),
    "a chunk that breaks off": (chunked(end=b"40\r\n" + ANSWER[:9]), CUT),
    "a chunk without a size": (chunked(end=b"\r\n" + ANSWER), LOST),
    "a chunk with a size in words": (chunked(end=b"many\r\n" + ANSWER), LOST),
    "a chunk of 16 exabytes": (chunked(end=b"f" * 16 + b"\r\n" + ANSWER), CUT),
    "a chunk with a negative size": (chunked(end=b"-5\r\n" + ANSWER), LOST),
    # codings
    "gzip": (coded(gzip.compress(ANSWER), "gzip"), OK),
    "gzip twice": (coded(gzip.compress(gzip.compress(ANSWER)), "gzip, gzip"), OK),
    "gzip that is none": (coded(ANSWER, "gzip"), BAD),
    "gzip that breaks off": (coded(gzip.compress(ANSWER)[:-30], "gzip"), CUT),
    "gzip without its label": (reply(gzip.compress(ANSWER)), BAD),
    "deflate": (coded(zlib.compress(ANSWER), "deflate"), OK),
    "deflate that is none": (coded(ANSWER, "deflate"), BAD),
    "br": (coded(b"\x0b\x02\x80{}\x03", "br"), BAD),
    "br that is none": (coded(ANSWER, "br"), BAD),
    "a coding nobody knows": (coded(ANSWER, "rot13"), BAD),
    "identity": (coded(ANSWER, "identity"), OK),
    "an error labelled gzip": (
        err("500 Oops", error("no"), "Content-Encoding: gzip\r\n"),
        "refused server_error item none",
    ),
    # interim and other statuses
    "100 before the answer": (b"HTTP/1.1 100 Continue\r\n\r\n" + reply(), OK),
    "103 before the answer": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + reply(), OK),
    "100 and nothing more": (b"HTTP/1.1 100 Continue\r\n\r\n", LOST),
    "101": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", DOUBT),
    "201": (reply(status="201 Created"), OK),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", BAD),
    "205": (b"HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", BAD),
    "301": (reply(b"", status="301 Moved", headers="Location: https://a.example/v1\r\n"), REDIRECT),
    "302": (reply(PAGE.encode(), status="302 Found", headers="Location: /login\r\n"), REDIRECT),
    "303": (reply(b"", status="303 See Other", headers="Location: /v2\r\n"), REDIRECT),
    "307": (reply(b"", status="307 Temporary", headers="Location: //b.example/\r\n"), REDIRECT),
    "308 to nowhere": (reply(b"", status="308 Permanent"), REDIRECT),
    "300": (reply(b"{}", status="300 Choices"), REDIRECT),
    "304": (b"HTTP/1.1 304 Not Modified\r\n\r\n", REDIRECT),
    # bodies
    "an empty body": (reply(b""), CUT),
    "white space": (reply(b" \r\n\t "), CUT),
    "a cut body with a true length": (reply(ANSWER[:-9]), CUT),
    "a byte order mark": (reply(b"\xef\xbb\xbf" + ANSWER), OK),
    "UTF-16": (reply(ANSWER.decode().encode("utf-16")), BAD),
    "Latin-1": (reply(ANSWER.replace(b"hello", b"h\xe9llo")), BAD),
    "a NUL behind the answer": (reply(ANSWER + b"\x00"), BAD),
    "a NUL in the answer": (reply(ANSWER.replace(b"hello", b"he\\u0000llo")), OK),
    "a lone surrogate": (reply(ANSWER.replace(b"hello", b"\\ud800")), OK),
    "two answers": (reply(ANSWER + b"\n" + ANSWER), BAD),
    "NaN": (reply(ANSWER.replace(b"10", b"NaN")), BAD),
    "Infinity": (reply(ANSWER.replace(b"10", b"Infinity")), BAD),
    "deep nesting": (reply(DEEP), BAD),
    "one key twice": (reply(ANSWER[:-1] + b', "id": "c-2"}'), OK),
    "null": (reply(b"null"), USELESS),
    "true": (reply(b"true"), USELESS),
    "a number": (reply(b"42"), USELESS),
    "a text": (reply(b'"hello"'), USELESS),
    "a list": (reply(b"[]"), USELESS),
    "an empty object": (reply(b"{}"), USELESS),
    "a page": (reply(PAGE.encode()), HTML),
    "XML": (reply(b"<?xml version='1.0'?><error>no</error>"), BAD),
    "plain text": (reply(b"upstream is busy"), BAD),
    "a stream of events": (reply(b'data: {"choices": []}\n\ndata: [DONE]\n\n'), BAD),
    "a stream that begins with a comment": (reply(b": ping\n\ndata: {}\n\n"), BAD),
    # wrong types in the answer
    "choices null": (js({**chat(), "choices": None}), WORKED),
    "no choices": (js({**chat(), "choices": []}), WORKED),
    "choices an object": (js({**chat(), "choices": {"0": 1}}), WORKED),
    "a choice that is null": (js({**chat(), "choices": [None]}), WORKED),
    "a message that is a list": (choice(message=["hello"]), WORKED),
    "a content that is a number": (js(chat(42)), WORKED),
    "tool calls in words": (js(chat(None, tool_calls="f()")), WORKED),
    "usage in words": (js({**chat(), "usage": "10 tokens"}), OK),
    "negative usage": (js(chat(usage={"prompt_tokens": -1, "completion_tokens": 5})), OK),
    "usage null": (js(chat(usage=None)), OK),
    "an id that is a number": (js({**chat(), "id": 7}), OK),
    "no content but tool calls": (js(chat(None, tool_calls=[{"id": "t", "function": {"name": "f"}}])), OK),
    "neither content nor tool calls": (js(chat(None)), OK),
    "cut by its limit": (js(chat(finish="length")), OK),
    "cut by a filter": (js(chat("", finish="content_filter")), OK),
    "no finish reason": (js(chat(finish=None)), OK),
    "an odd finish reason": (js(chat(finish=["stop"])), OK),
    "ended in an error": (js(chat(finish="error")), "unusable error_in_answer item certain"),
    "broken off by the server": (js(chat("ha", finish="abort")), "unusable error_in_answer item certain"),
    # errors, as different servers spell them
    "OpenAI 400": (err("400 Bad", error("bad", kind="invalid_request_error")), "refused bad_request item none"),
    "vLLM 400": (err("400 Bad", flat("bad")), "refused bad_request item none"),
    "Anthropic 529": (
        err("529 Busy", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        "refused overloaded item none",
    ),
    "llama.cpp 503": (
        err("503 Busy", error("Loading model", kind="unavailable_error", code=503)),
        "refused overloaded throttle none",
    ),
    "TGI 422": (
        err("422 No", {"error": "Input validation error", "error_type": "validation"}),
        "refused bad_request item none",
    ),
    "TGI 429": (
        err("429 Slow", {"error": "Model is overloaded", "error_type": "overloaded"}),
        "refused rate_limited throttle none",
    ),
    "Azure 404": (err("404 No", error("x", code="DeploymentNotFound")), "refused model_not_found everyone none"),
    "Azure filter": (err("400 Bad", error("x", code="content_filter")), "refused content_filter item possible"),
    "Gemini 429": (
        err("429 Slow", [error("Resource has been exhausted (e.g. check quota).")]),
        "refused rate_limited throttle none",
    ),
    "FastAPI 422": (
        err("422 No", {"detail": [{"loc": ["body"], "msg": "Field required"}]}),
        "refused bad_request item none",
    ),
    "FastAPI 404": (err("404 No", {"detail": "Not Found"}), "refused route_not_found everyone none"),
    "OpenAI quota": (err("429 Slow", error("x", code="insufficient_quota")), "refused quota everyone none"),
    "credit trouble that is none": (
        err("429 Slow", error("Rate limit reached. Add credits to raise it.", code="rate_limit_exceeded")),
        "refused rate_limited throttle none",
    ),
    "OpenRouter 402": (err("402 Pay", error("Insufficient credits", code=402)), "refused quota everyone none"),
    "a wrong key": (err("401 No", error(f"Incorrect API key: {KEY}")), "refused auth everyone none"),
    "forbidden": (err("403 No", error("no access")), "refused forbidden everyone none"),
    "a prompt too long": (
        err("400 Bad", error("maximum context length is 8 tokens")),
        "refused context_length item none",
    ),
    "a page under 413": (reply(PAGE.encode(), status="413 Large"), "refused too_large item none"),
    "a JSON 500": (err("500 Oops", error("boom")), "refused server_error item none"),
    "a page under 500": (reply(PAGE.encode(), status="500 Oops"), DOUBT),
    "cut JSON under 500": (reply(b'{"error": {"mess', status="500 Oops"), DOUBT),
    "an answer under 500": (reply(status="500 Oops"), DOUBT),
    "a JSON 502": (err("502 Oops", error("boom")), DOUBT),
    "a page under 503": (reply(PAGE.encode(), status="503 Busy"), DOUBT),
    "a page under 503 with Retry-After": (
        reply(PAGE.encode(), status="503 Busy", headers="Retry-After: 2\r\n"),
        "refused overloaded throttle none after 2 s",
    ),
    "504": (err("504 Late", error("boom")), DOUBT),
    "408": (err("408 Late", error("boom")), DOUBT),
    "524": (reply(PAGE.encode(), status="524 Late"), DOUBT),
    "an error object under 200": (js(error("boom", code=500)), "unusable error_in_answer item possible"),
    "a 429 under 200": (js(error("slow", code=429)), "refused rate_limited throttle none"),
    "an error beside an answer": (js({**chat(), **error("boom", code=429)}), "unusable error_in_answer item certain"),
}


@pytest.mark.parametrize("name", TABLE)
def test_whatever_is_on_the_wire_makes_one_outcome_and_is_sent_once(name: str) -> None:
    sent, expected = TABLE[name]

    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.send(sent)

    exchange, server = exchange_with(handler, key=KEY)
    assert len(server.requests) == 1
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    found = classify(exchange, path=PATH, profile=Profile(), mask=MASK)
    assert row(found) == expected, found.message
    assert (found.message is None) == (found.outcome is AttemptState.ANSWERED)
    assert not NO_PYTHON.search(found.message or ""), found.message
    assert KEY[:6] not in str(found)


def test_the_table_has_every_kind_of_outcome() -> None:
    assert len(TABLE) > 120
    outcomes = {expected.split()[0] for _, expected in TABLE.values()}
    assert outcomes == {"answered", "unusable", "refused", "unknown"}
