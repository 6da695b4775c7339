"""One real request, for those who want to see an answer: a few tokens, which may be billed, outside of any ledger."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from batchrun.core.line import RESPONSES, TOKEN_LIMITS, row_body
from batchrun.core.outcome import CAUSES, Break, Charge, Evidence, Reply
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


KEY_HEADER = "Idempotency-Key"  # tried where the spec names none
REPLAY_MARK = "idempotent-replayed"


def sending_check(spec: JobSpec, *, base_url: str, key: str, probes_replay: bool = False) -> Check:
    """Return the sending of one request as the job would send it, but for its length.

    Args:
        probes_replay: send it twice, under one idempotency key, and see whether the second is the first one's answer.
    """

    def look(notes: Notes) -> None:
        request = tiny_request(spec)
        sent = asyncio.run(_send(request, spec, base_url, key, times=2 if probes_replay else 1))
        _note(notes, sent[0][1], request)
        if probes_replay and sent[1:]:
            _note_replay(notes, sent, spec.idempotency_header or KEY_HEADER)

    silence = "look at the endpoint's own log: the request is there, and may be billed"
    limit_s = LIMIT_S * (2 if probes_replay else 1) + 1
    return Check("request", f"{spec.model} at {base_url}", look, silence=silence, limit_s=limit_s)


def tiny_request(spec: JobSpec) -> Request:
    """Make the request: the job's model and params, a fixed prompt of two words, one token of answer."""
    least = LEAST_OUTPUT_TOKENS if spec.endpoint == RESPONSES else 1
    params: Mapping[str, Any] = {
        name: least if name in TOKEN_LIMITS else value for name, value in spec.params.items() if name not in SEVERAL
    }
    defaults = replace(Defaults.of(spec), max_tokens=least, params=params, system=None, prompt_template=None)
    return build_request(row_body(WORDS, endpoint=spec.endpoint), defaults)


_Sent = tuple[Reply | Break, Evidence]


async def _send(request: Request, spec: JobSpec, base_url: str, key: str, *, times: int) -> list[_Sent]:
    """Send it, and while it is answered send it again; more than once only under one idempotency key."""
    profile = Profile(frozenset(spec.unknown_statuses), frozenset(spec.refused_statuses))
    name, sent = f"br-doctor-{secrets.token_hex(6)}", []
    header = (spec.idempotency_header or KEY_HEADER) if times > 1 else None
    async with Endpoint(base_url, key, timeout_s=LIMIT_S, idempotency_header=header) as endpoint:
        for number in range(times):
            exchange = await endpoint.exchange(
                path=request.path, body=request.body, attempt_id=f"{name}-{number + 1}", idempotency_key=name
            )
            evidence = classify(exchange, path=request.path, profile=profile, mask=Mask(key))
            sent.append((exchange, evidence))
            if evidence.outcome is not AttemptState.ANSWERED:
                break
    return sent


def _note_replay(notes: Notes, sent: Sequence[_Sent], header: str) -> None:
    """Say whether the second answer is the first one, given again."""
    (_, first), (reply, second) = sent
    if second.outcome is not AttemptState.ANSWERED:
        said = f"the second request under one {header} was not answered: {second.message}"
        notes.warn("replay", said, "try again; leave `idempotency_header` out of the spec until it replays")
        return
    is_marked = isinstance(reply, Reply) and reply.headers.get(REPLAY_MARK, "").lower() == "true"
    is_same = first.response_id is not None and first.response_id == second.response_id
    if is_marked or is_same:
        notes.ok("replay", f"the same answer came again under one {header}: `reconcile --replay` settles doubts")
    else:
        said = f"another answer came under the same {header}: it does not replay, and may have billed both"
        notes.warn("replay", said, "leave `idempotency_header` out of the spec")


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
