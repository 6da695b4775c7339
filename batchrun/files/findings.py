"""What is told of the faults of a file: the first ones and the total, or one sentence when all lines have the same."""

from typing import NamedTuple

from batchrun.core.bounds import beyond_text
from batchrun.core.line import LineFault
from batchrun.core.request import Draft
from batchrun.errors import Fault


class Glimpse(NamedTuple):
    """What the first item will ask, to be looked at."""

    line_no: int
    custom_id: str | None  # None: it has none of its own
    words: str  # of others: not fit for a terminal as it is; cut


class Findings:
    """Collects the outcome of every line of one pass, in line order."""

    def __init__(self, max_faults: int) -> None:
        self.items = 0
        self.rejected = 0
        self.unbounded = 0  # lines that can be sent and ask for more than text
        self.first_unbounded: tuple[int, str] | None = None  # the first of them: its line, and for what it asks
        self.first: Glimpse | None = None  # of the first item that can be sent
        self._max_faults = max_faults
        self._first: list[Fault] = []
        self._what: str | None = None  # what is wrong with every faulty line so far, while it is one thing
        self._hint = ""
        self._lines = (0, 0)  # the first and the last faulty line

    def add_item(self, line_no: int, draft: Draft) -> None:
        """Note one line that can be sent."""
        self.items += 1
        # A row makes a text of its fields, and what the job adds is looked at once.
        if not draft.is_row and (what := beyond_text(draft.own)) is not None:
            self.unbounded += 1
            self.first_unbounded = self.first_unbounded or (line_no, what)

    def add_fault(self, line_no: int, fault: LineFault) -> None:
        """Note one faulty line."""
        self.rejected += 1
        if len(self._first) < self._max_faults:
            self._first.append(Fault(f"input line {line_no}", fault.what, fault.hint))
        if self.rejected == 1:
            self._what, self._hint = fault.what, fault.hint
        elif fault.what != self._what:
            self._what = None
        self._lines = (self._lines[0] or line_no, line_no)

    def told(self) -> tuple[tuple[Fault, ...], int]:
        """Return the faults to tell, and how many there are in all."""
        if self.items or self.rejected < 2 or self._what is None:
            return tuple(self._first), self.rejected
        where = f"input lines {self._lines[0]} to {self._lines[1]}"
        return (Fault(where, f"all {self.rejected:,} are alike: each {self._what}", self._hint),), 1
