"""A look at the broker: does it answer, will it keep what it is given, does it agree on the time?"""

import statistics
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import redis

from batchrun.endpoint.address import is_local, is_loopback
from batchrun.queue.broker import SCHEMES
from batchrun.runner.doctor.finding import Check, Notes
from batchrun.runner.effective import without_secret

PATIENCE_S = 2.0  # for a connection and for an answer
PINGS = 3
SLOW_S = 0.02
CLOCK_S = 2.0
OLDEST = (7, 0)  # what the tests run with
NEARLY_FULL = 0.9
START = "start redis-server, or correct BATCHRUN_BROKER (redis://:PASSWORD@HOST:6379/0)"


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What a Redis says of itself, as `INFO` and `CONFIG GET` have it."""

    info: dict[str, Any]
    config: dict[str, str] | None  # None where it does not tell (services often refuse CONFIG)
    answer_s: float
    clock_ahead_s: float  # of this machine's


def broker_check(address: str) -> Check:
    """Return the look at the broker."""

    def look(notes: Notes) -> None:
        scheme = urlsplit(address).scheme
        if scheme not in SCHEMES:
            said = f"the broker's address begins with '{scheme}://'; batchrun takes Redis"
            notes.fail("address", said, "BATCHRUN_BROKER=redis://:PASSWORD@HOST:6379/0")
            return
        try:
            facts = ask_broker(address)
        except (redis.RedisError, OSError, ValueError) as error:
            notes.fail("reachable", *_no_answer(error))
            return
        _note_server(notes, facts)
        _note_eviction(notes, facts)
        _note_persistence(notes, facts)
        _note_clock(notes, facts)
        _note_door(notes, address)

    return Check("broker", without_secret(address), look, silence=START)


def ask_broker(address: str) -> BrokerFacts:
    """Ask a Redis about itself. Nothing is written there.

    Raises:
        redis.RedisError: it cannot be reached, refuses the password, or is loading.
        ValueError: the address cannot be understood.
    """
    with redis.Redis.from_url(
        address, socket_connect_timeout=PATIENCE_S, socket_timeout=PATIENCE_S, decode_responses=True, retry=None
    ) as client:
        info = dict(client.info())
        took, ahead = zip(*(_ask_time(client) for _ in range(PINGS)), strict=True)
        return BrokerFacts(info, _config(client), statistics.median(took), statistics.median(ahead))


def _ask_time(client: redis.Redis) -> tuple[float, float]:
    """Return how long an answer takes, and how far the broker's clock is ahead."""
    began_at, began = time.time(), time.monotonic()
    seconds, micros = client.time()
    took_s = time.monotonic() - began
    return took_s, int(seconds) + int(micros) / 1e6 - (began_at + took_s / 2)


def _config(client: redis.Redis) -> dict[str, str] | None:
    try:
        told: dict[Any, Any] = client.config_get("maxmemory-policy", "appendonly", "appendfsync")
    except redis.ResponseError:
        return None
    return {str(name): str(value) for name, value in told.items()}


def _no_answer(error: Exception) -> tuple[str, str]:
    words = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
    if isinstance(error, redis.AuthenticationError):
        return f"it refuses the password: {words}", "correct the password in BATCHRUN_BROKER"
    if isinstance(error, redis.BusyLoadingError):
        return "it is loading its data and takes nothing yet", "wait, and ask again"
    if isinstance(error, redis.ResponseError):
        return f"it refuses the question: {words}", "let this user run INFO and TIME, or name another user"
    return words, START


def _note_server(notes: Notes, facts: BrokerFacts) -> None:
    info = facts.info
    version = str(info.get("redis_version", "?"))
    other = next((name for name in ("valkey", "dragonfly", "keydb") if f"{name}_version" in info), None)
    name = f"{other.capitalize()} {info[f'{other}_version']}" if other else f"Redis {version}"
    notes.ok("reachable", f"{name}, answers in {1000 * facts.answer_s:.1f} ms")
    if _numbers(version) < OLDEST:
        notes.warn("version", f"{name} speaks Redis {version}, older than what the tests run with", "Redis 7 or later")
    if facts.answer_s > SLOW_S:
        said = f"an answer takes {1000 * facts.answer_s:.0f} ms"
        notes.warn("distance", said, "keep the broker near the workers")
    if info.get("role") == "slave":
        notes.fail("primary", "a replica, which takes no writes", "name the primary in BATCHRUN_BROKER")
    if info.get("cluster_enabled") in (1, "1"):
        said = "in cluster mode, which Celery's queues cannot use"
        notes.fail("cluster", said, "name a Redis that is no cluster")


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:2]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)


def _note_eviction(notes: Notes, facts: BrokerFacts) -> None:
    policy = (facts.config or {}).get("maxmemory-policy") or facts.info.get("maxmemory_policy")
    limit_bytes, used_bytes = int(facts.info.get("maxmemory", 0)), int(facts.info.get("used_memory", 0))
    if policy is None:
        notes.warn("eviction", "it does not tell its maxmemory-policy", "make sure that it is noeviction")
    elif policy != "noeviction":
        reach = "may be" if limit_bytes else "would be, were maxmemory set,"
        said = f"maxmemory-policy is {policy}: hints and rate limits {reach} thrown away"
        notes.warn("eviction", said, "redis-cli config set maxmemory-policy noeviction, and in redis.conf")
    else:
        notes.ok("eviction", "noeviction")
    if limit_bytes and used_bytes > NEARLY_FULL * limit_bytes:
        said = f"{used_bytes / limit_bytes:.0%} of its maxmemory is in use; full, it takes no hints"
        notes.warn("memory", said, "raise maxmemory, or give batchrun a Redis of its own")


def _note_persistence(notes: Notes, facts: BrokerFacts) -> None:
    info, config = facts.info, facts.config or {}
    told = config.get("appendonly")
    is_on = info.get("aof_enabled") in (1, "1") if told is None else told == "yes"
    sync = config.get("appendfsync")
    if info.get("aof_last_write_status", "ok") != "ok" or info.get("rdb_last_bgsave_status", "ok") != "ok":
        said = "its last write to disk failed; it may take nothing more"
        notes.fail("persistence", said, "make room on its disk, and look at its log")
    elif not is_on:
        said = (
            "no append-only file: a restart forgets hints (sent again) and rate windows (closed until one has passed)"
        )
        notes.warn("persistence", said, "redis-cli config set appendonly yes, and in redis.conf")
    elif sync == "no":
        said = "appendfsync is no: a power failure forgets what the system had not yet written"
        notes.warn("persistence", said, "redis-cli config set appendfsync everysec, and in redis.conf")
    else:
        notes.ok("persistence", f"append-only{f', synced {_often(sync)}' if sync else ''}")


def _often(sync: str) -> str:
    return {"everysec": "every second", "always": "at every write"}.get(sync, sync)


def _note_clock(notes: Notes, facts: BrokerFacts) -> None:
    apart_s = abs(facts.clock_ahead_s)
    if apart_s > CLOCK_S:
        said = f"its clock and this machine's differ by {apart_s:.1f} s: one is wrong, so waits may last too long"
        notes.warn("clock", said, "keep time with NTP on both (timedatectl set-ntp true)")
    else:
        notes.ok("clock", f"differs from this machine's by {1000 * apart_s:.0f} ms")


def _note_door(notes: Notes, address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme == "unix":
        return
    if parts.password is None and not is_loopback(address):
        said = "it asks for no password: whoever reaches it can stop every job"
        notes.warn("door", said, "set requirepass, and the password in BATCHRUN_BROKER")
    elif parts.scheme == "redis" and not is_local(address):
        said = "the password goes out in the clear to a public address"
        notes.warn("door", said, "use rediss://, or a private network")
