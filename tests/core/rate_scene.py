"""A stage for the rate windows: processes at one store, on clocks that only the test moves."""

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from batchrun.core.rate import ASK_AGAIN_S, MINUTE, Grant, Limits, Permit, RateWindows

SPAN_S = MINUTE.span_us / 1e6
DEMAND = [1] * 40  # more than is ever granted at once, unless a test says otherwise


class Scene:
    """Some processes at one store, on clocks that only the test moves."""

    def __init__(
        self,
        open_windows: Callable[["Scene"], RateWindows],
        lose: Callable[[], None],
        run: Callable[[Coroutine[Any, Any, Grant]], Grant],
        save: Callable[[], Callable[[], None]],
    ) -> None:
        """Set it; `save` makes a copy of what the store holds, and returns what puts it back."""
        self.now = 1000.0  # seconds since boot, the same on all hosts
        self.store_ahead_s = 1_790_000_000.0  # what the store's clock shows beyond that; a step changes it
        self._open_windows = open_windows
        self._run = run
        self.lose = lose
        self.save = save

    def store_clock(self) -> float:
        return self.now + self.store_ahead_s

    def process(self, *, is_fresh: bool = False) -> "Process":
        """Start one more process; a fresh one opens the window."""
        process = Process(self._open_windows(self), self._run)
        if is_fresh:
            process.take(Limits(1, 1), [], is_fresh=True)
        return process


@dataclass
class Process:
    windows: RateWindows
    run: Callable[[Coroutine[Any, Any, Grant]], Grant]

    def take(self, limits: Limits, tokens: Sequence[int], *, is_fresh: bool = False) -> Grant:
        return self.run(self.windows.take(limits, tokens, is_fresh=is_fresh))


def most_in_any_window(sends: Sequence[tuple[float, int]], length_s: float = MINUTE.length_s) -> int:
    """Return the most that was sent in any stretch of time; what lies a whole length apart is not in one."""
    inside: deque[tuple[float, int]] = deque()
    most = total = 0
    for at, amount in sorted(sends):
        inside.append((at, amount))
        total += amount
        while inside[0][0] <= at - length_s + 1e-6:
            total -= inside.popleft()[1]
        most = max(most, total)
    return most


def demand(scene: Scene, process: Process, limits: Limits, sizes: Sequence[int], *, until_s: float) -> list[Any]:
    """Send whatever is granted, at once, as long as the demand lasts; return (moment, tokens) of each send."""
    sends, number = [], 0
    while scene.now < until_s:
        ahead = [sizes[(number + place) % len(sizes)] for place in range(len(DEMAND))]
        grant = process.take(limits, ahead)
        sends += [(scene.now, permit.tokens) for permit in grant.permits]
        number += len(grant.permits)
        scene.now += min(grant.wait_s or 0.0, ASK_AGAIN_S)
    return sends


@dataclass
class Sent:
    at: float
    permit: Permit
    process: Process
    tokens: int


MOMENTS = st.floats(0, 5) | st.floats(0, 1.3 * SPAN_S)
STEPS = st.floats(2 * MINUTE.clock_slack_s, 500) | st.floats(-500, -2 * MINUTE.clock_slack_s)


def play_anything(scene: Scene, data: st.DataObject, limits: Limits) -> None:
    """Let three processes ask, send late, give back and correct while clocks step and the store forgets."""
    processes = [scene.process(is_fresh=True) for _ in range(3)]
    sent: list[Sent] = []
    sizes = st.lists(st.integers(0, 1 + (limits.tpm or 1000) // 2), min_size=1, max_size=12)
    actions = ["ask", "ask", "ask", "wait", "wait", "correct", "step", "lose"]
    for action in data.draw(st.lists(st.sampled_from(actions), max_size=40)):
        if action == "wait":
            scene.now += data.draw(MOMENTS)
        elif action == "step":
            scene.store_ahead_s += data.draw(STEPS)
        elif action == "lose":
            scene.lose()
            for process in processes:  # one that has not asked since then has no clock to hold against the store's
                process.take(limits, [])
        elif action == "ask":
            process = data.draw(st.sampled_from(processes))
            permits = process.take(limits, data.draw(sizes)).permits
            used = data.draw(st.integers(0, len(permits)))
            process.windows.give_back(permits[used:])
            late_s = data.draw(st.floats(0, 0.999)) * MINUTE.use_within_s
            sent += [Sent(scene.now + late_s, permit, process, permit.tokens) for permit in permits[:used]]
        elif sent:
            one = data.draw(st.sampled_from(sent))
            if one.tokens == one.permit.tokens:
                one.tokens = data.draw(st.integers(0, one.tokens))
                one.process.windows.correct(one.permit, one.tokens)
    assert most_in_any_window([(one.at, 1) for one in sent]) <= (limits.rpm or len(sent))
    if limits.tpm is not None:
        assert most_in_any_window([(one.at, one.tokens) for one in sent]) <= limits.tpm
