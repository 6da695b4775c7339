"""What a round of `batchrun chaos` puts a job through: drawn from seed and number alone, before anything starts."""

import random
from dataclasses import dataclass, field

FAULTS = ("error_rate", "unavailable_rate", "rate_limit_rate", "reset_rate", "cut_rate", "bad_json_rate", "hang_rate")
GREATEST_RATE = 0.06  # of each fault
LONGEST_STOP_S = 1.5


@dataclass(frozen=True, slots=True)
class Strike:
    """One blow: `kill` is SIGKILL, `term` SIGTERM, `stop` SIGSTOP for `stopped_s`, as a machine that hangs."""

    how: str
    at_all: bool  # at every process; else at one, which `pick` chooses among those alive
    pick: float  # 0..1
    after_requests: int | None  # more that the endpoint has seen since the blow before
    after_s: float | None  # since the last start of a process: while it reads, registers, sweeps, writes
    stopped_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ordeal:
    """One round."""

    number: int  # from 1
    policy: str  # on_unknown
    items: int
    concurrency: int
    processes: int  # at one job; the dead are replaced
    strikes: tuple[Strike, ...]
    consents: bool  # under hold: doubts are sent again in the end, by the user's word, under further blows
    strikes_after: tuple[Strike, ...] = ()
    endpoint_seed: int = 0
    faults: dict[str, float] = field(default_factory=dict)  # the endpoint's, as shares of its requests

    @property
    def ids(self) -> list[str]:
        return [f"river-{number:04d}" for number in range(1, self.items + 1)]

    def __str__(self) -> str:
        noun = "process" if self.processes == 1 else "processes"
        return f"{self.policy}, {self.items} items, {self.concurrency} at once, {self.processes} {noun}"


def draw(seed: int, number: int) -> Ordeal:
    """Draw one round of a seed."""
    dice = random.Random(f"{seed}/{number}")
    items, concurrency = dice.randint(60, 160), dice.randint(2, 16)
    consents = dice.random() < 0.6
    blows = dice.randint(2, 5)
    return Ordeal(
        number=number,
        policy=dice.choice(["hold", "hold", "retry"]),
        items=items,
        concurrency=concurrency,
        processes=dice.randint(1, 3),
        strikes=tuple(_strike(dice, most=2 * items // (3 * blows)) for _ in range(blows)),
        consents=consents,
        strikes_after=tuple(_strike(dice, most=4) for _ in range(dice.randint(0, 1))) if consents else (),
        endpoint_seed=dice.randrange(1 << 30),
        faults={name: round(dice.uniform(0.01, GREATEST_RATE), 3) for name in dice.sample(FAULTS, dice.randint(0, 4))},
    )


def _strike(dice: random.Random, *, most: int) -> Strike:
    how = dice.choices(["kill", "stop", "term"], [8, 1, 1])[0]
    by_clock = dice.random() < 0.25
    return Strike(
        how=how,
        at_all=how == "kill" and dice.random() < 0.3,
        pick=dice.random(),
        after_requests=None if by_clock else dice.randint(1, max(2, most)),
        after_s=round(dice.uniform(0.3, 2.0), 2) if by_clock else None,
        stopped_s=round(dice.uniform(0.2, LONGEST_STOP_S), 2) if how == "stop" else 0.0,
    )
