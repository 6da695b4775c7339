"""Settings into objects: the only place that knows all classes. A command opens a house and makes one runner call."""

import os
import random
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from urllib.parse import urlsplit

from batchrun.core.answer_check import AnswerCheck, check_of, judged
from batchrun.core.outcome import Break, Evidence, Reply
from batchrun.core.prices import Price
from batchrun.core.rate import Limits, RateWindows
from batchrun.core.rate_book import LocalWindows
from batchrun.core.spec import EndpointSpec, names_of
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
from batchrun.runner.means import Rules, Way
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
class Access:
    """One endpoint of a job: where it is, with which key, and what may be asked of it."""

    base_url: str  # normalised
    key: str  # cleaned
    own: EndpointSpec | None = None  # what the spec says of it, where it names several
    name: str = ""  # by which the ledger knows it: the address, mostly

    @property
    def account(self) -> str:
        """Whose answers and whose bills they are: of this key, and of the model that is asked for with it."""
        return self.key if self.own is None or self.own.model is None else f"{self.key}\n{self.own.model}"

    def price(self, of_job: Price | None) -> Price | None:
        return of_job if self.own is None or self.own.price is None else self.own.price


@dataclass(frozen=True, slots=True)
class Named:
    """One endpoint as a spec names it, before its key is looked for."""

    base_url: str  # normalised
    variable: str | None = None  # that holds its key; None: the settings' own does
    own: EndpointSpec | None = None
    has_key: bool = True  # false: whose key it would be nobody has said, and it is local
    name: str = ""  # by which the ledger knows it

    def access(self, settings: Settings) -> Access:
        """Find its key.

        Raises:
            EndpointFault: there is none, or it cannot be a key.
        """
        if not self.has_key:
            return Access(self.base_url, clean_key(None, base_url=self.base_url), self.own, self.name)
        return Access(self.base_url, resolve_api_key(settings, self.base_url, self.variable), self.own, self.name)


def name_endpoints(
    settings: Settings,
    *,
    base_url: str | None,
    api_key_env: str | None,
    endpoints: Sequence[EndpointSpec] = (),
    stored: str | None = None,
) -> list[Named]:
    """Return every endpoint of a spec: those that it names, or the one that it or the environment does.

    An endpoint without a variable of its own has the job's. Where neither names one, OPENAI_API_KEY goes to one host
    and no further: to the only one, or to the only one that is not local.

    Raises:
        EndpointFault: an address is missing, cannot be right, or stands twice; or one key would go to several hosts.
    """
    if not endpoints:
        address = resolve_base_url(settings, base_url, stored)
        return [Named(address, api_key_env, name=address)]
    places = [(normalise_base_url(one.base_url), one.api_key_env or api_key_env) for one in endpoints]
    if twice := next((address for address, variable in places if places.count((address, variable)) > 1), None):
        hint = "name each address once, and give it more weight; or each time with another api_key_env"
        raise EndpointFault(f"'endpoints' names {twice} twice", hint=hint)
    named = [
        Named(address, variable, one, name=name)
        for one, (address, variable), name in zip(endpoints, places, names_of(places), strict=True)
    ]
    nobodys = [one.base_url for one in named if one.variable is None]
    remote = {_host(address) for address in nobodys if not is_local(address)}
    if len(remote) > 1:
        raise EndpointFault(
            f"which key is for which endpoint is not said: {', '.join(sorted(remote))} would get the same one",
            hint="add api_key_env to each of the endpoints, or to the spec if one key is for all of them",
        )
    hosts = remote or {_host(address) for address in nobodys}
    return [replace(one, has_key=one.variable is not None or hosts == {_host(one.base_url)}) for one in named]


def _host(address: str) -> str:
    return urlsplit(address).hostname or ""


@dataclass(frozen=True, slots=True)
class House:
    """One process's ledger and settings, and the gear to perform jobs with."""

    settings: Settings
    ledger: Ledger

    def gear(self) -> Gear:
        """Return what a drive needs: how to reach, judge, price, retry, queue and wait, for any job of this ledger."""
        check_broker(self.settings)
        return Gear(
            ways_of=self._ways,
            rules_of=self._rules,
            account_of=self._account,
            windows_of=self._windows,
            is_free=self._is_free,
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

    def _access(self, job: Job) -> list[Access]:
        named = name_endpoints(
            self.settings,
            base_url=job.spec["base_url"],
            api_key_env=job.spec["api_key_env"],
            endpoints=[EndpointSpec.model_validate(one) for one in job.spec.get("endpoints") or ()],
            stored=job.spec.get("resolved_base_url"),
        )
        return [one.access(self.settings) for one in named]

    def _ways(self, job: Job) -> list[Way]:
        return [self._way(job, access) for access in self._access(job)]

    def _way(self, job: Job, access: Access) -> Way:
        endpoint = Endpoint(
            access.base_url,
            access.key,
            timeout_s=job.spec["timeout_s"],
            lookup=job.spec.get("lookup"),
            idempotency_header=job.spec.get("idempotency_header"),
            is_measured=job.spec.get("measure", False),
            renames=None if access.own is None or access.own.model is None else (job.spec["model"], access.own.model),
        )
        own = access.own
        if own is None:
            return Way(endpoint)
        return Way(endpoint, own.weight, own.concurrency, Limits(own.rpm, own.tpm), access.name, own.model)

    def _account(self, job: Job, address: str) -> str:
        """Return a fingerprint of the key for an address, of use in this ledger only: from it no key can be told."""
        account = next(access.account for access in self._access(job) if access.name == address)
        return fingerprint(account, salt=self.ledger.ledger_id)

    def _is_free(self, job: Job) -> bool:
        price = _price(job)
        return all(access.price(price) is None and is_local(access.base_url) for access in self._access(job))

    def _windows(self, job: Job, way: Way) -> RateWindows:
        if self.settings.broker is None:
            return LocalWindows(clock=boot_clock)
        book = (
            str(job.id)
            if way.limits is None
            else f"{job.id}:{blake2b(way.address.encode(), digest_size=8).hexdigest()}"
        )
        return RedisWindows(self.settings.broker, ledger_id=self.ledger.ledger_id, book=book, clock=boot_clock)

    def _rules(self, job: Job) -> Rules:
        accesses = self._access(job)
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
        price = _price(job)
        accounts = {one.name: fingerprint(one.account, salt=self.ledger.ledger_id) for one in accesses}
        honours_keys = job.spec.get("idempotency_header") is not None
        return Rules(
            Judge(Profile(*statuses), Mask(*(one.key for one in accesses)), check_of(job.spec)),
            price,
            policy,
            accounts[accesses[0].name] if honours_keys else None,
            prices={one.name: one.price(price) for one in accesses},
            accounts=accounts if honours_keys else {},
        )

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
