"""The wish for an answer in pieces."""

import json

from batchrun.core.streaming import in_pieces

WISH = {"stream": True, "stream_options": {"include_usage": True}}


def test_a_request_gets_the_wish_and_keeps_the_rest() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": 'what is a "stream"?'}]}
    sent = in_pieces("/v1/chat/completions", json.dumps(body, separators=(",", ":")).encode())
    assert json.loads(sent) == body | WISH


def test_a_wish_that_is_there_stands_once() -> None:
    body = b'{"model":"m","prompt":"x","stream":false,"stream_options":{"continuous":1}}'
    sent = in_pieces("/v1/completions", body)
    assert sent.count(b'"stream"') == 1
    assert json.loads(sent) == {"model": "m", "prompt": "x", "stream": True,
                                "stream_options": {"continuous": 1, "include_usage": True}}  # fmt: skip


def test_what_is_not_answered_in_chunks_is_left_alone() -> None:
    assert in_pieces("/v1/embeddings", b'{"input":"x"}') == b'{"input":"x"}'


def test_a_response_is_asked_for_in_pieces_without_an_option_that_its_path_does_not_know() -> None:
    for body in (b'{"input":"x"}', b'{"input":"x","stream":false}'):
        assert json.loads(in_pieces("/v1/responses", body)) == {"input": "x", "stream": True}
