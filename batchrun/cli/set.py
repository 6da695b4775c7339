"""`batchrun set`."""

from decimal import Decimal
from typing import TYPE_CHECKING

import click

from batchrun.cli.at_once import AtOnce
from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.money import Money
from batchrun.cli.say import emit, put
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from batchrun.core.concurrency import Concurrency

LIFTED = 0


class Limit(click.ParamType[int]):
    """A number a minute, or "none"."""

    name = "n"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "none":
            return LIFTED
        text = str(value).replace(",", "").replace("_", "")
        if not text.isascii() or not text.isdecimal() or int(text) < 1:
            self.fail(f"{value!r} is no number a minute; write a number from 1, or none", param, ctx)
        return int(text)


@make_command("batchrun set batch-001 -c 16")
@click.argument("job", type=JOB)
@click.option("-c", "--concurrency", type=AtOnce(), metavar="N", help="Requests in flight at once; or auto, or 4-64.")
@click.option("--rpm", type=Limit(), metavar="N", help="Requests a minute, or none.")
@click.option("--tpm", type=Limit(), metavar="N", help="Tokens a minute, prompts and answers, or none.")
@click.option("--max-cost", type=Money(), help="No send that could take the job above this.")
@click.option("--dry-run", is_flag=True, help="Say what would change.")
def command(
    context: Context,
    job: str,
    concurrency: "Concurrency | None",
    rpm: int | None,
    tpm: int | None,
    max_cost: Decimal | None,
    dry_run: bool,
) -> int:
    """Change a job's limits while it runs, from any terminal, within two seconds.

    What is in flight beyond a lower limit finishes. `-c 8` keeps to that number; `-c auto` or `-c 4-64` looks for the
    number that the endpoint is worth. The spec file is not touched.
    """
    from batchrun.core.prices import to_pusd
    from batchrun.runner.control import change

    wanted = {"concurrency": concurrency, "rpm": rpm, "tpm": tpm, "max_cost_pusd": to_pusd(max_cost)}
    if all(value is None for value in wanted.values()):
        raise UsageFault("nothing is to be changed", hint=f"batchrun set {job} -c 16; -h lists what can be set")
    with context.ledger() as ledger:
        done = change(ledger, job, dry_run=dry_run, **wanted)
    if context.json:
        changes = {_NAMES[name]: {"before": _value(name, old), "after": _value(name, new)} for name, old, new in done}
        emit("set", {"job_id": job, "changes": changes, "applied": bool(done) and not dry_run, "dry_run": dry_run})
        return 0
    for name, old, new in done:
        was = f"(was {_shown(name, old)})"
        put(f"{job}: {_NAMES[name]} {'would be' if dry_run else 'is'} {_shown(name, new)} {was}")
    if not done:
        put(f"{job}: it stands so already")
    return 0


_NAMES = {"concurrency": "concurrency", "rpm": "rpm", "tpm": "tpm", "max_cost_pusd": "max_cost_usd"}


def _value(name: str, value: "int | Concurrency | None") -> object:
    from batchrun.core.prices import usd

    if value is None or isinstance(value, int):
        return usd(value) if name == "max_cost_pusd" and value is not None else value
    return value.written


def _shown(name: str, value: "int | Concurrency | None") -> str:
    if value is None:
        return "none"
    if name == "max_cost_pusd":
        return f"${_value(name, value)}"
    return f"{value:,}" if isinstance(value, int) else str(value)
