"""The request parser: whole requests from bytes, however they are cut up."""

import pytest

from batchrun.mock.request import MAX_BODY_BYTES, MAX_HEAD_BYTES, BadRequest, Request, RequestParser

SIZED = b"POST /v1/completions?x=1 HTTP/1.1\r\nHost: a\r\nX-Thing:  two words \r\ncontent-LENGTH: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n0a;name=value\r\nlo, worlds\r\n0\r\nTrailer: t\r\n\r\n"
)


def read_all(parser: RequestParser) -> list[Request]:
    return list(iter(parser.read, None))


def test_a_request_is_read_with_its_path_headers_and_body() -> None:
    parser = RequestParser()
    parser.feed(SIZED)
    request = parser.read()
    assert request is not None
    assert (request.method, request.path, request.body) == ("POST", "/v1/completions", b"hello")
    assert request.headers[b"x-thing"] == b"two words"
    assert parser.read() is None


@pytest.mark.parametrize("raw", [SIZED, CHUNKED])
@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 1000])
def test_pieces_of_any_size_give_the_same_requests(raw: bytes, piece_bytes: int) -> None:
    parser, found = RequestParser(), []
    twice = raw * 2
    for start in range(0, len(twice), piece_bytes):
        parser.feed(twice[start : start + piece_bytes])
        found += read_all(parser)
    assert [request.body for request in found] == [b"hello" if raw is SIZED else b"hello, worlds"] * 2


def test_requests_without_a_body_follow_each_other() -> None:
    parser = RequestParser()
    parser.feed(b"GET /health HTTP/1.1\r\n\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n")
    assert [request.path for request in read_all(parser)] == ["/health", "/metrics"]


@pytest.mark.parametrize(
    ("first_line", "header", "is_kept"),
    [
        (b"GET / HTTP/1.1", b"A: b", True),
        (b"GET / HTTP/1.1", b"Connection: Close", False),
        (b"GET / HTTP/1.0", b"A: b", False),
        (b"GET / HTTP/1.0", b"Connection: keep-alive", True),
    ],
)
def test_a_connection_is_kept_as_the_client_wishes(first_line: bytes, header: bytes, is_kept: bool) -> None:
    parser = RequestParser()
    parser.feed(first_line + b"\r\n" + header + b"\r\n\r\n")
    request = parser.read()
    assert request is not None
    assert request.keep_alive is is_kept


def test_an_expectation_is_told_once_and_only_while_the_body_is_missing() -> None:
    parser = RequestParser()
    parser.feed(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
    assert parser.read() is None
    assert [parser.take_expectation(), parser.take_expectation()] == [True, False]
    parser.feed(b"body")
    assert parser.read() is not None
    assert not parser.take_expectation()


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1_0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * MAX_HEAD_BYTES, 431),
    ],
)
def test_bytes_that_are_no_request_are_refused(raw: bytes, status: int) -> None:
    parser = RequestParser()
    parser.feed(raw)
    with pytest.raises(BadRequest) as caught:
        read_all(parser)
    assert caught.value.status == status
