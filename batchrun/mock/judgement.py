"""The judge: what a request log says about a run, seen from the endpoint's side."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

UNBILLED = ("/tokenize",)  # POSTs that generate nothing: no attempt of any ledger


@dataclass(slots=True)
class Arrival:
    """One request for an item."""

    t_s: float  # since the start of the mock that logged it
    at: str  # RFC 3339, UTC
    status: int
    billed: bool
    prompt_tokens: int
    completion_tokens: int
    fault: str | None
    client_request_id: str | None
    body_sha: str
    outcome: str | None = None  # answered, client_gone, reset, cut, hung, stopped; None: no end was logged


@dataclass(slots=True)
class ItemRecord:
    """All requests for one item, in the order in which they came."""

    key: str  # its [[key]], or else the body's digest
    arrivals: list[Arrival] = field(default_factory=list)

    @property
    def arrival_count(self) -> int:
        """Requests for this item."""
        return len(self.arrivals)

    @property
    def billed_count(self) -> int:
        """Requests that a provider would charge."""
        return sum(arrival.billed for arrival in self.arrivals)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens billed."""
        return sum(arrival.prompt_tokens for arrival in self.arrivals if arrival.billed)

    @property
    def completion_tokens(self) -> int:
        """Completion tokens billed."""
        return sum(arrival.completion_tokens for arrival in self.arrivals if arrival.billed)

    @property
    def arrived_at(self) -> list[str]:
        """Arrival times, RFC 3339."""
        return [arrival.at for arrival in self.arrivals]

    @property
    def client_request_ids(self) -> list[str]:
        """The ids that the client gave its requests, as far as it gave any."""
        return [arrival.client_request_id for arrival in self.arrivals if arrival.client_request_id is not None]


@dataclass(slots=True)
class Judgement:
    """What an outside judge knows about a run. Only POSTs are judged."""

    posts: int = 0
    billed: int = 0
    prompt_tokens: int = 0  # billed
    completion_tokens: int = 0  # billed
    max_in_flight: int = 0
    by_status: Counter[int] = field(default_factory=Counter)
    by_outcome: Counter[str] = field(default_factory=Counter)
    by_fault: Counter[str] = field(default_factory=Counter)
    items: dict[str, ItemRecord] = field(default_factory=dict)

    @property
    def repeated(self) -> dict[str, ItemRecord]:
        """The items billed more than once."""
        return {key: item for key, item in self.items.items() if item.billed_count > 1}


def read_log(path: str | PathLike[str]) -> Judgement:
    """Judge a request log, even one that several mocks have appended to, one after the other.

    A last line without its line feed is not read; any other line that is none is a `ValueError`.
    """
    judgement = Judgement()
    open_arrivals: dict[int, Arrival] = {}  # a number counts from 1 again when a new mock goes on with the log
    for line in _read_lines(path):
        if line["ev"] == "arrive":
            open_arrivals.pop(line["req"], None)
            if line["method"] == "POST" and line["path"] not in UNBILLED:
                open_arrivals[line["req"]] = _note_arrival(judgement, line)
        elif (arrival := open_arrivals.pop(line["req"], None)) is not None:
            arrival.outcome = line["outcome"]
            judgement.by_outcome[line["outcome"]] += 1
    return judgement


def _read_lines(path: str | PathLike[str]) -> Iterator[dict[str, Any]]:
    with Path(path).open("rb") as file:
        for no, raw in enumerate(file, 1):
            if not raw.endswith(b"\n"):
                return
            try:
                line = json.loads(raw)
            except ValueError:
                raise ValueError(f"request log '{path}' line {no}: no JSON") from None
            yield line


def _note_arrival(judgement: Judgement, line: dict[str, Any]) -> Arrival:
    arrival = Arrival(
        t_s=line["t"],
        at=line["at"],
        status=line["status"],
        billed=line["billed"],
        prompt_tokens=line["prompt_tokens"],
        completion_tokens=line["completion_tokens"],
        fault=line["fault"],
        client_request_id=line["client_request_id"],
        body_sha=line["body_sha"],
    )
    key = line["item"] if line["item"] is not None else line["body_sha"]
    judgement.items.setdefault(key, ItemRecord(key)).arrivals.append(arrival)
    judgement.posts += 1
    judgement.max_in_flight = max(judgement.max_in_flight, line["in_flight"])
    judgement.by_status[arrival.status] += 1
    if arrival.billed:
        judgement.billed += 1
        judgement.prompt_tokens += arrival.prompt_tokens
        judgement.completion_tokens += arrival.completion_tokens
    if arrival.fault is not None:
        judgement.by_fault[arrival.fault] += 1
    return arrival
