"""`batchrun mock-server`: its options are the settings of the mock endpoint, one for one."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, say
from batchrun.errors import UsageFault
from batchrun.mock.config import RATES, SPEND_LOGS, MockConfig

# Setting -> (type, what it is). Settings that are not listed are for tests.
OPTIONS: dict[str, tuple[Any, str]] = {
    "host": (str, "Address to listen on."),
    "port": (int, "Port to listen on; 0 takes a free one."),
    "model": (str, "Model name to serve."),
    "ttft_ms": (float, "Median time to the first token."),
    "itl_ms": (float, "Median time between two tokens."),
    "latency_ms": (float, "Median time of a whole answer, instead of the two above."),
    "latency_sigma": (float, "Spread (sigma of the lognormal factor) of these times."),
    "answer_tokens": (int, "Mean length of an answer in tokens."),
    "prompt_token_ms": (float, "Time for each token of a prompt that is not in the prefix cache."),
    "prefix_cache_blocks": (int, "Blocks of 16 tokens that a prefix cache holds; without it there is none."),
    "slots": (int, "Requests served at once; others queue."),
    "knee": (int, "Above so many at once all become slower: no more is done."),
    "refuse_above": (int, "Above so many at once requests are refused with 429."),
    "error_rate": (float, "Share refused with 500; not billed."),
    "unavailable_rate": (float, "Share refused with 503; not billed."),
    "rate_limit_rate": (float, "Share refused with 429; not billed."),
    "retry_after_s": (float, "Retry-After of a 429."),
    "hang_rate": (float, "Share never answered, but billed."),
    "reset_rate": (float, "Share whose connection is reset after the work was done and billed."),
    "cut_rate": (float, "Share whose answer is cut short, and billed."),
    "bad_json_rate": (float, "Share answered with a web page, and billed."),
    "drip_rate": (float, "Share answered in small pieces."),
    "faults_per_item": (int, "Only so many first arrivals of a request may be faulty."),
    "tokenizes": (bool, "Tell at /tokenize how many tokens a prompt has, as vLLM does."),
    "stores": (bool, 'Keep chat completions that ask for it ("store": true), to be listed by metadata.'),
    "spend_log": (click.Choice(SPEND_LOGS), "Play a LiteLLM proxy with a spend log of costs, or of answers too."),
    "replay_s": (float, "Give an answer again to its Idempotency-Key, unbilled, for so long."),
    "seed": (int, "What faults, answers and times are drawn from."),
}


def mock_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add one option for each setting in `OPTIONS`."""
    defaults = {field.name: field.default for field in fields(MockConfig)} | {"port": 8000, "model": None}
    for name, (kind, text) in reversed(OPTIONS.items()):
        flag = "--" + name.replace("_", "-")
        default = defaults[name]
        if kind is bool:
            function = click.option(flag, is_flag=True, help=text)(function)
            continue
        kind = click.FloatRange(0, 1) if name in RATES else kind
        metavar = None if isinstance(kind, click.Choice) else _metavar(name)
        function = click.option(
            flag, type=kind, metavar=metavar, default=default, show_default=default is not None, help=text
        )(function)
    return function


def _metavar(name: str) -> str:
    """Say in which unit a setting is given."""
    if name in RATES:
        return "SHARE"
    units = {"_ms": "MS", "_s": "SECONDS", "host": "ADDRESS", "model": "NAME", "sigma": "X"}
    return next((unit for end, unit in units.items() if name.endswith(end)), "N")


@make_command("batchrun mock-server --port 8000 --error-rate 0.05 --log requests.jsonl")
@mock_options
@click.option(
    "--log",
    "log_path",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="JSONL: every request, and whether it was billed.",
)
def command(context: Context, model: str | None, **settings: Any) -> int:
    """Serve a mock OpenAI-compatible endpoint: token timing, slots, seeded faults, and its own request log."""
    from batchrun.mock.server import serve

    if model:
        settings |= {"models": (model,), "strict_models": True}  # who names a model means that one
    try:
        config = MockConfig(**settings)
    except ValueError as error:
        raise UsageFault(str(error), hint="batchrun mock-server -h says what each option takes") from None

    def ready(host: str, port: int) -> None:
        base_url = f"http://{host}:{port}/v1"
        if context.json:
            emit("mock_server", {"base_url": base_url, "port": port})
        else:
            click.echo(f"{base_url}   model {config.models[0]}   Ctrl-C stops it")
            say(context, f"  export OPENAI_BASE_URL={base_url}")

    try:
        serve(config, on_ready=ready)
    except OSError as error:
        raise UsageFault(f"port {config.port} cannot be used: {error.strerror}", hint="name another --port") from None
    return 0
