"""The same request once, in jobs that say so: who has asked it, whether it is out now, and copies of its answer.

Requests are the same where path and body are (the digest), and where they go to one address and one account there.
`asked` names the attempt that asked last; whether it has an answer, or is still out, its item says. So nothing has to
be cleared when it fails, is in doubt, is cancelled, or its worker dies: from then on nobody waits for it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, exists, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from batchrun.core.states import ItemState
from batchrun.ledger.guards import is_alive, is_claimable, job_allows, lock_jobs, stands_in
from batchrun.ledger.schema import FENCE_BITS, answers, asked, attempt_key, attempts, copies, items, ledgers, split_key


@dataclass(frozen=True, slots=True)
class Accounts:
    """Whose answers are shared: those of the same addresses under the same keys.

    A job with several endpoints takes an answer of any of them. Another job shares it that names the same endpoints.
    """

    places: tuple[tuple[str, str], ...]  # (address, fingerprint of the key), sorted

    @classmethod
    def of(cls, places: Iterable[tuple[str, str]]) -> "Accounts":
        """Put the places in order: which one is named first makes no difference."""
        return cls(tuple(sorted(places)))

    @property
    def addresses(self) -> set[str]:
        return {address for address, _ in self.places}

    def ask(self, request_digest: bytes) -> int:
        """Return the key of `asked` for this request: 63 bits, so what is found under it is compared."""
        places = "".join(f"{address}\n{fingerprint}\n" for address, fingerprint in self.places)
        return int.from_bytes(blake2b(places.encode() + request_digest, digest_size=8).digest()) >> 1


@dataclass(frozen=True, slots=True)
class Asking:
    """What a claim must know of the cache."""

    accounts: Accounts
    misfits: Collection[int] = ()  # attempts whose answers are there, and will not do for this job


@dataclass(frozen=True, slots=True)
class Ask:
    """One pending item, and what the ledger has for its request."""

    item_id: int
    fence: int
    ask: int
    source: int | None  # the attempt whose answer it can have
    is_out: bool  # another item asks it now


def look_up(
    connection: Connection, item_ids: Sequence[int], accounts: Accounts, *guards: ColumnElement[bool]
) -> list[Ask]:
    """Return what is known of these items' requests, in the order given; those that are not pending are left out."""
    query = select(items.c.id, items.c.fence, items.c.request_digest).where(
        items.c.id.in_(item_ids), stands_in("claim"), items.c.is_current, *guards
    )
    rows = {row.id: row for row in connection.execute(query)}
    digests = {item_id: bytes(row.request_digest) for item_id, row in rows.items()}
    asks = {item_id: accounts.ask(digest) for item_id, digest in digests.items()}
    known = _known(connection, set(asks.values()))
    found = []
    for item_id in item_ids:
        if item_id not in rows:
            continue
        there = known.get(asks[item_id])
        if there is not None and not (
            bytes(there.request_digest or b"") == digests[item_id] and there.endpoint in accounts.addresses
        ):
            there = None  # another request has come to the same key by chance
        found.append(_ask(rows[item_id], asks[item_id], there))
    return found


def _known(connection: Connection, asks: Collection[int]) -> dict[int, Any]:
    query = (
        select(
            asked.c.ask,
            asked.c.attempt_key,
            items.c.state,
            items.c.fence,
            items.c.answer_key,
            items.c.request_digest,
            attempts.c.endpoint,
            exists().where(answers.c.key == asked.c.attempt_key).label("has_answer"),
        )
        .join(items, items.c.id == asked.c.attempt_key // (1 << FENCE_BITS))
        .join(attempts, attempts.c.key == asked.c.attempt_key)
        .where(asked.c.ask.in_(asks))
    )
    return {row.ask: row for row in connection.execute(query)}


def _ask(row: Any, ask: int, there: Any) -> Ask:
    if there is None:
        return Ask(row.id, row.fence, ask, None, is_out=False)
    is_answered = there.state == ItemState.COMPLETED and there.answer_key == there.attempt_key and there.has_answer
    is_out = there.state == ItemState.RUNNING and there.fence == split_key(there.attempt_key)[1]
    return Ask(row.id, row.fence, ask, there.attempt_key if is_answered else None, is_out=is_out)


def askers(connection: Connection, item_ids: Sequence[int], asking: Asking, *, now: float) -> dict[int, int]:
    """Return which of these items may ask, each with its ask: of those that ask the same the first, if none is out.

    Until the transaction ends no other job decides about any ask. Those that are left out stay pending.
    """
    if connection.dialect.name != "sqlite":  # there a writing transaction is alone anyway
        connection.execute(select(ledgers.c.id).with_for_update()).all()
    chosen: dict[int, int] = {}
    for one in look_up(connection, item_ids, asking.accounts, is_claimable(now)):
        is_served = one.source is not None and one.source not in asking.misfits
        if not (one.is_out or is_served or one.ask in chosen.values()):
            chosen[one.item_id] = one.ask
    return chosen


def note_asked(connection: Connection, claimed: Sequence[tuple[int, int]], asks: dict[int, int]) -> None:
    """Note who asks from now on, in the transaction of the claim; `claimed` are items with their fences."""
    if not claimed:
        return
    make = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = make(asked)
    latest = statement.on_conflict_do_update(
        index_elements=[asked.c.ask], set_={"attempt_key": statement.excluded.attempt_key}
    )
    rows = [{"ask": asks[item_id], "attempt_key": attempt_key(item_id, fence)} for item_id, fence in claimed]
    connection.execute(latest, rows)


_RAW = select(answers.c.raw).where(answers.c.key == bindparam("the_source")).scalar_subquery()
_KEEP = insert(copies).from_select(
    ["item_id", "raw"], select(items.c.id, _RAW).where(items.c.id == bindparam("the_item"))
)


def copy_answers(connection: Connection, job_id: int, found: Sequence[Ask], *, worker_id: int, now: float) -> list[int]:
    """pending -> completed for items whose request was answered already; return those that moved.

    Their answer is copied: a purge of the job that it came from does not take it away. Nothing is sent, paid or
    reserved.
    """
    hits = {one.item_id: one for one in found if one.source is not None}
    if not hits:
        return []
    lock_jobs(connection, [job_id])
    complete = (
        update(items)
        .where(
            items.c.id == bindparam("the_item"),
            items.c.fence == bindparam("the_fence"),
            items.c.is_current,
            stands_in("copy"),
            exists().where(answers.c.key == bindparam("the_source")),
            job_allows(job_id, worker_id, now),
            is_alive(worker_id),
        )
        .values(
            state=ItemState.COMPLETED.value,
            fence=items.c.fence + 1,
            answer_key=bindparam("the_source"),
            cause=None,
            message=None,
        )
    )
    rows = [{"the_item": one.item_id, "the_fence": one.fence, "the_source": one.source} for one in hits.values()]
    connection.execute(complete, rows)
    stand = connection.execute(select(items.c.id, items.c.fence, items.c.answer_key).where(items.c.id.in_(hits)))
    moved = [row.id for row in stand if (row.fence, row.answer_key) == (hits[row.id].fence + 1, hits[row.id].source)]
    if moved:
        connection.execute(delete(copies).where(copies.c.item_id.in_(moved)))  # of an earlier time
        connection.execute(_KEEP, [{"the_item": item_id, "the_source": hits[item_id].source} for item_id in moved])
    return moved


def answers_of(connection: Connection, sources: Collection[int]) -> dict[int, bytes]:
    """Return the answers of these attempts."""
    query = select(answers.c.key, answers.c.raw).where(answers.c.key.in_(sources))
    return {row.key: bytes(row.raw) for row in connection.execute(query)}
