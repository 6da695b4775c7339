"""Carrying a plan out: each run is a job of its own, performed by the engine like any other, read from the ledger."""

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from batchrun import __version__
from batchrun.bench.gpus import Gpus
from batchrun.bench.lengths import Lengths
from batchrun.bench.plan import Candidate, Plan, Step
from batchrun.bench.session import MeasuredSession, Watch
from batchrun.bench.workload import Prompt, Prompts, RequestSet, Shape
from batchrun.core.line import NEEDED_FIELD, RESPONSES
from batchrun.core.measuring.document import (
    Event,
    Group,
    Measurement,
    Run,
    Series,
    Setup,
    Workload,
    time_text,
)
from batchrun.core.measuring.doubts import doubts
from batchrun.core.measuring.dues import closed_dues, scheduled_dues
from batchrun.core.measuring.figures import figures_of, steady_figures
from batchrun.core.measuring.timings import Measured
from batchrun.errors import EndpointFault
from batchrun.ledger.jobs import find_job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.measured import Requests, requests_of
from batchrun.runner.check import check_text
from batchrun.runner.drive import drive
from batchrun.runner.gear import Arrival, Gear, Voice
from batchrun.runner.hold import working
from batchrun.runner.submit import Overrides, effective_spec, register

Tokenizer = Callable[[Candidate, Sequence[bytes]], Sequence[int] | None]  # tokens of requests; None: it does not tell
PATIENCE = 3  # retries of what is in no figure: a single refusal must not end a measurement before it begins
PROBE_WORDS = (20, 200)  # of the prompts by which words are counted in tokens


@dataclass(frozen=True, slots=True)
class Means:
    """What a measurement works with."""

    ledger: Ledger
    gear: Gear
    voice: Voice
    gpus: Gpus | None = None
    tokenizer: Tokenizer = lambda candidate, bodies: None  # the server's own
    pause: Callable[[float], None] = time.sleep


@dataclass
class Result:
    """What has been measured so far, and why no more."""

    measurement: Measurement
    stopped: Arrival | None = None  # the job that ended the measurement early

    @property
    def exit_code(self) -> int:
        return 0 if self.stopped is None else self.stopped.exit_code


@dataclass
class _State:
    lengths: dict[str, Lengths] = field(default_factory=dict)
    counted_by: dict[str, Literal["usage", "tokenize"]] = field(default_factory=dict)
    servers: dict[str, str | None] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)


class StoppedError(Exception):
    """A job of the measurement ended before its requests did."""

    def __init__(self, arrival: Arrival) -> None:
        super().__init__(arrival.standing.job.task_id)
        self.arrival = arrival


def measure(
    plan: Plan,
    means: Means,
    *,
    told: Callable[[Step, Run | None], None],
    keep: Callable[[Measurement], None],
) -> Result:
    """Carry a plan out, to its end or to the first job that a guard or a signal stops.

    Args:
        told: called with each run when it begins (without a result), and when it has ended.
        keep: called after each run with all that was measured so far: a measurement that is stopped loses nothing.

    Raises:
        EndpointFault: the endpoint does not say how long prompts are.
    """
    state, prompts = _State(), Prompts(plan.seed, plan.id, plan.shared_prefix_tokens)
    plan.folder.mkdir(parents=True, exist_ok=True)
    stopped = None
    try:
        for number, step in enumerate(plan.steps()):
            candidate = next(one for one in plan.candidates if one.name == step.group)
            if step.group not in state.lengths:
                _get_to_know(plan, means, candidate, prompts, state)
            if number and plan.pause_s:
                means.pause(plan.pause_s)
            told(step, None)
            run = _run(plan, means, candidate, step, prompts, state)
            state.runs.append(run)
            keep(_document(plan, state))
            told(step, run)
    except StoppedError as stop:
        stopped = stop.arrival
    return Result(_document(plan, state), stopped)


# -- getting to know an endpoint ---------------------------------------------------------------------------------------


def _get_to_know(plan: Plan, means: Means, candidate: Candidate, prompts: Prompts, state: _State) -> None:
    """Find how many words make how many tokens here, and warm the endpoint up with requests like those that follow."""
    words = {f"{number:05d}": count for number, count in enumerate(PROBE_WORDS * 2)}
    exact = Lengths(0.0, 1.0)
    shapes = tuple(Shape(count, 1) for count in words.values())
    probes = Prompts(prompts.seed, prompts.nonce).write(
        RequestSet("probe", shapes), exact, run=f"probe {candidate.name}"
    )
    patient = partial(_perform, plan, means, candidate, retry_times=PATIENCE)
    told = means.tokenizer(candidate, [_body_of(plan, candidate, prompt) for prompt in probes])
    if told is None:
        watch = Watch()
        seen = patient(probes, f"{candidate.name}-probe", concurrency=1, watch=watch)
        state.servers[candidate.name] = watch.server
        pairs = [(words[one.name], one.prompt_tokens) for one in seen.requests if one.prompt_tokens is not None]
    else:
        pairs = [(words[prompt.name], tokens) for prompt, tokens in zip(probes, told, strict=True)]
    state.counted_by[candidate.name] = "usage" if told is None else "tokenize"
    state.lengths[candidate.name] = _lengths(candidate, pairs)
    if not plan.warm_up:
        return
    sizes = sorted(set(plan.requests.shapes))
    few = RequestSet("warm-up", tuple(sizes[number % len(sizes)] for number in range(plan.warm_up)))
    limit = plan.max_tokens[0] if plan.max_tokens else None
    warm = prompts.write(few.limited(limit), state.lengths[candidate.name], run=f"warm-up {candidate.name}")
    watch = Watch(server=state.servers.get(candidate.name))
    seen = patient(warm, f"{candidate.name}-warm-up", concurrency=plan.warm_up, watch=watch)
    state.servers[candidate.name] = watch.server
    counted = {prompt.name: prompt for prompt in warm}
    _correct(state, candidate, few, counted, seen.requests)


def _lengths(candidate: Candidate, pairs: Sequence[tuple[int, int]]) -> Lengths:
    try:
        return Lengths.through(pairs)
    except ValueError as error:
        raise EndpointFault(
            f"{candidate.base_url} does not say how many tokens a prompt has ({error}): lengths would be a guess",
            hint="measure an endpoint that reports `usage` or has `/tokenize`; vLLM, SGLang and llama.cpp do",
        ) from None


def _correct(
    state: _State, candidate: Candidate, few: RequestSet, sent: dict[str, Prompt], seen: Sequence[Measured]
) -> None:
    """Move the line by what the warm-up's prompts, of the very lengths that are wanted, were off."""
    known = [one for one in seen if one.prompt_tokens is not None and one.name in sent]
    if not known:
        return
    wanted = {f"{number:05d}": shape.prompt_tokens for number, shape in enumerate(few.shapes)}
    off = sum((one.prompt_tokens or 0) - wanted[one.name] for one in known) / len(known)
    line = state.lengths[candidate.name]
    state.lengths[candidate.name] = replace(line, fixed_tokens=line.fixed_tokens + off)


# -- one run -----------------------------------------------------------------------------------------------------------


def _run(plan: Plan, means: Means, candidate: Candidate, step: Step, prompts: Prompts, state: _State) -> Run:
    requests = plan.requests.limited(step.max_tokens)
    written = prompts.write(requests, state.lengths[candidate.name], run=step.name)
    due_s = None
    if not plan.pattern.is_closed:
        due_s = plan.pattern.schedule(len(written), step.level, seed=plan.seed + step.round_no)
    watch = Watch(due_s=due_s, gpus=means.gpus, server=state.servers.get(candidate.name))
    concurrency = plan.concurrency(step.level)
    seen = _perform(plan, means, candidate, written, step.name, concurrency=concurrency, watch=watch)
    state.servers[candidate.name] = watch.server
    limits = {prompt.name: prompt.max_tokens for prompt in written}
    measured = tuple(replace(one, max_tokens=limits[one.name]) for one in seen.requests)
    if due_s is None:
        measured = closed_dues(measured, concurrency=concurrency)
    else:
        names = [prompt.name for prompt in written]
        lead_s = (watch.began_s or 0.0) - (seen.began_s or 0.0) if seen.began_s is not None else 0.0
        measured = scheduled_dues(measured, {name: at + lead_s for name, at in zip(names, due_s, strict=True)})
    figures = figures_of(measured, targets=plan.targets)
    run = Run(
        group=step.group,
        round_no=step.round_no,
        level=step.level,
        max_tokens=step.max_tokens,
        started_at=time_text(datetime.fromtimestamp(seen.began_at, UTC)),
        duration_s=figures.duration_s,
        figures=figures,
        steady=steady_figures(measured, concurrency=concurrency if due_s is None else None, targets=plan.targets),
        requests=measured,
        events=tuple(Event(round(at - seen.began_at, 3), "throttled", words) for at, words in watch.pauses),
        observations=_observed(watch, seen.began_at),
    )
    shared = plan.shared_prefix_tokens / plan.requests.mean_prompt_tokens
    return replace(run, warnings=tuple(doubts(run, shared_share=shared)) + (watch.seen.warnings if watch.seen else ()))


def _observed(watch: Watch, began_at: float) -> dict[str, Series]:
    """Return what was observed, in seconds of the run and not of the observer, who came a little earlier."""
    if watch.seen is None:
        return {}
    early_s = began_at - watch.seen.began_at
    return {
        name: replace(one, at_s=tuple(round(at - early_s, 3) for at in one.at_s))
        for name, one in watch.seen.observation().series.items()
    }


def _perform(
    plan: Plan,
    means: Means,
    candidate: Candidate,
    prompts: Sequence[Prompt],
    name: str,
    *,
    concurrency: int,
    watch: Watch,
    retry_times: int = 0,
) -> Requests:
    """Make a job of prompts, perform it, and read its times.

    Raises:
        StoppedError: it has not ended.
    """
    task_id = f"{plan.id}-{name}"
    source = plan.folder / f"{name}.jsonl"
    source.write_text("".join(json.dumps(_line(plan, prompt)) + "\n" for prompt in prompts), encoding="utf-8")
    spec = {
        "task_id": task_id,
        "model": candidate.model,
        "input_file": str(source),
        "output_file": str(plan.folder / f"{name}.answers.jsonl"),
        "max_tokens": max(prompt.max_tokens for prompt in prompts),
        "concurrency": concurrency,
        "retry_times": retry_times,
        "base_url": candidate.base_url,
        "endpoint": plan.endpoint,
        "params": plan.params,
        "timeout_s": plan.timeout_s,
        "measure": True,
        "metadata": {"measurement": plan.id},
    } | ({} if plan.api_key_env is None else {"api_key_env": plan.api_key_env})
    checked = check_text(json.dumps(spec), where=f"measurement {plan.id}")
    overrides = Overrides(trial_size=0, addresses=(candidate.base_url,))
    with working(means.ledger, means.gear, concurrency=concurrency) as worker:
        register(means.ledger, checked, spec=effective_spec(checked, overrides), worker_id=worker.id)
        arrival = drive(
            means.ledger,
            task_id,
            gear=means.gear,
            voice=means.voice,
            worker=worker,
            make_session=partial(MeasuredSession, watch=watch),
        )
    if arrival.end is not None and (arrival.end.signal is not None or arrival.end.trip is not None):
        raise StoppedError(arrival)
    with means.ledger.read() as connection:
        return requests_of(connection, find_job(connection, task_id).id)


def _line(plan: Plan, prompt: Prompt) -> dict[str, object]:
    limit = "max_output_tokens" if plan.endpoint == RESPONSES else "max_tokens"
    body = {**_asked(plan, prompt), limit: prompt.max_tokens}
    return {"custom_id": prompt.name, "method": "POST", "url": plan.endpoint, "body": body}


def _asked(plan: Plan, prompt: Prompt) -> dict[str, object]:
    field = NEEDED_FIELD[plan.endpoint]
    return {field: [{"role": "user", "content": prompt.text}] if field == "messages" else prompt.text}


def _body_of(plan: Plan, candidate: Candidate, prompt: Prompt) -> bytes:
    return json.dumps({"model": candidate.model, **_asked(plan, prompt)}).encode()


# -- the document ------------------------------------------------------------------------------------------------------


def _document(plan: Plan, state: _State) -> Measurement:
    groups = tuple(
        Group(
            name=one.name,
            base_url=one.base_url,
            model=one.model,
            endpoint=plan.endpoint,
            server=state.servers.get(one.name),
            params=plan.params,
        )
        for one in plan.candidates
    )
    limits = sorted({shape.max_tokens for shape in plan.requests.shapes})
    workload = Workload(
        name=plan.requests.name,
        requests=len(plan.requests.shapes),
        prompt_tokens=plan.requests.mean_prompt_tokens,
        max_tokens=plan.max_tokens or tuple(limits),
        seed=plan.seed,
        is_varied=True,
        shared_prefix_tokens=plan.shared_prefix_tokens,
        counted_by="tokenize" if set(state.counted_by.values()) == {"tokenize"} else "usage",
        is_shuffled=True,
    )
    setup = Setup(
        groups=groups,
        workload=workload,
        arrivals=plan.pattern.described(plan.levels, plan.most_in_flight),
        rounds=plan.rounds,
        warm_up=plan.warm_up,
        pause_s=plan.pause_s,
        targets=dict(plan.targets.by_name),
        versions={"batchrun": __version__, "python": platform.python_version()},
        machine={"system": platform.system(), "machine": platform.machine(), "cpus": os.cpu_count() or 0},
    )
    return Measurement(id=plan.id, made_at=time_text(datetime.now(UTC)), setup=setup, runs=tuple(state.runs))
