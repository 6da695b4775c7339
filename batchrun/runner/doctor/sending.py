"""One real request, for those who want to see an answer: a few tokens, which may be billed, outside of any ledger."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from batchrun.core.line import RESPONSES, TOKEN_LIMITS, row_body
from batchrun.core.outcome import CAUSES, Charge, Evidence
from batchrun.core.request import Defaults, Request, build_request
from batchrun.core.spec import JobSpec
from batchrun.core.states import AttemptState
from batchrun.endpoint.classify import Profile, classify
from batchrun.endpoint.client import Endpoint
from batchrun.endpoint.mask import Mask
from batchrun.runner.doctor.finding import Check, Notes

WORDS = "Say yes."
LIMIT_S = 30.0  # a model that sleeps must first be woken
LEAST_OUTPUT_TOKENS = 16  # of the Responses API; the others take 1
SEVERAL = ("n", "best_of")


def sending_check(spec: JobSpec, *, base_url: str, key: str) -> Check:
    """Return the sending of one request as the job would send it, but for its length."""

    def look(notes: Notes) -> None:
        request = tiny_request(spec)
        _note(notes, asyncio.run(_send(request, spec, base_url, key)), request)

    silence = "look at the endpoint's own log: the request is there, and may be billed"
    return Check("request", f"{spec.model} at {base_url}", look, silence=silence, limit_s=LIMIT_S + 1)


def tiny_request(spec: JobSpec) -> Request:
    """Make the request: the job's model and params, a fixed prompt of two words, one token of answer."""
    least = LEAST_OUTPUT_TOKENS if spec.endpoint == RESPONSES else 1
    params: Mapping[str, Any] = {
        name: least if name in TOKEN_LIMITS else value for name, value in spec.params.items() if name not in SEVERAL
    }
    defaults = replace(Defaults.of(spec), max_tokens=least, params=params, system=None, prompt_template=None)
    return build_request(row_body(WORDS, endpoint=spec.endpoint), defaults)


async def _send(request: Request, spec: JobSpec, base_url: str, key: str) -> Evidence:
    async with Endpoint(base_url, key, concurrency=1, timeout_s=LIMIT_S) as endpoint:
        attempt_id = f"br-doctor-{secrets.token_hex(6)}"
        exchange = await endpoint.exchange(path=request.path, body=request.body, attempt_id=attempt_id)
    profile = Profile(frozenset(spec.unknown_statuses), frozenset(spec.refused_statuses))
    return classify(exchange, path=request.path, profile=profile, mask=Mask(key))


def _note(notes: Notes, evidence: Evidence, request: Request) -> None:
    took_s = evidence.timing.duration_s if evidence.timing else 0.0
    billed = {Charge.NONE: "not billed", Charge.POSSIBLE: "possibly billed"}.get(evidence.charge, "billed as usage")
    if evidence.outcome is AttemptState.ANSWERED:
        usage = evidence.usage
        tokens = (
            f"{usage.prompt_tokens} tokens in, {usage.completion_tokens or 0} out" if usage.is_known else "no usage"
        )
        notes.ok("answered", f"{request.path} in {took_s:.2f} s: {tokens} ({billed})")
        return
    said = f"{request.path}: {evidence.message or evidence.outcome} ({billed})"
    notes.fail(str(evidence.outcome), said, CAUSES[evidence.cause or "bad_json"].hint)
