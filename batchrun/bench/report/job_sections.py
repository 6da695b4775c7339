"""The sections that only a job has: its items, its failures and retries, its cost."""

from batchrun.bench.job import JobFacts
from batchrun.bench.report.content import NOTHING, Section, table
from batchrun.bench.report.numbers import count, seconds, share
from batchrun.core.printable import clip, one_line
from batchrun.core.states import AttemptState
from batchrun.core.wording import several
from batchrun.ledger.receipt import Bill
from batchrun.runner.receipt import Receipt

MESSAGE_COLUMNS = 200


def job_setup(facts: JobFacts) -> tuple[tuple[str, str], ...]:
    """Return what the setup of a job has beyond that of a measurement."""
    job = facts.job
    found = [("items", f"{job.total:,}"), ("retry_times", str(job.retry_times)), ("on_unknown", job.on_unknown)]
    found += [(name, f"{value:,}") for name, value in (("rpm", job.rpm), ("tpm", job.tpm)) if value]
    found.append(("state", f"{job.state.value.replace('_', ' ')}" + (f" ({job.reason})" if job.reason else "")))
    found.append(("worked on for", seconds(job.active_s)))
    return tuple(found)


def reliability_section(facts: JobFacts) -> Section:
    """Show how items and attempts ended, and why."""
    total = facts.job.total
    items = [(state.value.replace("_", " "), count(n), share(n / total)) for state, n in facts.counts.items() if n]
    by_state = facts.attempts.by_state
    sent = facts.attempts.total
    ends = [(state.value.replace("_", " "), count(n), share(n / sent)) for state, n in by_state.items() if n]
    tables = [
        table("Items", ("state", "items", "share"), items),
        table("Requests", ("came to", "requests", "share"), ends),
    ]
    if facts.failures:
        rows = [
            (
                group.cause,
                group.state.replace("_", " "),
                clip(one_line(group.sample_message or NOTHING), MESSAGE_COLUMNS),
                clip(one_line(group.sample_item), 60),
                one_line(group.hint),
                count(group.count),
            )
            for group in facts.failures
        ]
        tables.append(
            table("What stopped items", ("cause", "state", "in words", "such as", "do", "items"), rows, words=5)
        )
    retried = {cause: bill.requests for (outcome, cause), bill in facts.receipt.by_cause.items() if cause}
    if retried:
        rows_of = [(cause or NOTHING, count(n), share(n / sent)) for cause, n in retried.items()]
        tables.append(table("Requests that failed, by cause", ("cause", "requests", "share"), rows_of))
    if facts.warnings:
        answered = by_state.get(AttemptState.ANSWERED, 0) or 1
        warned = [(one_line(name), count(n), share(n / answered)) for name, n in facts.warnings.items()]
        tables.append(table("Answers worth a look", ("warning", "answers", "share"), warned))
    words = []
    if total and (tries := facts.attempts.sent) > 0:
        words.append(f"{several(tries, 'request')} for {several(total, 'item')}: {tries / total:.2f} an item.")
    if facts.mean_again_s is not None:
        words.append(
            f"Between a failed request and the next one of its item lay {seconds(facts.mean_again_s)} on average."
        )
    return Section("Reliability", "reliability", words=tuple(words), tables=tuple(tables))


def cost_section(receipt: Receipt) -> Section:
    """Show what the job cost, as its receipt says."""
    total = receipt.total
    rows = [
        (label, *_cells(bill, is_priced=receipt.price is not None))
        for label, bill in (
            ("all", total),
            *((_label(outcome, cause), bill) for (outcome, cause), bill in receipt.by_cause.items()),
            *((one_line(endpoint), bill) for endpoint, bill in receipt.by_endpoint.items()),
        )
    ]
    columns = (
        "by cause and endpoint",
        "requests",
        "billed",
        "possibly",
        "certain",
        "at most on top",
        "tokens in",
        "tokens out",
    )
    return Section(
        "Cost",
        "cost",
        words=(f"{cost_words(receipt)[0].upper()}{cost_words(receipt)[1:]}.",),
        tables=(table("Receipt", columns, rows),),
    )


def cost_words(receipt: Receipt) -> str:
    """Say what a job cost, as far as it is known."""
    total = receipt.total
    if not total.requests:
        return "nothing was sent yet"
    if receipt.price is None:
        return "its cost is unknown, since the spec has no price"
    words = f"it cost {_dollars(total.certain_pusd)} for certain"
    words += f", at most {_dollars(total.possible_pusd)} on top" if total.possible_pusd else ""
    words += f", and {several(total.unbounded, 'request')} whose cost nothing bounds" if total.unbounded else ""
    return words


def _cells(bill: Bill, *, is_priced: bool) -> tuple[str, ...]:
    money = (_dollars(bill.certain_pusd), _dollars(bill.possible_pusd)) if is_priced else (NOTHING, NOTHING)
    counts = (count(bill.requests), count(bill.certain_requests), count(bill.possible_requests))
    return (*counts, *money, count(bill.prompt_tokens), count(bill.completion_tokens))


def _label(outcome: AttemptState, cause: str | None) -> str:
    return one_line(cause or outcome.value.replace("_", " "))


def _dollars(pusd: int) -> str:
    """Write picodollars: cents for large sums, three digits for small ones."""
    dollars = pusd / 1e12
    if dollars == 0 or dollars >= 1:
        return f"${dollars:,.2f}"
    return f"${dollars:.3g}" if dollars >= 1e-4 else f"${dollars:.2e}"
