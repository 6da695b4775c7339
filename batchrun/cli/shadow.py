"""`batchrun compare SPEC --shadow URL`: a share of one input, sent to the spec's own endpoint and to another one."""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import Context, Function
from batchrun.cli.say import ask, say
from batchrun.core.wording import several
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from batchrun.cli.registering import Ready, Wish
    from batchrun.core.measuring.shadowing import Shadow
    from batchrun.runner.specs import Found
    from batchrun.wiring import Named

FOLDER = Path("measurements")
KEY_VARIABLE = "SHADOW_API_KEY"  # the key of one endpoint is never sent to another
SIGNALLED = 128  # and above: by which a process was stopped
FINISHED = (0, 3, 6)  # done; some items failed; some are in doubt
Prices = tuple[Decimal, Decimal]


class PricePair(click.ParamType[Prices]):
    """USD per million prompt tokens and per million completion tokens."""

    name = "in,out"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Prices:
        from batchrun.core.prices import exact_amount

        if isinstance(value, tuple):
            return value
        amounts = [exact_amount(word.strip()) for word in str(value).split(",")]
        if len(amounts) != 2 or not all(isinstance(one, Decimal) for one in amounts):
            self.fail(f"{value!r} is no pair of prices, such as 0.15,0.60", param, ctx)
        return amounts[0], amounts[1]  # type: ignore[return-value]


def shadow_options(function: Function) -> Function:
    """Give a command the options that say what is sent to a second endpoint."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option("--shadow", metavar="URL", help="A is a spec: send a share of its input there too, and compare."),
    click.option(
        "--share",
        type=click.FloatRange(0, 100, min_open=True),
        default=10.0,
        show_default=True,
        metavar="PERCENT",
        help="Of the input, sent to both endpoints.",
    ),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draw of that share."),
    click.option("--shadow-model", "model", metavar="MODEL", help="The model there (default: the spec's)."),
    click.option(
        "--shadow-key-env",
        "key_env",
        metavar="NAME",
        help="Variable with its key (SHADOW_API_KEY; on the spec's own host, the spec's).",
    ),
    click.option("--shadow-price", "price", type=PricePair(), metavar="IN,OUT", help="Its USD per million tokens."),
)


@dataclass(frozen=True, slots=True)
class Second:
    """What is said of the second endpoint."""

    url: str
    share: float  # per cent
    seed: int
    model: str | None
    key_env: str | None
    price: Prices | None


@dataclass(frozen=True, slots=True)
class Sent:
    """What has become of the two jobs."""

    name: str  # of both, but for -a and -b
    items: int  # of each
    share: float  # per cent
    seed: int
    has_other_model: bool
    exit_code: int
    is_over: bool  # both were performed, so that there is something to compare


def send_both(context: Context, spec: str, second: Second) -> Sent:
    """Register the two jobs and perform one after the other, so that neither takes the client's time from the other.

    Raises:
        UsageFault: SPEC is no one spec, or what is said of the second endpoint cannot be right.
    """
    from batchrun.bench.shadow import cast
    from batchrun.cli.registering import Wish, make_ready, priced, say_prices
    from batchrun.cli.series import forget_session, register_all, worst
    from batchrun.endpoint.address import is_local
    from batchrun.runner.gear import Scope
    from batchrun.wiring import check_broker

    settings, found = context.settings(), _one_spec(spec)
    check_broker(settings)
    named = _named(context, found)
    shadow = _shadow(found, named, second)
    sides = cast(found, shadow, addresses=tuple(one.base_url for one in named), folder=FOLDER)
    wish = Wish(Scope.WHOLE, no_trial=True)
    both = [priced(settings, side) for side in (sides.a, sides.b)]
    say_prices(context, both)
    ready = [make_ready(settings, side, wish) for side in both]
    where = list(dict.fromkeys(address for one in ready for address in one.overrides.addresses))
    codes: list[int] = []
    is_free = all(map(is_local, where))
    if is_free or ask(context, f"send {several(sides.items, 'request')} to each of {' and '.join(where)}?"):
        with context.house(makes_ledger=True) as house:
            register_all(context, house, ready, wish)
        for one in ready:
            codes.append(_perform(context, one, wish))
            if codes[-1] not in FINISHED:
                break
            forget_session()
    return Sent(
        name=sides.name,
        items=sides.items,
        share=second.share,
        seed=second.seed,
        has_other_model=shadow.model not in (None, found.checked.spec.model),
        exit_code=worst(codes) if codes else 0,
        is_over=len(codes) == len(ready) and codes[-1] < SIGNALLED,
    )


def _one_spec(spec: str) -> "Found":
    from batchrun.runner.specs import check_specs

    found = check_specs([Path(spec)])
    if len(found) != 1:
        raise UsageFault(f"{spec!r} holds {len(found)} specs, and one is wanted here", hint="save it as a file")
    return found[0]


def _named(context: Context, found: "Found") -> "list[Named]":
    from batchrun.wiring import name_endpoints

    spec = found.checked.spec
    return name_endpoints(
        context.settings(), base_url=spec.base_url, api_key_env=spec.api_key_env, endpoints=spec.endpoints
    )


def _shadow(found: "Found", named: "list[Named]", second: Second) -> "Shadow":
    from batchrun.core.measuring.shadowing import Shadow
    from batchrun.endpoint.address import host_port, normalise_base_url

    spec, base_url, price = found.checked.spec, normalise_base_url(second.url), second.price
    if spec.max_cost_usd is not None and price is None:
        raise UsageFault(
            "the spec limits the cost, and what the second endpoint charges is not said",
            hint="--shadow-price 0.15,0.60 (USD per million prompt and completion tokens; 0,0 is free)",
        )
    own_keys = {host_port(one.base_url): one.variable for one in named}  # a host may get the key that it has already
    return Shadow(
        base_url=base_url,
        model=second.model,
        api_key_env=second.key_env or own_keys.get(host_port(base_url), KEY_VARIABLE),
        price=None if price is None else {"input_per_1m_usd": str(price[0]), "output_per_1m_usd": str(price[1])},
        share=second.share / 100,
        seed=second.seed,
    )


def _perform(context: Context, ready: "Ready", wish: "Wish") -> int:
    """Take one side to its end and return its exit code. How a finished one ended is talk, beside the comparison."""
    from batchrun.cli.performing import perform, show_arrival
    from batchrun.cli.registering import going_on
    from batchrun.cli.standing import arrival_text
    from batchrun.runner.hold import working

    with (
        context.house() as house,
        working(house.ledger, house.gear(), concurrency=ready.concurrency.high) as worker,
    ):
        arrival = perform(
            context, house, ready.task_id, worker=worker, scope=wish.scope, prepare=going_on(house, ready)
        )
    if arrival.exit_code not in FINISHED:
        return show_arrival(context, arrival)
    for line in arrival_text(arrival):
        say(context, line)
    return arrival.exit_code
