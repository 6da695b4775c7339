"""Where the time of a request goes, on runs whose times are arithmetic."""

import pytest

from batchrun.core.measuring.document import Series
from batchrun.core.measuring.layers import (
    DECODE,
    PREFILL,
    QUEUE,
    SERVER_QUEUE,
    TAIL,
    WAY,
    WHOLE,
    growth,
    layers_of,
)
from batchrun.core.measuring.timings import Measured
from batchrun.core.states import AttemptState


def answered(**changes: object) -> Measured:
    values: dict[str, object] = {
        "name": "a", "outcome": AttemptState.ANSWERED, "due_s": 0.0, "sent_s": 0.1, "first_chunk_s": 0.5,
        "first_token_s": 0.5, "last_token_s": 1.5, "ended_s": 1.6, "output_tokens": 11, **changes,
    }  # fmt: skip
    return Measured(**values)  # type: ignore[arg-type]


def told(**counters: tuple[float, ...]) -> dict[str, Series]:
    return {f"server.{name}": Series("s", tuple(map(float, range(len(v)))), v) for name, v in counters.items()}


def means(requests: list[Measured], observations: dict[str, Series] | None = None) -> dict[str, float]:
    return {one.name: round(one.mean_s, 6) for one in layers_of(requests, observations)}


def test_the_layers_add_up_to_the_whole() -> None:
    found = layers_of([answered()])
    assert {one.name: pytest.approx(one.mean_s) for one in found} == {QUEUE: 0.1, WAY: 0.4, DECODE: 1.0, TAIL: 0.1}
    assert sum(one.mean_s for one in found) == pytest.approx(1.6)
    assert sum(one.share for one in found) == pytest.approx(1)


def test_a_server_that_tells_its_queue_and_prefill_divides_the_time_to_the_first_token() -> None:
    seen = told(queue_s=(5.0, 5.5), queue_count=(10.0, 15.0), prefill_s=(1.0, 2.0), prefill_count=(10.0, 15.0))
    assert means([answered()], seen) == {QUEUE: 0.1, SERVER_QUEUE: 0.1, PREFILL: 0.2, WAY: 0.1, DECODE: 1.0, TAIL: 0.1}


def test_a_server_that_tells_more_than_there_was_keeps_its_proportion() -> None:
    seen = told(queue_s=(0.0, 6.0), queue_count=(0.0, 1.0), prefill_s=(0.0, 2.0), prefill_count=(0.0, 1.0))
    assert means([answered()], seen) == {QUEUE: 0.1, SERVER_QUEUE: 0.3, PREFILL: 0.1, DECODE: 1.0, TAIL: 0.1}


def test_without_streaming_the_request_is_one_layer() -> None:
    whole = answered(first_token_s=None, last_token_s=None)
    assert means([whole]) == {QUEUE: 0.1, WHOLE: 1.5}
    assert layers_of([answered(outcome=AttemptState.REFUSED)]) == ()


def test_a_counter_grows_over_gaps_and_restarts() -> None:
    seen = {"c": Series("", (0, 1, 2, 3), (10.0, None, 14.0, 3.0))}
    assert (growth(seen, "c"), growth(seen, "d")) == (7.0, None)
    assert growth({"c": Series("", (0,), (4.0,))}, "c") is None
