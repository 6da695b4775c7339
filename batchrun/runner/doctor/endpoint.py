"""The endpoint: does it answer, who is it, does it have the model, and what stands between? Nothing here is billed."""

import asyncio
import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from batchrun.core.outcome import CAUSES, Break, Reply
from batchrun.core.spec import JobSpec
from batchrun.endpoint.address import is_local, is_loopback, proxy_for
from batchrun.endpoint.classify import Profile, classify
from batchrun.endpoint.client import Endpoint
from batchrun.endpoint.key import NO_KEY, PLACEHOLDERS
from batchrun.endpoint.mask import Mask
from batchrun.endpoint.server import LITELLM_PATH, VERSION_PATHS, Model, Server, is_litellm, server_of, version_of
from batchrun.errors import BatchrunError
from batchrun.runner.doctor.finding import Check, Notes
from batchrun.runner.doctor.gateways import note_gateway
from batchrun.runner.effective import without_secret
from batchrun.runner.models import is_listed, models_words

GETS = 3
TIMEOUT_S = 2.4  # of one question
ENOUGH_S = 1.5  # after this long no further question is begun
SLOW_S = 1.0
CLOCK_S = 5.0  # a Date header has whole seconds
MOST_NAMED = 4
PATH = "/v1/models"


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint that jobs would go to."""

    base_url: str  # normalised
    named_by: str  # where the address came from
    key: str | BatchrunError  # cleaned, or why there is none
    key_from: str | None  # where the key came from; None: there is none
    specs: tuple[JobSpec, ...] = ()  # the jobs that would go there


def endpoint_check(target: Target) -> Check:
    """Return the look at an endpoint."""

    def look(notes: Notes) -> None:
        notes.ok("address", f"from {target.named_by}")
        _note_key(notes, target)
        if _note_way(notes, target.base_url):
            asyncio.run(_ask(notes, target))

    mend = "is the server up and reachable from here? curl -m 5 " + target.base_url + "/models"
    return Check("endpoint", target.base_url, look, silence=mend)


def no_endpoint_check(fault: BatchrunError) -> Check:
    """Return the look at an endpoint that is not named, or not so that it can be understood."""

    def look(notes: Notes) -> None:
        notes.fail("address", fault.message, fault.hint or "export OPENAI_BASE_URL=http://127.0.0.1:8000/v1")

    return Check("endpoint", None, look)


def _note_key(notes: Notes, target: Target) -> None:
    if isinstance(target.key, BatchrunError):
        notes.fail("key", target.key.message, target.key.hint or "set OPENAI_API_KEY")
    elif target.key_from is None or target.key == NO_KEY:
        notes.ok("key", "none set; a local server needs none unless it was started with one")
    elif target.key.lower() in PLACEHOLDERS and not is_local(target.base_url):
        notes.warn("key", f"{target.key_from} holds a placeholder, and this is no local server", "set the real key")
    elif target.base_url.startswith("http:") and not is_local(target.base_url):
        notes.warn("key", f"{target.key_from} would go out in the clear", f"https:{target.base_url[5:]}")
    else:
        notes.ok("key", f"set by {target.key_from} (not shown)")


def _note_way(notes: Notes, base_url: str) -> bool:
    """Note the proxy on the way; say whether the first name on it resolves.

    Resolving can take longer than anybody would wait, and must not hold up the end of the process: it is done here, in
    a thread that is left behind, before the client's own would do it.
    """
    try:
        proxy = proxy_for(base_url)
    except BatchrunError as fault:
        notes.fail("proxy", fault.message, fault.hint or "set NO_PROXY")
        return False
    host = urlsplit(base_url).hostname or ""
    if proxy is not None:
        told = f"requests go through {without_secret(proxy)}"
        if is_local(base_url):
            notes.warn("proxy", f"{told}, and {host!r} is a private address", f"export NO_PROXY={host}")
        else:
            notes.ok("proxy", told)
    elif is_loopback(base_url) and _has_proxy():
        notes.ok("proxy", "one is set in the environment; a loopback address never goes through it")
    first = urlsplit(proxy or base_url)
    try:
        socket.getaddrinfo(first.hostname, first.port or 443, type=socket.SOCK_STREAM)
    except OSError as error:
        notes.fail("reachable", f"name {first.hostname!r} does not resolve: {error.strerror}", CAUSES["dns"].hint)
        return False
    return True


def _has_proxy() -> bool:
    return proxy_for("http://example.org") is not None or proxy_for("https://example.org") is not None


async def _ask(notes: Notes, target: Target) -> None:
    key = target.key if isinstance(target.key, str) else NO_KEY
    took: list[float] = []
    async with Endpoint(target.base_url, key, timeout_s=TIMEOUT_S) as endpoint:
        began = time.monotonic()
        reply = await endpoint.get(PATH)
        while isinstance(reply, Reply) and time.monotonic() - began < ENOUGH_S:
            took.append(reply.timing.duration_s)
            if len(took) == GETS:
                break
            again = await endpoint.get(PATH)
            reply = again if isinstance(again, Reply) else reply
    if not _note_answer(notes, reply, took, target) or isinstance(reply, Break):
        return
    server, version = await _looked_closer(target.base_url, key, server_of(reply))
    if server.name is not None:
        notes.ok("server", f"{server.name}{f' {version}' if version else ''}")
    note_gateway(notes, server)
    _note_models(notes, server, target.specs)
    _note_clock(notes, reply)


def _note_answer(notes: Notes, reply: Reply | Break, took: Sequence[float], target: Target) -> bool:
    """Note how the question was answered; say whether the answer is worth reading on."""
    key = target.key if isinstance(target.key, str) else NO_KEY
    if isinstance(reply, Reply) and reply.status == 200:
        first, *others = (f"{1000 * one_s:.0f} ms" for one_s in took)
        said = f"GET {PATH}: {first}" + (f", then {', '.join(others)}" if others else "")
        if took and statistics.median(took) > SLOW_S:
            notes.warn("reachable", f"{said}: it is far away, or busy", "run nearer to it, or when it has less to do")
        else:
            notes.ok("reachable", said)
        return True
    evidence = classify(reply, path=PATH, profile=Profile(), mask=Mask(key))
    said, mend = evidence.message or "no usable answer", CAUSES[evidence.cause or "bad_json"].hint
    if isinstance(reply, Reply) and reply.status in (404, 405, 501):
        notes.warn("reachable", f"it answers, and lists no models: {said}", f"right address? else {mend}")
        return True
    if isinstance(reply, Reply) and 400 <= reply.status < 404 and key == NO_KEY:
        mend = "set OPENAI_API_KEY: this server seems to want a key"
    elif evidence.cause == "auth" and target.key_from is not None:
        mend = f"set a valid key in {target.key_from.split()[0]}"  # the variable that was looked at
    notes.fail("reachable" if isinstance(reply, Break) else "answer", said, mend)
    return False


async def _looked_closer(base_url: str, key: str, server: Server) -> tuple[Server, str | None]:
    """Return the server, and its version where it tells one: by pages that lie beside its /v1."""
    is_unknown = server.name is None and server.gateway is None
    path = LITELLM_PATH if is_unknown else VERSION_PATHS.get(server.name or "")
    if path is None or not base_url.endswith("/v1"):
        return server, None
    async with Endpoint(base_url.removesuffix("/v1"), key, timeout_s=TIMEOUT_S / 4) as root:
        reply = await root.get(path)
    if isinstance(reply, Break):
        return server, None
    if is_unknown:
        return (replace(server, gateway="LiteLLM") if is_litellm(reply) else server), None
    return server, version_of(reply)


def _note_models(notes: Notes, server: Server, specs: Sequence[JobSpec]) -> None:
    if server.models is None:
        notes.warn("models", "the answer is no list of models", "is it the API's address? the trial will show")
        return
    names = [model.name for model in server.models]
    if not specs:
        told = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED:,} more" if names[MOST_NAMED:] else "")
        notes.ok("models", f"{len(names):,}: {told}" if names else "none listed")
    for wanted in dict.fromkeys(spec.model for spec in specs):
        found = next((model for model in server.models if is_listed(wanted, [model.name])), None)
        if found is not None:
            _note_context(notes, found, max(spec.max_tokens for spec in specs if spec.model == wanted))
            continue
        said = f"{wanted!r} is not listed. {models_words(names, [wanted])}"
        if server.refuses_others:
            notes.fail("model", said, "correct `model` in the spec")
        else:
            notes.warn("model", said, "correct `model` in the spec, unless this server takes any name")


def _note_context(notes: Notes, model: Model, max_tokens: int) -> None:
    if model.context_tokens is not None and max_tokens >= model.context_tokens:
        said = f"max_tokens {max_tokens:,} leaves no room for a prompt: {model.name} holds {model.context_tokens:,}"
        notes.fail("model", said, "lower `max_tokens` in the spec")
    else:
        room = f", {model.context_tokens:,} tokens of context" if model.context_tokens else ""
        notes.ok("model", f"{model.name} is listed{room}")


def _note_clock(notes: Notes, reply: Reply) -> None:
    try:
        ahead_s = parsedate_to_datetime(reply.headers["date"]).timestamp() - reply.timing.ended_at
    except (KeyError, ValueError):
        return  # it does not tell
    if abs(ahead_s) > CLOCK_S:
        said = f"this machine's clock and the endpoint's differ by {abs(ahead_s):,.0f} s"
        notes.warn("clock", said, "keep time with NTP (timedatectl set-ntp true)")
    else:
        notes.ok("clock", f"agrees with the endpoint's to {abs(ahead_s):.0f} s")
