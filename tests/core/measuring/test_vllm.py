"""A recorded trace, byte for byte, through our reader and our formulas: the figures of `vllm bench serve` for the same.

The trace is of a real vLLM; the golden file is what vLLM's own client and `calculate_metrics` made of it, with its
version (benchmarks/vllm_figures.py). Where a server's chunk that only says the role comes in a read of its own, vLLM's
chat client takes it for the first token and we do not: that difference is known, and asserted.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from batchrun.core.measuring.document import Measurement
from batchrun.core.measuring.figures import answered_only
from batchrun.core.measuring.targets import Targets
from batchrun.core.measuring.timings import Measured
from batchrun.core.measuring.trace import Trace
from batchrun.core.measuring.vllm_result import vllm_result
from batchrun.core.states import AttemptState
from batchrun.endpoint import stream as stream_module
from batchrun.endpoint.stream import Stream
from tests.core.measuring.test_document import make_measurement, make_run
from tests.core.measuring.traces import failed

HERE = Path(__file__).parent
TRACE = json.loads((HERE / "vllm_trace.json").read_text())
GOLDEN = json.loads((HERE / "vllm_figures.json").read_text())
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def read(recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Read one recorded answer by a clock that says when each of its reads came."""
    sent_s = recorded["sent_s"]
    if not recorded["reads"]:
        return failed(1, sent_s=sent_s)
    stream = Stream(sent_s)
    for at_ms, text in recorded["reads"]:
        monkeypatch.setattr(stream_module, "monotonic", lambda now_s=sent_s + at_ms / 1e3: now_s)
        stream.feed(text.encode())
    assert stream.is_whole
    usage = json.loads(stream.body())["usage"]
    kept = stream.trace()
    assert kept is not None
    trace = Trace.unpack(kept.pack())
    assert trace.first_token_s is not None
    assert trace.last_token_s is not None
    return Measured(
        name="r",
        outcome=AttemptState.ANSWERED,
        sent_s=sent_s,
        first_chunk_s=sent_s + trace.first_chunk_s,
        first_token_s=sent_s + trace.first_token_s,
        gaps_s=trace.gaps_s,
        last_token_s=sent_s + trace.last_token_s,
        ended_s=sent_s + trace.last_token_s,
        prompt_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
    )


def ours(path: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Measured], dict[str, Any]]:
    requests = [read(one, monkeypatch) for one in TRACE["requests"] if one["path"] == path]
    measurement: Measurement = make_measurement(make_run(1, requests))
    result = vllm_result(measurement, measurement.runs[0])
    figures = answered_only(requests, targets=Targets(**GOLDEN["targets"]))
    return requests, result | {"request_goodput": figures.goodput, "duration": figures.duration_s}


def flat(golden: dict[str, Any]) -> dict[str, float]:
    """Return vLLM's figures under the names of its result file."""
    found = {name: value for name, value in golden.items() if isinstance(value, int | float)}
    for name in ("ttft", "tpot", "itl", "e2el"):
        found |= {f"p{p:g}_{name}_ms": value for p, value in golden[f"percentiles_{name}_ms"]}
    found["total_input_tokens"] = found.pop("total_input")
    found["total_output_tokens"] = found.pop("total_output")
    return found


def test_every_figure_of_a_recorded_trace_is_vllms_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _, result = ours(TEXT, monkeypatch)
    golden = flat(GOLDEN["paths"][TEXT])
    assert golden.keys() <= result.keys()
    assert len(golden) > 30
    for name, value in golden.items():
        assert result[name] == pytest.approx(value, rel=1e-4, abs=2e-3), name  # the trace keeps microseconds
    assert result["output_lens"] == GOLDEN["paths"][TEXT]["output_lens"]


def test_of_chat_it_is_all_but_what_a_role_says(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, result = ours(CHAT, monkeypatch)
    golden = flat(GOLDEN["paths"][CHAT])
    for name, value in golden.items():
        if name.rpartition("_")[0].endswith("e2el") or "throughput" in name or "total" in name:
            assert result[name] == pytest.approx(value, rel=1e-4, abs=2e-3), name
    apart_ms = [1e3 * ((one.first_token_s or 0.0) - (one.first_chunk_s or 0.0)) for one in requests if one.is_answered]
    mean_apart_ms = sum(apart_ms) / len(apart_ms)
    assert result["mean_ttft_ms"] - golden["mean_ttft_ms"] == pytest.approx(mean_apart_ms, abs=0.01)


def test_failures_and_single_tokens_are_in_the_trace() -> None:
    assert GOLDEN["paths"][CHAT]["failed"] == 1
    assert 1 in GOLDEN["paths"][TEXT]["output_lens"]
    assert 0 < GOLDEN["paths"][TEXT]["request_goodput"] < GOLDEN["paths"][TEXT]["request_throughput"]
    assert GOLDEN["vllm"].startswith("0.")
