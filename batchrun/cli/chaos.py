"""`batchrun chaos`: the user's own crash test, in rounds: kills, faults of the endpoint, resumes, and a verdict."""

import os
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.ordeal import Ordeal, draw
from batchrun.cli.say import columns_of, duration, emit, fold, say
from batchrun.cli.stage import kept_apart
from batchrun.core.wording import several
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from batchrun.cli.ordeal_verdict import Report

SUMS = ("deaths", "requests", "billed", "answers", "doubts", "consents", "silent_second_bills", "lost_items")
# Heading -> what stands below it; as wide as the heading.
COLUMNS = {
    "round": "round",
    "deaths": "deaths",
    "requests": "requests",
    "answers": "answers",
    "doubts": "doubts",
    "silent second bills": "silent_second_bills",
    "lost": "lost_items",  # input items that are in no output file
}


@make_command("batchrun chaos --seed 7 --minutes 0.2")
@click.option("--seed", type=click.IntRange(0), metavar="S", help="What all rounds are drawn from; else a new one.")
@click.option(
    "--minutes",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    metavar="M",
    help="No round begins later; one is always played.",
)
@click.option("--round", "only", type=click.IntRange(1), metavar="N", help="Play this round of the seed alone.")
@click.option("--keep", is_flag=True, help="Make the folder here, and keep it.")
def command(context: Context, seed: int | None, minutes: float, only: int | None, keep: bool) -> int:
    """Try to make it bill twice: a mock endpoint with faults, real processes, kill -9, resumes; then the verdict.

    Each round is a job with its blows, drawn from the seed. It is judged by the endpoint's own log: exit 7 if a
    promise was broken. The ledger, the settings and the keys of your own have no part in it.
    """
    if context.db or context.broker:
        raise UsageFault(
            "chaos has ledgers of its own: --db and --broker do not go with it", hint="batchrun chaos, without them"
        )
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    with kept_apart("chaos", keep=keep) as place:
        storm = Storm(context, place.path, seed)
        try:
            storm.play(minutes=minutes, only=only)
        except KeyboardInterrupt:
            storm.stop()
            raise
        place.is_kept = keep or storm.is_broken
        return storm.close(kept=place.is_kept)


@dataclass
class Storm:
    """The rounds of one seed."""

    context: Context
    folder: Path
    seed: int
    reports: "list[Report]" = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def is_broken(self) -> bool:
        return any(report.violations for report in self.reports)

    def play(self, *, minutes: float, only: int | None) -> None:
        """Play rounds until the time is over, or the one that is wanted."""
        self._put("batchrun chaos: nothing leaves this machine, and nothing costs money")
        again = "batchrun chaos --seed " + str(self.seed)
        self._put(f"seed {self.seed}: `{again}` draws the same rounds again\n")
        self._put("  ".join([*COLUMNS, "verdict"]))
        number = only or 1
        while True:
            self._play_one(number)
            number += 1
            if only is not None or time.monotonic() - self.began >= 60 * minutes:
                return

    def _play_one(self, number: int) -> None:
        from batchrun.cli.ordeal_play import Play

        ordeal = draw(self.seed, number)
        if self.context.verbose:
            say(self.context, f"round {number}: {ordeal}; {_faults(ordeal)}")
        folder = self.folder / f"round-{number}"
        folder.mkdir()
        try:
            report = Play(ordeal, folder, self._tell).run()
        finally:
            self._tell(None)
        self.reports.append(report)
        self._put(_row(str(number), asdict(report), "BROKEN" if report.violations else "kept"))
        for violation in report.violations:
            self._put(f"       {violation}")

    def stop(self) -> None:
        """Say what was seen until somebody had enough."""
        deaths = several(sum(report.deaths for report in self.reports), "death")
        found = "a promise was BROKEN" if self.is_broken else "every promise was kept"
        say(self.context, f"stopped after {several(len(self.reports), 'whole round')}, {deaths}: {found}")

    def close(self, *, kept: bool) -> int:
        """Give the verdict, and return the exit code."""
        elapsed_s = time.monotonic() - self.began
        sums = {name: sum(getattr(report, name) for report in self.reports) for name in SUMS}
        if self.context.json:
            values = {
                "ok": not self.is_broken,
                "seed": self.seed,
                "rounds": [asdict(one) for one in self.reports],
                **sums,
            }
            emit("chaos", values | {"folder": str(self.folder) if kept else None, "elapsed_s": round(elapsed_s, 3)})
            return 7 if self.is_broken else 0
        self._put(_row("all", sums, "BROKEN" if self.is_broken else "kept"))
        self._put("")
        self._put(f"verdict: {self._verdict(sums)}")
        self._put(f"  {several(len(self.reports), 'round')}, {duration(elapsed_s)}: {_told(sums)}")
        if kept:
            self._put(f"  kept in {self.folder}")
        return 7 if self.is_broken else 0

    def _verdict(self, sums: dict[str, int]) -> str:
        if not self.is_broken:
            return "no silent second bill, no lost item"
        first = next(report.round for report in self.reports if report.violations)
        again = f"batchrun chaos --seed {self.seed} --round {first}"
        seen = (
            f"{several(sums['silent_second_bills'], 'silent second bill')}, {several(sums['lost_items'], 'lost item')}"
        )
        return f"BROKEN: {seen}; `{again}` plays the round again"

    def _put(self, text: str) -> None:
        if not self.context.json:
            click.echo(fold(text, columns_of(sys.stdout)))

    def _tell(self, text: str | None) -> None:
        """Show on a terminal how far a round has come; None takes the line away."""
        if self.context.json or self.context.quiet or not sys.stderr.isatty() or os.environ.get("CI"):
            return
        line = "" if text is None else text[: (columns_of(sys.stderr) or 80) - 1]
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()


def _faults(ordeal: Ordeal) -> str:
    shares = [f"{100 * rate:.1f} % {name.removesuffix('_rate')}" for name, rate in ordeal.faults.items()]
    return ", ".join(shares) or "no faults"


def _told(sums: Mapping[str, int]) -> str:
    consents = f", {several(sums['consents'], 'item')} sent again by consent" if sums["consents"] else ""
    return f"{several(sums['deaths'], 'death')} by kill -9, {sums['billed']:,} requests billed{consents}"


def _row(first: str, values: Mapping[str, Any], verdict: str) -> str:
    cells = [first, *(f"{values[name]:,}" for name in list(COLUMNS.values())[1:])]
    return "  ".join([*(cell.rjust(len(head)) for cell, head in zip(cells, COLUMNS, strict=True)), verdict])
