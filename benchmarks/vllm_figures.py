"""A recorded trace of streamed answers, and what `vllm bench serve`'s own code makes of it: the golden file of a test.

    python -m benchmarks.vllm_figures record http://127.0.0.1:8011/v1 MODEL    records a server (a Python with aiohttp)
    python benchmarks/vllm_figures.py judge                                    adds vLLM's figures (a Python with vllm)

Made by hand, when vLLM's definitions change; the files lie in tests/core/measuring. Both clients are fed the same bytes
at the same times by a clock that a test moves: nothing is measured here.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

TRACE = Path(__file__).parents[1] / "tests" / "core" / "measuring" / "vllm_trace.json"
FIGURES = TRACE.with_name("vllm_figures.json")
PATHS = ("/v1/chat/completions", "/v1/completions")
TOKENS = (1, 2, 5, 9, 14, 20)
AT_ONCE = 3
TARGETS = {"ttft": 300.0, "tpot": 60.0, "e2el": 850.0}
PERCENTILES = [50.0, 90.0, 95.0, 99.0]


async def record(base_url: str, model: str) -> None:
    """Record the reads of some streamed answers: milliseconds since the send, and the bytes."""
    import aiohttp

    began = time.monotonic()
    slots = asyncio.Semaphore(AT_ONCE)
    found: list[dict[str, Any]] = []

    async def ask(session: aiohttp.ClientSession, path: str, number: int, tokens: int) -> None:
        text = f"{number} and some words of a prompt, to be gone on with"
        asked = {"messages": [{"role": "user", "content": text}]} if "chat" in path else {"prompt": text}
        wish = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, "max_tokens": tokens}
        async with slots:
            sent = time.monotonic()
            reads = []
            url = base_url.removesuffix("/v1") + path
            async with session.post(url, json={"model": model, **asked, **wish}) as response:
                async for piece in response.content.iter_any():
                    reads.append([round((time.monotonic() - sent) * 1e3, 3), piece.decode()])
            found.append({"path": path, "sent_s": round(sent - began, 6), "reads": reads})

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(
            *(ask(session, path, number, tokens) for path in PATHS for number, tokens in enumerate(TOKENS))
        )
    found.append({"path": PATHS[0], "sent_s": 0.3, "reads": []})  # one that is refused at once
    TRACE.write_text(json.dumps({"model": model, "requests": found}, indent=0) + "\n")


def judge() -> None:
    """Run vLLM's client and its metrics over the trace."""
    import vllm
    from vllm.benchmarks import serve
    from vllm.benchmarks.lib import endpoint_request_func as client

    trace = json.loads(TRACE.read_text())
    figures: dict[str, Any] = {"vllm": vllm.__version__, "targets": TARGETS, "paths": {}}
    asks = {PATHS[0]: client.async_request_openai_chat_completions, PATHS[1]: client.async_request_openai_completions}
    for path, ask in asks.items():
        outputs = []
        for one in trace["requests"]:
            if one["path"] == path:
                clock = [one["sent_s"]]
                wanted = client.RequestFuncInput("x", f"http://h{path}", 1, 1, trace["model"])
                with mock.patch.object(client.time, "perf_counter", lambda clock=clock: clock[0]):
                    outputs.append(asyncio.run(ask(wanted, Replay(one, clock))))
        duration_s = max(one.start_time + one.latency for one in outputs if one.success) - min(
            one.start_time for one in outputs
        )
        metrics, lengths = serve.calculate_metrics([], outputs, duration_s, None, PERCENTILES, dict(TARGETS))
        told = {name: value for name, value in vars(metrics).items() if not name.startswith("max_") and name != "rtfx"}
        figures["paths"][path] = {**told, "output_lens": lengths, "duration": duration_s}
    FIGURES.write_text(json.dumps(figures, indent=1, default=float) + "\n")


class Replay:
    """Plays aiohttp's session: the bytes of one recorded answer, each read at its time."""

    def __init__(self, recorded: dict[str, Any], clock: list[float]) -> None:
        self._recorded, self._clock = recorded, clock
        self.status = 200 if recorded["reads"] else 500
        self.reason = "refused"
        self.content = self

    def post(self, **asked: Any) -> "Replay":
        return self

    async def __aenter__(self) -> "Replay":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def iter_any(self) -> AsyncIterator[bytes]:
        for at_ms, text in self._recorded["reads"]:
            self._clock[0] = self._recorded["sent_s"] + at_ms / 1e3
            yield text.encode()


if __name__ == "__main__":
    if sys.argv[1] == "record":
        asyncio.run(record(sys.argv[2], sys.argv[3]))
    else:
        judge()
