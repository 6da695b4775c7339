"""Measurements made of arithmetic: a server with so many slots, its queue, prefill and decode, without chance."""

from collections.abc import Mapping, Sequence
from math import sin

from batchrun.core.measuring.document import Arrivals, Group, Measurement, Run, Series, Setup, Workload
from batchrun.core.measuring.figures import figures_of
from batchrun.core.measuring.timings import Measured
from batchrun.core.states import AttemptState

MADE_AT = "2026-11-30T10:00:00.000Z"


def run_of(
    *,
    group: str = "A",
    level: int = 4,
    round_no: int = 1,
    requests: int = 40,
    slots: int = 8,
    prefill_s: float = 0.08,
    token_s: float = 0.01,
    tokens: int = 50,
    speed: float = 1.0,
    failed: Mapping[int, str] | None = None,
    observations: Mapping[str, Series] | None = None,
    warnings: Sequence[str] = (),
) -> Run:
    """Make a run of a closed loop: a slot of the client sends when it is free, a slot of the server serves one."""
    client, server = [0.0] * level, [0.0] * slots
    made = []
    for number in range(requests):
        lane = client.index(min(client))
        due_s = client[lane]
        sent_s = due_s + 0.001
        place = server.index(min(server))
        wobble = 1 + 0.2 * sin(number * 1.7 + round_no)
        token_s_now = token_s * wobble / speed
        start_s = max(sent_s, server[place])
        first_s = start_s + prefill_s * wobble / speed
        last_s = first_s + token_s_now * (tokens - 1)
        cause = (failed or {}).get(number)
        if cause:
            made.append(
                Measured(
                    name=f"r{number:03d}", outcome=AttemptState.REFUSED, due_s=due_s, sent_s=sent_s, first_chunk_s=None,
                    first_token_s=None, ended_s=sent_s + 0.01, cause=cause,
                )
            )  # fmt: skip
            client[lane] = sent_s + 0.01
            continue
        server[place] = client[lane] = last_s
        made.append(
            Measured(
                name=f"r{number:03d}", outcome=AttemptState.ANSWERED, due_s=due_s, sent_s=sent_s,
                first_chunk_s=first_s, first_token_s=first_s, gaps_s=(token_s_now,) * (tokens - 1),
                last_token_s=last_s, ended_s=last_s + 0.002, prompt_tokens=100, output_tokens=tokens,
            )
        )  # fmt: skip
    figures = figures_of(made)
    return Run(
        group=group,
        round_no=round_no,
        level=level,
        max_tokens=64,
        started_at=MADE_AT,
        duration_s=figures.duration_s,
        figures=figures,
        steady=None,
        requests=tuple(made),
        observations=dict(observations or {}),
        warnings=tuple(warnings),
    )


def group_of(name: str = "A", **changes: object) -> Group:
    values = {"base_url": "http://127.0.0.1:8000/v1", "model": "turbo-opt", "params": {"temperature": 0}, **changes}
    return Group(name=name, **values)  # type: ignore[arg-type]


def measurement_of(
    runs: Sequence[Run], *, groups: Sequence[Group] = (), seed: int = 7, **changes: object
) -> Measurement:
    """Put runs together as `batchrun bench` would."""
    names = list(dict.fromkeys(run.group for run in runs))
    levels = tuple(sorted({run.level for run in runs}))
    setup = Setup(
        groups=tuple(groups) or tuple(group_of(name) for name in names),
        workload=Workload(name="short", requests=40, prompt_tokens=100, max_tokens=(64,), seed=seed, is_varied=True),
        arrivals=Arrivals(kind="closed", levels=levels),
        rounds=max((run.round_no for run in runs), default=1),
        warm_up=2,
        pause_s=1,
        versions={"batchrun": "0.1.0"},
        **changes,  # type: ignore[arg-type]
    )
    return Measurement(id="turbo-short", made_at=MADE_AT, setup=setup, runs=tuple(runs))


def watched(level: int, seconds: int = 12) -> dict[str, Series]:
    """Make what observers would see at such a load: a queue above eight, a cache that fills, a GPU that works."""
    at_s = tuple(float(second) for second in range(seconds))

    def series(unit: str, values: Sequence[float]) -> Series:
        return Series(unit, at_s, tuple(values))

    waiting = max(0, level - 8)
    return {
        "server.running": series("requests", [min(level, 8)] * seconds),
        "server.waiting": series("requests", [waiting] * seconds),
        "server.kv_cache_share": series("share", [min(1.0, 0.05 * level + 0.01 * second) for second in range(seconds)]),
        "server.prefix_queries": series("tokens", [1000.0 * second for second in range(seconds)]),
        "server.prefix_hits": series("tokens", [50.0 * second for second in range(seconds)]),
        "server.preemptions": series("requests", [0.0] * seconds),
        "server.queue_s": series("s", [waiting * 0.2 * second for second in range(seconds)]),
        "server.queue_count": series("requests", [4.0 * second for second in range(seconds)]),
        "server.prefill_s": series("s", [0.3 * second for second in range(seconds)]),
        "server.prefill_count": series("requests", [4.0 * second for second in range(seconds)]),
        "client.cpu_share": series("share", [0.1 + 0.01 * level] * seconds),
        "client.loop_lag_s": series("s", [0.002] * seconds),
        "gpu0.memory_bytes": series("bytes", [40 * 2**30] * seconds),
        "gpu0.utilisation_share": series("share", [0.9 + 0.005 * second for second in range(seconds)]),
        "gpu0.power_w": series("W", [380 + second for second in range(seconds)]),
        "gpu0.temperature_c": series("°C", [60 + second for second in range(seconds)]),
        "gpu0.throttled": series("", [0.0] * seconds),
    }


def ladder(*, speed: float = 1.0, group: str = "A", rounds: int = 3) -> list[Run]:
    """Make the runs of a ladder over 1, 4, 8, 16 and 32, three rounds each."""
    return [
        run_of(group=group, level=level, round_no=number, speed=speed, observations=watched(level))
        for number in range(1, rounds + 1)
        for level in (1, 4, 8, 16, 32)
    ]
