"""The ledger's tables. Times (`*_at`) are UTC unix seconds, money is picodollars, durations are seconds.

An attempt's key is `item_id << 20 | fence`: unique, decodable, and in item order, so that rows written together lie
together. `migrations/` creates these tables; a test compares the two.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

SCHEMA_REVISION = "0001"
FENCE_BITS = 20

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
_Key = BigInteger().with_variant(Integer, "sqlite")  # INTEGER PRIMARY KEY is SQLite's own row number


def attempt_key(item_id: int, fence: int) -> int:
    """Return the primary key of the attempt that item `item_id` made under `fence`."""
    if not 0 < fence < 1 << FENCE_BITS:
        raise OverflowError(f"item {item_id} was claimed {fence} times")
    return item_id << FENCE_BITS | fence


def _index_where(flag: str, name: str, *columns: str) -> Index:
    """Make a partial index. SQLite uses it only for queries that say the very words of its condition."""
    return Index(name, *columns, sqlite_where=text(f"{flag} = 1"), postgresql_where=text(flag))


def split_key(key: int) -> tuple[int, int]:
    """Return (item_id, fence) of an attempt's key."""
    return key >> FENCE_BITS, key & ((1 << FENCE_BITS) - 1)


ledgers = Table(
    "ledgers",
    metadata,
    Column("id", Integer, primary_key=True),  # one row
    Column("ledger_id", Text, nullable=False),  # random, part of every attempt id
    Column("next_item_id", _Key, nullable=False),  # item ids are given out once, so attempt ids are too
    Column("created_at", Float, nullable=False),
    Column("moved_to", Text),  # address without password: closed for good, since what is here goes, or went, there
    Column("move_token", Text),  # of the last move from or to here; two ledgers with one token are the two ends of it
    Column("move_began_at", Float),
    Column("move_ended_at", Float),  # NULL: the move is not finished, and this end of it is closed
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _Key, primary_key=True, autoincrement=True),
    Column("task_id", Text, nullable=False, unique=True),
    Column("state", Text, nullable=False),
    Column("reason", Text),  # why it is paused or failed: a word
    Column("message", Text),  # the same for people
    Column("was_cancelled", Boolean, nullable=False),  # finalizing ends in cancelled
    Column("spec", Text, nullable=False),  # the effective spec as JSON, without secrets, paths absolute
    Column("input_digest", Text, nullable=False),  # sha256 of the input file
    Column("params_digest", Text, nullable=False),  # digest of the request parameters
    Column("total", _Key, nullable=False),  # input items
    Column("phase", Text, nullable=False),  # "trial": only trial items may be claimed; "full"
    Column("trial_verdict", Text),  # passed, failed, skipped; NULL: not known yet
    Column("on_unknown", Text, nullable=False),
    Column("concurrency", Integer, nullable=False),  # over all workers, now
    Column("climb", Text),  # how it was found, and what is seen at it, as JSON; NULL: it is fixed
    Column("retry_times", Integer, nullable=False),
    Column("rpm", BigInteger),  # requests and tokens a minute, over all workers
    Column("tpm", BigInteger),
    Column("max_cost_pusd", BigInteger),
    Column("spent_pusd", BigInteger, nullable=False),  # settled for certain
    Column("reserved_pusd", BigInteger, nullable=False),  # worst cost of open intents and of unknown outcomes
    Column("throttle_until_at", Float),  # nothing is claimed before
    Column("throttle_wait_s", Float),  # its length: a wait further ahead than this counts as passed
    Column("is_shared", Boolean, nullable=False),  # any worker with a lease may claim; else its holder alone
    Column("holder", ForeignKey("workers.id")),  # the process that performs it, or when shared does its chores
    Column("held_since_at", Float),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("active_s", Float, nullable=False),  # time some process worked on it
    Column("epoch", BigInteger, nullable=False),  # grows while it is performed: older copies of the ledger are behind
    Column("epoch_token", Text),  # of the process that took it last
    Column("written_at", Float),  # when the outputs of this end were written; NULL: nowhere yet
    Column("purge_began_at", Float),  # from here on nothing of it is sent again, and no output is written
    Column("purged_at", Float),  # its requests, answers and texts are deleted
)

items = Table(
    "items",
    metadata,
    Column("id", _Key, primary_key=True, autoincrement=False),  # from ledgers.next_item_id
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("position", _Key, nullable=False),  # order of the outputs
    Column("line_no", _Key, nullable=False),  # of the input file, from 1
    Column("custom_id", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("is_current", Boolean, nullable=False),  # false: superseded by a later revision, or removed
    Column("is_trial", Boolean, nullable=False),
    Column("request_digest", LargeBinary(16)),
    Column("model", Text),  # the one really sent
    Column("note", Text),  # what was changed in the line, or why it was rejected
    Column("state", Text, nullable=False),
    Column("fence", Integer, nullable=False),  # grows with every claim and every forced move
    Column("worker_id", ForeignKey("workers.id")),  # owner while running
    Column("answer_key", _Key),  # the attempt that answered (another item's: a copy); failed: it is invalid
    Column("tries", Integer, nullable=False),  # counted against retry_times since the last consent
    Column("throttled_s", Float, nullable=False),
    Column("reasks", Integer, nullable=False),  # for invalid answers, as the job's spec allows them
    Column("consents", Integer, nullable=False),
    Column("rank", _Key, nullable=False),  # in the order of claims: lower ones first, then by id
    Column("not_before_at", Float, nullable=False),
    Column("wait_s", Float, nullable=False),  # length of that wait, as recorded
    Column("worst_pusd", BigInteger),  # the most one attempt can cost
    Column("cause", Text),
    Column("message", Text),
    UniqueConstraint("job_id", "custom_id", "revision"),
    CheckConstraint(
        "state IN ('pending', 'running', 'completed', 'failed', 'in_doubt', 'rejected', 'cancelled')", name="state"
    ),
    _index_where("is_current", "ix_items_job_id_state_rank_id", "job_id", "state", "rank", "id"),
    Index("ix_items_job_id_position", "job_id", "position"),
    _index_where("is_trial", "ix_items_trial", "job_id", "id"),
)

requests = Table(
    "requests",
    metadata,
    Column("item_id", _Key, ForeignKey("items.id"), primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    Column("key", _Key, primary_key=True, autoincrement=False),
    Column("job_id", _Key, nullable=False),
    Column("worker_id", _Key, nullable=False),
    Column("endpoint", Text, nullable=False),  # address, without secrets
    Column("state", Text, nullable=False),
    Column("queued_at", Float, nullable=False),  # when the item could first be claimed for this attempt
    Column("claimed_at", Float, nullable=False),
    Column("sent_at", Float),
    Column("first_byte_at", Float),
    Column("ended_at", Float),
    Column("duration_s", Float),  # monotonic, from hand-over to end
    Column("http_status", Integer),
    Column("cause", Text),
    Column("message", Text),
    Column("finish_reason", Text),
    Column("warning", Text),
    Column("prompt_tokens", BigInteger),
    Column("completion_tokens", BigInteger),
    Column("cached_tokens", BigInteger),  # of the prompt's; NULL: not told
    Column("reasoning_tokens", BigInteger),
    Column("charge", Text, nullable=False),  # certain, possible, none
    Column("cost_pusd", BigInteger),  # for certain, by usage; NULL: not known
    Column("reserved_pusd", BigInteger, nullable=False),  # the most that may have to be paid on top of it
    Column("reported_pusd", BigInteger),  # what the endpoint itself says that it cost; NULL: it does not say
    Column("request_id", Text),
    Column("response_id", Text),
    Column("idempotency_key", Text),  # that it was sent under; NULL: under none
    Column("account", Text),  # where a key was sent: a short fingerprint of the API key, from which nobody gets it back
    Column("replays", _Key),  # key of the attempt that this one replays
    Index("ix_attempts_job_id_state", "job_id", "state"),
)

answers = Table(
    "answers",
    metadata,
    Column("key", _Key, ForeignKey("attempts.key"), primary_key=True, autoincrement=False),
    Column("raw", LargeBinary, nullable=False),  # the body as it came
)

traces = Table(
    "traces",  # of measured jobs: when the pieces of a streamed answer came
    metadata,
    Column("key", _Key, ForeignKey("attempts.key"), primary_key=True, autoincrement=False),
    Column("packed", LargeBinary, nullable=False),  # core/measuring/trace.py
)

asked = Table(
    "asked",  # of jobs with a cache: which attempt asked a request last
    metadata,
    Column("ask", _Key, primary_key=True, autoincrement=False),  # of request, address and account
    Column("attempt_key", _Key, nullable=False),
)

copies = Table(
    "copies",  # answers of others, for items that were not sent because of them
    metadata,
    Column("item_id", _Key, ForeignKey("items.id"), primary_key=True, autoincrement=False),
    Column("raw", LargeBinary, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", _Key, primary_key=True, autoincrement=True),
    Column("job_id", _Key, nullable=False),
    Column("item_id", _Key),
    Column("at", Float, nullable=False),
    Column("kind", Text, nullable=False),
    Column("detail", Text),
    Index("ix_events_job_id_id", "job_id", "id"),
)

workers = Table(
    "workers",
    metadata,
    Column("id", _Key, primary_key=True, autoincrement=True),
    Column("incarnation", Text, nullable=False, unique=True),  # random; a name is only a label
    Column("name", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("folder", Text, nullable=False),  # of its lock and its spool
    Column("version", Text, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("boot_id", Text),  # of the machine's run that its send marks belong to; NULL: they prove nothing
    Column("ended_at", Float),  # left in order, or declared dead
)

leases = Table(
    "leases",  # of a shared job's concurrency: how many requests each worker may have in flight
    metadata,
    Column("job_id", _Key, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("worker_id", _Key, ForeignKey("workers.id"), primary_key=True, autoincrement=False),
    Column("wants", Integer, nullable=False),  # how many it could use
    Column("slots", Integer, nullable=False),  # how many it has
    Column("in_flight", Integer, nullable=False),
    Column("items_per_s", Float),
    Column("tokens_per_s", Float),
)

heartbeats = Table(
    "heartbeats",
    metadata,
    Column("worker_id", _Key, ForeignKey("workers.id"), primary_key=True, autoincrement=False),
    Column("beat", BigInteger, nullable=False),  # only ever compared with its own earlier value
    Column("in_flight", Integer, nullable=False),
    Column("items_per_s", Float),
    Column("tokens_per_s", Float),
)

incoming = Table(
    "incoming",  # the lines of a changed input while they are compared with the job's
    metadata,
    Column("job_id", _Key, primary_key=True, autoincrement=False),
    Column("position", _Key, primary_key=True, autoincrement=False),
    Column("line_no", _Key, nullable=False),
    Column("custom_id", Text, nullable=False),
    Column("request_digest", LargeBinary(16)),
    Column("model", Text),
    Column("note", Text),
    Column("path", Text),
    Column("body", LargeBinary),  # NULL: a rejected line
    Column("worst_pusd", BigInteger),
    Column("rank", _Key, nullable=False),
    Index("ix_incoming_job_id_custom_id", "job_id", "custom_id"),
)
