"""One exchange: a request from its arrival to its end on the wire."""

from asyncio import TimerHandle
from collections.abc import Callable
from typing import Protocol

from batchrun.mock.endpoint import Endpoint
from batchrun.mock.faults import Fault
from batchrun.mock.plan import Arrival, Plan, Stream, Work
from batchrun.mock.playback import Playback
from batchrun.mock.response import render_head

DRIP_PIECES = 16


class Line(Protocol):
    """The connection, as far as an exchange needs it."""

    def send(self, data: bytes) -> None:
        """Hand bytes to the kernel, or queue them."""

    def finish(self, keep_alive: bool) -> None:
        """Go on with the next request, or close: the exchange is over."""

    def reset(self) -> None:
        """Break the connection off with an RST."""


class Exchange:
    """Carry out the plan for one request; every exchange ends once, with one outcome."""

    def __init__(self, endpoint: Endpoint, line: Line, arrival: Arrival, plan: Plan) -> None:
        self._endpoint = endpoint
        self._line = line
        self._arrival = arrival
        self._plan = plan
        self._timer: TimerHandle | None = None
        self._playback: Playback | None = None
        self._stretch = 1.0  # how many times as long it takes
        self._asked_at = 0.0  # for a slot, on the loop's clock
        self.is_hung = False  # its work is done and its answer will never come

    def begin(self) -> None:
        """Answer at once if there is nothing to do, else ask for a slot."""
        if self._plan.work is None:
            self._send_whole()
            self._end("answered")
        else:
            self._asked_at = self._endpoint.loop.time()
            self._endpoint.slots.enter(self)

    def start(self) -> None:
        """Do the work: the request has its slot."""
        work, stream, fault = self._plan.work, self._plan.stream, self._plan.fault
        assert work is not None
        self._endpoint.stats.count_slot(self._endpoint.loop.time() - self._asked_at)
        self._stretch = self._endpoint.slots.stretch
        if stream is None or fault in (Fault.HANG, Fault.RESET):
            self._after(work.duration_s * self._stretch, lambda: self._deliver(work))
        else:
            self._after(work.pace.ttft_s * self._stretch, lambda: self._deliver_stream(work, stream))

    def abandon(self, outcome: str) -> None:
        """End before the plan is carried out; a hung exchange is called hung, whatever ends it.

        What is billed is done all the same, and kept.
        """
        self._leave()
        self._endpoint.memory.keep(self._arrival, self._plan)
        self._endpoint.see_out(self._arrival, "hung" if self.is_hung else outcome)

    def _after(self, delay_s: float, step: Callable[[], None]) -> None:
        if delay_s > 0.0:
            self._timer = self._endpoint.loop.call_later(delay_s, step)
        else:
            step()

    def _deliver(self, work: Work) -> None:
        """Send a whole answer, or what its fault makes of it: the work is done."""
        self._count_service(work)
        fault, body = self._plan.fault, self._plan.body
        if fault is Fault.HANG:
            self.is_hung = True
            self._leave()
        elif fault is Fault.RESET:
            self._end("reset")
        elif fault is Fault.CUT:
            self._line.send(self._render_head() + body[: len(body) // 2])
            self._end("cut")
        elif fault is Fault.DRIP:
            interval_s = self._endpoint.config.drip_s / DRIP_PIECES
            self._play(_split(body, DRIP_PIECES), interval_s, lambda: self._end("answered"))
        else:
            self._send_whole()
            self._end("answered")

    def _deliver_stream(self, work: Work, stream: Stream) -> None:
        """Send the stream, or the first half of it if it is to be cut."""
        interval_s = work.pace.itl_s * self._stretch
        is_cut = self._plan.fault is Fault.CUT
        if self._plan.fault is Fault.DRIP:
            interval_s += self._endpoint.config.drip_s / stream.count

        def end() -> None:
            self._count_service(work)
            self._end("cut" if is_cut else "answered")

        self._play(Stream(stream.pieces, stream.count // 2) if is_cut else stream, interval_s, end)

    def _play(self, stream: Stream, interval_s: float, on_end: Callable[[], None]) -> None:
        loop, send = self._endpoint.loop, self._line.send
        self._playback = Playback(loop, stream, interval_s=interval_s, send=send, on_end=on_end)
        self._playback.play(self._render_head())

    def _send_whole(self) -> None:
        body = b"" if self._arrival.request.method == "HEAD" else self._plan.body
        self._line.send(self._render_head() + body)

    def _render_head(self) -> bytes:
        plan = self._plan
        length = len(plan.body) if plan.stream is None else None
        extra = plan.extra_head if self._arrival.request.keep_alive else plan.extra_head + b"Connection: close\r\n"
        return render_head(plan.status, plan.content_type, length=length, request_no=self._arrival.no, extra=extra)

    def _count_service(self, work: Work) -> None:
        self._endpoint.stats.count_service(work, self._stretch)
        self._endpoint.memory.keep(self._arrival, self._plan)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._playback is not None:
            self._playback.stop()
        if self._plan.work is not None:
            self._endpoint.slots.leave(self)

    def _end(self, outcome: str) -> None:
        self._leave()
        self._endpoint.see_out(self._arrival, outcome)
        if outcome == "reset":
            self._line.reset()
        else:
            self._line.finish(outcome == "answered" and self._arrival.request.keep_alive)


def _split(body: bytes, count: int) -> Stream:
    size = -(-len(body) // count) or 1
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return Stream(iter(pieces), len(pieces))
