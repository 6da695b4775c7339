"""Settings into objects: the only place that knows all classes. A command opens a house and makes one runner call."""

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from batchrun.core.answer_check import AnswerCheck, check_of, judged
from batchrun.core.outcome import Break, Evidence, Reply
from batchrun.core.prices import Price
from batchrun.core.rate import RateWindows
from batchrun.core.rate_book import LocalWindows
from batchrun.core.states import AttemptState
from batchrun.endpoint.address import is_local, normalise_base_url
from batchrun.endpoint.classify import Profile, classify
from batchrun.endpoint.client import Endpoint
from batchrun.endpoint.key import clean_key, fingerprint
from batchrun.endpoint.mask import Mask
from batchrun.errors import EndpointFault, UsageFault
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.opening import open_ledger
from batchrun.queue.broker import SCHEMES, BrokerQueue
from batchrun.queue.embedded import EmbeddedQueue
from batchrun.queue.windows import RedisWindows
from batchrun.runner.clocks import boot_clock
from batchrun.runner.ends import Waits
from batchrun.runner.gear import Gear
from batchrun.runner.means import Rules
from batchrun.runner.policy import make_policy
from batchrun.settings import Settings


def check_broker(settings: Settings) -> None:
    """Check the broker's address.

    Raises:
        UsageFault: it is not Redis.
    """
    if settings.broker is not None and (kind := settings.broker.partition("://")[0]) not in SCHEMES:
        raise UsageFault(f"the broker must be Redis, found {kind!r}", hint="BATCHRUN_BROKER=redis://127.0.0.1:6379/0")


def resolve_base_url(settings: Settings, spec_base_url: str | None, stored: str | None = None) -> str:
    """Return the endpoint's address: the spec's, else the environment's, else the one stored with the job.

    Raises:
        EndpointFault: there is none, or it cannot be understood.
    """
    text = spec_base_url or settings.base_url or stored
    if text is None:
        raise EndpointFault(
            "no endpoint is named",
            hint="export OPENAI_BASE_URL=http://127.0.0.1:8000/v1, or set base_url in the spec",
        )
    return normalise_base_url(text)


def resolve_api_key(settings: Settings, base_url: str, variable: str | None) -> str:
    """Return the key for this address, cleaned; "EMPTY" where a local endpoint needs none.

    Raises:
        EndpointFault: there is none for a remote endpoint, or it cannot be a key.
    """
    if variable is not None:
        raw = os.environ.get(variable)
        if raw is None and not is_local(base_url):
            raise EndpointFault(f"the variable {variable!r} (api_key_env) is not set", hint=f"export {variable}=...")
    else:
        raw = settings.reveal_key()
    return clean_key(raw, base_url=base_url)


@dataclass(frozen=True, slots=True)
class House:
    """One process's ledger and settings, and the gear to perform jobs with."""

    settings: Settings
    ledger: Ledger

    def gear(self) -> Gear:
        """Return what a drive needs: how to reach, judge, price, retry, queue and wait, for any job of this ledger."""
        check_broker(self.settings)
        return Gear(
            endpoint_of=self._endpoint,
            rules_of=self._rules,
            account_of=self._account,
            windows_of=self._windows,
            is_free=lambda job: _price(job) is None and is_local(self._access(job)[0]),
            queue_of=EmbeddedQueue,
            waits_of=self._waits,
            dead_after_s=self.settings.dead_after_s,
            worker_name=self.settings.worker_name or f"{socket.gethostname()}-{os.getpid()}",
        )

    def broker_queue(self) -> BrokerQueue:
        """Return the queue that this ledger's workers share.

        Raises:
            UsageFault: no broker is named, or it is not Redis.
        """
        check_broker(self.settings)
        if self.settings.broker is None:
            raise UsageFault(
                "a worker needs a broker: without one, submit does all the work itself",
                hint="export BATCHRUN_BROKER=redis://127.0.0.1:6379/0",
            )
        return BrokerQueue(self.settings.broker, ledger_id=self.ledger.ledger_id)

    def _access(self, job: Job) -> tuple[str, str]:
        base_url = resolve_base_url(self.settings, job.spec["base_url"], job.spec.get("resolved_base_url"))
        return base_url, resolve_api_key(self.settings, base_url, job.spec["api_key_env"])

    def _endpoint(self, job: Job) -> Endpoint:
        base_url, key = self._access(job)
        return Endpoint(
            base_url,
            key,
            concurrency=job.concurrency,
            timeout_s=job.spec["timeout_s"],
            lookup=job.spec.get("lookup"),
            idempotency_header=job.spec.get("idempotency_header"),
            is_measured=job.spec.get("measure", False),
        )

    def _account(self, job: Job) -> str:
        """Return a fingerprint of the job's key, of use in this ledger only: from it no key can be told."""
        _, key = self._access(job)
        return fingerprint(key, salt=self.ledger.ledger_id)

    def _windows(self, job: Job) -> RateWindows:
        if self.settings.broker is None:
            return LocalWindows(clock=boot_clock)
        return RedisWindows(self.settings.broker, ledger_id=self.ledger.ledger_id, job_id=job.id, clock=boot_clock)

    def _rules(self, job: Job) -> Rules:
        _, key = self._access(job)
        statuses = (frozenset(job.spec["unknown_statuses"]), frozenset(job.spec["refused_statuses"]))
        policy = make_policy(
            on_unknown=job.on_unknown,
            retry_times=job.retry_times,
            chance=random.random,
            first_wait_s=self.settings.first_wait_s,
            longest_wait_s=self.settings.longest_wait_s,
            throttle_budget_s=self.settings.throttle_budget_s,
            reask=job.spec.get("reask", 0),
        )
        honours_keys = job.spec.get("idempotency_header") is not None
        account = fingerprint(key, salt=self.ledger.ledger_id) if honours_keys else None
        return Rules(Judge(Profile(*statuses), Mask(key), check_of(job.spec)), _price(job), policy, account)

    def _waits(self, job: Job) -> Waits:
        own = self.settings.drain_timeout_s
        return Waits(
            idle_claim_s=self.settings.idle_claim_s,
            never_reached_s=self.settings.never_reached_s,
            probe_s=self.settings.probe_s,
            drain_s=job.spec["timeout_s"] if own is None else own,
            heartbeat_s=self.settings.heartbeat_s,
            refused_s=self.settings.refused_s,
            dead_after_s=self.settings.dead_after_s,
        )


@dataclass(frozen=True, slots=True)
class Judge:
    """Classifies one job's replies."""

    profile: Profile
    mask: Mask
    check: AnswerCheck | None  # what is asked of answers beside their form

    def __call__(self, exchange: Reply | Break, path: str) -> Evidence:
        evidence = self._evidence(exchange, path)
        return evidence if self.check is None else judged(evidence, self.check)

    def clean(self, reply: Reply, path: str) -> Reply:
        return self.mask.reply(reply, is_answer=lambda: self._evidence(reply, path).outcome is AttemptState.ANSWERED)

    def _evidence(self, exchange: Reply | Break, path: str) -> Evidence:
        return classify(exchange, path=path, profile=self.profile, mask=self.mask)


def _price(job: Job) -> Price | None:
    price = job.spec["price"]
    return None if price is None else Price.model_validate(price)


@contextmanager
def open_house(settings: Settings, *, makes_ledger: bool = False) -> Iterator[House]:
    """Open the ledger and all that belongs to it, and close it at the end.

    Raises:
        JobNotFound: there is no ledger, and none is to be made.
    """
    with open_ledger(settings, makes_one=makes_ledger) as ledger:
        yield House(settings, ledger)
