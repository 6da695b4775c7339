"""`batchrun bench`."""

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import ask, emit, put, put_whole, say
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchrun.bench.measure import Tokenizer
    from batchrun.bench.plan import Candidate, Plan, Step
    from batchrun.core.measuring.document import Measurement, Run
    from batchrun.core.measuring.targets import Targets
    from batchrun.settings import Settings

FOLDER = Path("measurements")
LIMIT_S = 10.0  # of asking an endpoint for its models
Numbers = tuple[float, ...]


class NumberList(click.ParamType[Numbers]):
    """Numbers above 0 with commas between them."""

    name = "n,n,..."

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Numbers:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(float(word) for word in str(value).split(",") if word.strip())
        except ValueError:
            numbers = ()
        if not numbers or not all(0 < one < 1e6 and (one.is_integer() or not self._is_whole) for one in numbers):
            self.fail(f"{value!r} is no list of numbers such as 1,4,8", param, ctx)
        return tuple(dict.fromkeys(numbers))


@make_command("batchrun bench -m turbo-opt --goodput ttft:2000 tpot:100")
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@click.option("-m", "--model", help="The model (default: the only one that the endpoint lists).")
@click.option("--base-url", metavar="URL", help="The endpoint (default: OPENAI_BASE_URL).")
@click.option("--against", metavar="URL", help="A second endpoint, measured in turn: A B B A A B.")
@click.option("--against-model", metavar="MODEL", help="The model there (default: the same).")
@click.option(
    "-w",
    "--workload",
    default="short",
    show_default=True,
    metavar="SET",
    help="short, medium, long, mixed, outliers, or 300x64.",
)
@click.option(
    "-n", "--requests", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Requests of each run."
)
@click.option(
    "-c",
    "--concurrency",
    type=NumberList(is_whole=True),
    default="1,4,8,16,32",
    show_default=True,
    help="Requests out at once, one load after the other.",
)
@click.option(
    "--rate", type=NumberList(is_whole=False), help="Arrivals a second instead, whatever has been answered by then."
)
@click.option("--arrivals", metavar="PATTERN", help="Of --rate: poisson, gamma[:BURSTINESS] or wave[:SECONDS].")
@click.option(
    "--max-tokens", type=NumberList(is_whole=True), help="Limits of the answers, one after the other: 64,128,256,512."
)
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Runs of each load.")
@click.option(
    "--warm-up", type=click.IntRange(0, 1_000), default=4, show_default=True, help="Requests before the first run."
)
@click.option(
    "--pause",
    type=click.FloatRange(0, 3_600),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Seconds between two runs.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the texts, their order and the arrivals."
)
@click.option(
    "--shared-prefix", type=click.IntRange(0, 1_000_000), default=0, metavar="TOKENS", help="Begin all prompts alike."
)
@click.option("--goodput", multiple=True, metavar="TARGET", help="Most ms of a good request: ttft:, tpot:, e2el:.")
@click.option(
    "--attain",
    type=click.FloatRange(0, 100),
    default=99.0,
    show_default=True,
    metavar="PERCENT",
    help="Share that must be good.",
)
@click.option("--param", "params", multiple=True, metavar="NAME=JSON", help="A body field of every request.")
@click.option("--ignore-eos", is_flag=True, help="Answers of full length (vLLM, SGLang).")
@click.option("--completions", is_flag=True, help="Ask /v1/completions, not chat.")
@click.option("--responses", is_flag=True, help="Ask /v1/responses, not chat.")
@click.option(
    "--timeout", type=click.FloatRange(1, 86_400), default=600.0, show_default=True, metavar="S", help="Of one request."
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The result file.")
@click.option(
    "--format", "style", type=click.Choice(["table", "vllm"]), default="table", help="vllm: a JSON line each run."
)
def command(context: Context, **flags: Any) -> int:
    """Measure an endpoint: latencies, throughput and goodput under one load after the other.

    Each run is a job like any other: its requests stand in the ledger. The result, with every single request, is one
    JSON file. Ends with 7 where targets are given and no load meets them.
    """
    from batchrun.bench.gpus import find_gpus
    from batchrun.bench.measure import Means, measure
    from batchrun.core.measuring.document import Measurement
    from batchrun.endpoint.address import is_local

    plan, output = _plan(context, flags), flags["output"]
    path = output or FOLDER / f"{plan.id}.json"
    total = sum(1 for _ in plan.steps()) * len(plan.requests.shapes)
    remote = [one.base_url for one in plan.candidates if not is_local(one.base_url)]
    if remote and not ask(context, f"send about {total:,} requests to {remote[0]}?"):
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)

    def keep(measurement: Measurement) -> None:
        path.write_text(measurement.to_json(), encoding="utf-8")

    with context.house(makes_ledger=True) as house:
        means = Means(
            house.ledger, house.gear(), _voice(context), find_gpus(), tokenizer=_tokenizer(context.settings())
        )
        result = measure(plan, means, told=lambda step, run: _tell(context, plan, step, run), keep=keep)
    keep(result.measurement)
    if result.stopped is not None:
        standing = result.stopped.standing
        say(context, f"stopped by {standing.job.task_id}: {standing.job.message or 'a signal'}")
    _show(context, result.measurement, style=flags["style"], attain=flags["attain"] / 100)
    if not context.json:
        say(context, f"result  {path}")
    return result.exit_code or _verdict(result.measurement, flags["attain"] / 100)


def _plan(context: Context, flags: dict[str, Any]) -> "Plan":
    from batchrun.bench.arrivals import Pattern
    from batchrun.bench.plan import Plan
    from batchrun.bench.workload import RequestSet

    if flags["rate"] is None and flags["arrivals"] not in (None, "closed"):
        raise UsageFault("--arrivals without --rate", hint="say how many a second: --rate 2,4")
    pattern = Pattern.parse(flags["arrivals"] or ("closed" if flags["rate"] is None else "poisson"))
    if pattern.is_closed and flags["rate"] is not None:
        raise UsageFault("closed arrivals have no rate", hint="use --concurrency, or --arrivals poisson")
    measurement_id = f"bench-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    output: Path | None = flags["output"]
    requests = RequestSet.named(flags["workload"], flags["requests"])
    targets = _targets(flags)  # what is typed wrongly is said before anything is asked
    params = _params(flags)
    return Plan(
        id=measurement_id,
        folder=(FOLDER if output is None else output.parent) / measurement_id,
        candidates=_candidates(context.settings(), flags),
        requests=requests,
        seed=flags["seed"],
        pattern=pattern,
        levels=flags["concurrency"] if flags["rate"] is None else flags["rate"],
        max_tokens=tuple(int(one) for one in flags["max_tokens"] or ()),
        rounds=flags["rounds"],
        warm_up=flags["warm_up"],
        pause_s=flags["pause"],
        shared_prefix_tokens=flags["shared_prefix"],
        endpoint=_path(flags),
        params=params,
        targets=targets,
        timeout_s=flags["timeout"],
    )


def _path(flags: dict[str, Any]) -> str:
    if flags["completions"] and flags["responses"]:
        raise UsageFault("--completions and --responses are two paths", hint="measure one after the other")
    return f"/v1/{'completions' if flags['completions'] else 'responses' if flags['responses'] else 'chat/completions'}"


def _targets(flags: dict[str, Any]) -> "Targets":
    from batchrun.core.measuring.targets import Targets

    try:
        return Targets.parse([*flags["goodput"], *flags["targets"]])
    except ValueError as error:
        raise UsageFault(str(error), hint="--goodput ttft:2000 tpot:100 e2el:30000") from None


def _params(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the body fields: temperature 0 and the seed, so that two measurements ask the same; null takes one out."""
    import json

    params: dict[str, Any] = {"temperature": 0, "seed": flags["seed"]}
    if flags["responses"]:
        del params["seed"]  # which that path does not know
    for text in flags["params"]:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageFault(f"{text!r} is no parameter", hint="--param top_k=1, --param stop='[\"x\"]'")
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value
    if flags["ignore_eos"]:
        params["ignore_eos"] = True
    return {name: value for name, value in params.items() if value is not None}


def _candidates(settings: "Settings", flags: dict[str, Any]) -> "tuple[Candidate, ...]":
    from batchrun.bench.plan import Candidate
    from batchrun.wiring import resolve_base_url

    first = resolve_base_url(settings, flags["base_url"])
    model = flags["model"] or _only_model(settings, first)
    found = [Candidate(name="A", base_url=first, model=model)]
    if flags["against"] is not None or flags["against_model"] is not None:
        second = first if flags["against"] is None else resolve_base_url(settings, flags["against"])
        found.append(Candidate(name="B", base_url=second, model=flags["against_model"] or model))
    return tuple(found)


def _only_model(settings: "Settings", base_url: str) -> str:
    """Return the model of an endpoint that has one.

    Raises:
        UsageFault: it lists none, or several.
    """
    import asyncio

    from batchrun.endpoint.client import Endpoint
    from batchrun.wiring import resolve_api_key

    async def ask_it() -> list[str] | None:
        key = resolve_api_key(settings, base_url, None)
        async with Endpoint(base_url, key, timeout_s=LIMIT_S) as endpoint:
            return await endpoint.models()

    models = asyncio.run(ask_it())
    if models is not None and len(models) == 1:
        return models[0]
    said = "lists no models" if not models else f"lists {len(models)} models: {', '.join(models[:5])}"
    raise UsageFault(f"{base_url} {said}", hint="name one: batchrun bench -m MODEL")


def _tokenizer(settings: "Settings") -> "Tokenizer":
    """Make the way to ask a candidate's server how many tokens requests have; one that does not tell gives None."""
    import asyncio

    from batchrun.endpoint.client import Endpoint
    from batchrun.endpoint.tokenizing import count_tokens
    from batchrun.wiring import resolve_api_key

    async def ask_it(base_url: str, bodies: "Sequence[bytes]") -> list[int] | None:
        key = resolve_api_key(settings, base_url, None)
        counts: list[int] = []
        async with Endpoint(base_url, key, timeout_s=LIMIT_S) as endpoint:
            for body in bodies:
                count = await count_tokens(endpoint, body)
                if count is None:
                    return None
                counts.append(count)
        return counts

    return lambda candidate, bodies: asyncio.run(ask_it(candidate.base_url, bodies))


def _voice(context: Context) -> Any:
    from batchrun.runner.gear import Voice

    return Voice(
        watch=lambda progress: None,
        say=lambda text: say(context, text),
        log=lambda event, /, **fields: None,
        show_trial=lambda report: None,
        go_on=lambda report: True,
        asks=lambda job: False,
    )


def _tell(context: Context, plan: "Plan", step: "Step", run: "Run | None") -> None:
    from batchrun.cli.bench_table import load_words, run_words

    words = load_words(plan.pattern.kind, step.level, step.max_tokens)
    group = f"{step.group}, " if len(plan.candidates) > 1 else ""
    head = f"{group}{words}, round {step.round_no} of {plan.rounds}"
    if run is None:
        return
    say(context, f"{head}: {run_words(run)}")


def _show(context: Context, measurement: "Measurement", *, style: str, attain: float) -> None:
    import json

    from batchrun.cli.bench_table import table_lines
    from batchrun.core.measuring.vllm_result import vllm_result

    if context.json:
        emit("measurement", measurement.without_requests().to_values())
    elif style == "vllm":
        for run in measurement.runs:
            put_whole(json.dumps(vllm_result(measurement, run)))
    elif measurement.runs:
        for line in table_lines(measurement, attain=attain):
            put(line)


def _verdict(measurement: "Measurement", attain: float) -> int:
    """Return 7 where there are targets and a group has no load whose every round meets them."""
    from batchrun.cli.bench_table import meets

    if not measurement.setup.targets or not measurement.runs:
        return 0
    groups = {load.group for load in measurement.loads}
    good = {load.group for load in measurement.loads if meets(load, attain)}
    return 0 if good == groups else 7
