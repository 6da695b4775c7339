"""The proof of `demo` and `chaos`: the endpoint's own log, held against the ledger's account and the output files.

It reads the log with a few lines of its own, so that no code that made the run also judges it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, and whether it holds."""

    name: str  # for scripts
    claim: str  # what must hold
    seen: str  # the figures
    holds: bool


@dataclass(frozen=True, slots=True)
class Bills:
    """What the endpoint's log says: how many requests came, and how often each item was billed."""

    requests: int
    by_item: Mapping[str, int]
    by_name: Mapping[str, int]  # requests that carried each attempt's id

    @property
    def total(self) -> int:
        return sum(self.by_item.values())


def count_bills(log: Iterable[str]) -> Bills:
    """Read the endpoint's log: a line on arrival says whether a provider would charge this request."""
    requests, billed, names = 0, Counter[str](), Counter[str]()
    for line in log:
        entry = json.loads(line)
        if entry["ev"] == "arrive" and entry["method"] == "POST":
            requests += 1
            billed[entry["item"]] += entry["billed"]
            names[entry.get("client_request_id") or "no name"] += 1
    return Bills(requests, billed, names)


def prove(
    bills: Bills,
    *,
    status: Mapping[str, Any],
    ids: Sequence[str],
    output: Sequence[str],
    errors: Sequence[str],
    consented: Iterable[str] = (),
) -> list[Check]:
    """Hold the promise against the endpoint's log.

    Args:
        bills: what the endpoint's log says.
        status: the object of `batchrun status --json`.
        ids: the input's.
        output: the ids in the output file, in its order; `errors` likewise.
        consented: items that a person sent again: each of these may be billed once more.
    """
    approved = Counter(consented)
    twice = sorted(item for item, count in bills.by_item.items() if count > 1 + approved[item])
    unknown = sorted(item for item in bills.by_item if item not in set(ids))
    certain, possible = (int(status["billing"][f"{word}_requests"]) for word in ("certain", "possible"))
    attempts = status["attempts"]
    replied = attempts["answered"] + attempts["refused"] + attempts["unusable"]
    begun = attempts["sent"] + attempts["open"]
    seen = Counter([*output, *errors])
    wrong = sorted(item for item in {*ids, *seen} if seen[item] != 1)
    most = max(bills.by_item.values(), default=0)
    limit = "no item was billed twice" if not approved else "no item was billed again without your consent"
    return [
        Check(
            "billed_once",
            limit,
            _names(twice + unknown) or f"{len(ids):,} items, {bills.total:,} bills, at most {most} an item",
            not twice and not unknown,
        ),
        Check(
            "bills_bounded",
            "the ledger's account encloses the bills",
            f"{certain:,} certain <= {bills.total:,} billed <= {certain:,} certain + {possible:,} possible",
            certain <= bills.total <= certain + possible,
        ),
        Check(
            "requests_written_down",
            "nothing was sent that was not written down",
            f"{replied:,} replies <= {bills.requests:,} requests <= {begun:,} attempts",
            replied <= bills.requests <= begun,
        ),
        Check(
            "ids_once",
            "every id stands once over output and error file",
            _names(wrong) or f"{len(output):,} + {len(errors):,} = {len(ids):,}",
            not wrong and len(output) + len(errors) == len(ids),
        ),
    ]


def prove_each(bills: Bills, attempts: Mapping[str, str]) -> Check:
    """Hold every request against the ledger, one by one.

    Args:
        attempts: the state of each attempt that the ledger has, by its id.
    """
    strange = [name for name in bills.by_name if attempts.get(name, "not_sent") == "not_sent"]
    twice = [name for name, count in bills.by_name.items() if count > 1]
    wrong = sorted({*strange, *twice})
    return Check(
        "each_its_own_row",
        "each request has a row of its own, written before it was sent",
        _names(wrong) or f"{len(bills.by_name):,} requests, {len(attempts):,} rows",
        not wrong,
    )


def _names(items: Sequence[str]) -> str:
    return ", ".join(items[:5]) + (f" and {len(items) - 5:,} more" if len(items) > 5 else "")
