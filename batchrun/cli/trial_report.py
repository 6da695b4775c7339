"""What a trial came to, for people to decide by, and the same figures for scripts."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from batchrun.cli.say import dollars, duration
from batchrun.cli.standing import cost_text
from batchrun.core.printable import clip, columns_taken, one_line
from batchrun.core.wording import several

if TYPE_CHECKING:
    from batchrun.core.projection import Estimate
    from batchrun.runner.trial import Projection, TrialReport
    from batchrun.runner.trial_answers import Answers, Sample

COLUMNS = 72  # of a sample, where no terminal says how wide it is
NARROWEST = 20  # of a sample's text
MOST_CAUSES = 3


def trial_text(report: "TrialReport", *, columns: int = COLUMNS) -> list[str]:
    """Return what a person can decide by. Sample answers are cut so that each is one line."""
    of = f"{report.size} of {several(report.total, 'item')}"
    return [
        f"trial of {report.task_id}: {of} -> {report.endpoint or 'nowhere yet'}",
        *_counts(report),
        *_times(report),
        *_endings(report.answers),
        *[line for sample in report.answers.samples for line in _sample(sample, columns)],
        *_causes(report),
        *_costs(report),
        *_projected(report),
        *[f"  change    {change}" for change in report.changes],
        *_kept(report),
    ]


def _counts(report: "TrialReport") -> Iterator[str]:
    from batchrun.core.states import ItemState

    counts = report.counts
    lost = f" ({report.lost} lost by a process that died here)" if report.lost else ""
    yield (
        f"  completed {report.done}   failed {counts[ItemState.FAILED]}   in doubt {counts[ItemState.IN_DOUBT]}{lost}"
    )


def _times(report: "TrialReport") -> Iterator[str]:
    answers = report.answers
    if not answers.of:
        return
    yield (
        f"  per item  {duration(report.e2el_p50_s)} (p50), {duration(report.e2el_p95_s)} (p95), "
        f"{duration(report.e2el_max_s)} at most"
    )
    yield f"  length    {_tokens(answers.prompt_tokens, 'tokens in')}, {_tokens(answers.completion_tokens, 'out')}"


def _tokens(values: Sequence[int], unit: str) -> str:
    if not values:
        return f"? {unit}"
    least, most = min(values), max(values)
    span = "" if least == most else f" ({least:,} to {most:,})"
    return f"{sum(values) / len(values):,.0f} {unit}{span}"


def _endings(answers: "Answers") -> Iterator[str]:
    if answers.finish_reasons:
        counted = ", ".join(f"{one_line(name)} {count}" for name, count in answers.finish_reasons.most_common(6))
        yield f"  finish    {counted}"
    counts = (
        (answers.invalid, "not of response_schema"),
        (answers.cut, "cut at the token limit"),
        (answers.empty, "empty"),
        (answers.identical, "identical"),
        (answers.refused, "refused"),
        (answers.not_json, f"of {answers.json_asked} not the JSON they were asked for"),
    )
    shown = [f"{count} {words}" for count, words in counts if count]
    if answers.of:
        yield f"  answers   {answers.of}: {', '.join(shown) or 'none is cut, empty, refused or like another'}"


def _sample(sample: "Sample", columns: int) -> Iterator[str]:
    """Yield what was asked, and under it what was answered: a template that fills in nothing is seen at a glance."""
    told = sample.finish_reason in ("stop", None)
    reason = "" if told else f"  (finish_reason {clip(one_line(sample.finish_reason or ''), 20)})"
    name = clip(one_line(sample.custom_id), columns // 3)
    head = f"  sample    {name}  "
    room = columns - columns_taken(head)
    if prompt := one_line(sample.prompt):
        yield head + clip(prompt, max(NARROWEST, room))
        head = f"  {'':<10}{'':<{columns_taken(name)}}  "
    yield head + "-> " + clip(one_line(sample.words), max(NARROWEST, room - 3 - columns_taken(reason))) + reason


def _causes(report: "TrialReport") -> Iterator[str]:
    for cause in report.causes[:MOST_CAUSES]:
        state = cause.state.value.replace("_", " ")
        yield f"  {state:<8}  {cause.count} x {cause.cause}: {one_line(cause.sample_message or '-')}"
    if (more := len(report.causes) - MOST_CAUSES) > 0:
        yield f"            and {more} more {'cause' if more == 1 else 'causes'}: batchrun failures {report.task_id}"


def _costs(report: "TrialReport") -> Iterator[str]:
    from batchrun.endpoint.address import is_local

    attempts = report.attempts
    if report.price is None:
        if report.endpoint and not is_local(report.endpoint):
            yield "  cost      not known: the spec has no price"
        return
    yield f"  cost      {cost_text(attempts, 'for the trial')}"


def _projected(report: "TrialReport") -> Iterator[str]:
    plan = report.projection
    if not plan.items:
        return
    takes = "" if plan.duration_s is None else f", about {_range(plan.duration_s, duration)}"
    if takes and report.most_at_once > report.concurrency:
        takes += f" at {report.concurrency} at once"
    takes += " and the pauses that the endpoint asks for" if takes and report.was_throttled else ""
    cost = "" if plan.cost_pusd is None else f", cost about {cost_range(plan)}"
    yield f"full run: {several(plan.items, 'item')} left{takes}{cost}"
    if plan.prompt_tokens is not None and plan.completion_tokens is not None:
        yield f"  tokens    {_range(plan.prompt_tokens, _count)} in, {_range(plan.completion_tokens, _count)} out"
    if report.most_at_once > report.concurrency:
        yield f"  at once   {report.concurrency} requests now; up to {report.most_at_once} if that proves to be quicker"
    elif report.answers.of and report.size < min(report.concurrency, plan.items):
        yield f"  at once   {report.concurrency} requests; the trial had {report.size}, and more may be slower each"
    if plan.missed_share is not None:
        low, high = plan.missed_share
        tried = report.size - report.lost
        seen = f"going by {tried - report.done} of {tried} here"
        yield f"  expect    {100 * low:.0f} to {100 * high:.0f} % of them not to complete, {seen}"
    yield "  ranges    each holds in about 9 of 10 cases, if the items left are like these"


def cost_range(plan: "Projection") -> str:
    """Write what the items left would cost, with the digits that a projection deserves."""
    if plan.cost_pusd is None:
        return "an unknown amount"
    return _range(plan.cost_pusd, lambda pusd: dollars(_three_digits(pusd)))


def _three_digits(value: float) -> int:
    digits = max(0, len(str(int(value))) - 3)
    return round(int(value), -digits)


def _kept(report: "TrialReport") -> Iterator[str]:
    if report.left:
        unless = ", unless you change their requests" if report.changes else ""
        yield f"  the trial's results are kept and not sent again{unless}"


def _range(estimate: "Estimate", write: Any) -> str:
    expected = write(estimate.expected)
    if estimate.low is None or estimate.high is None:
        return str(expected)
    low, high = write(estimate.low), write(estimate.high)
    return str(expected) if low == high else f"{expected} ({low} to {high})"


def _count(value: float) -> str:
    """Write a projected count with the digits that it deserves: three."""
    if value >= 10_000_000:
        return f"{value / 1e6:,.3g} million" if value < 1e9 else f"{value / 1e9:,.0f} billion"
    return f"{_three_digits(value):,.0f}"


# -- for scripts ------------------------------------------------------------------------------------------------------


def trial_json(report: "TrialReport") -> dict[str, Any]:
    """Return a trial's report for scripts: the same figures."""
    from batchrun.core.prices import usd

    answers, attempts = report.answers, report.attempts
    return {
        "size": report.size,
        "counts": {state.value: count for state, count in report.counts.items()},
        "lost": report.lost,
        "left": report.left,
        "e2el_p50_s": report.e2el_p50_s,
        "e2el_p95_s": report.e2el_p95_s,
        "e2el_max_s": report.e2el_max_s,
        "prompt_tokens": _spread(answers.prompt_tokens),
        "completion_tokens": _spread(answers.completion_tokens),
        "answers": _answers_json(answers),
        "setbacks": dict(report.setbacks),
        "causes": [
            {
                "state": one.state.value,
                "cause": one.cause,
                "count": one.count,
                "sample_item": one.sample_custom_id,
                "sample_line_no": one.sample_line_no,
                "sample_message": one.sample_message,
            }
            for one in report.causes
        ],
        "cost_usd": usd(attempts.certain_pusd) if report.price else None,
        "possible_usd": usd(attempts.possible_pusd) if report.price else None,
        "projected_usd": None if report.projected_pusd is None else usd(report.projected_pusd),
        "projected_s": report.projected_s,
        "projection": _projection_json(report.projection),
        "changes": [
            {"about": one.about, "count": one.count, "of": one.of, "finding": one.finding, "edit": one.edit}
            for one in report.changes
        ],
    }


def _spread(values: Sequence[int]) -> dict[str, Any] | None:
    if not values:
        return None
    return {"mean": round(sum(values) / len(values), 3), "min": min(values), "max": max(values)}


def _answers_json(answers: "Answers") -> dict[str, Any]:
    return {
        "total": answers.of,
        "finish_reasons": dict(answers.finish_reasons),
        "invalid": answers.invalid,
        "cut": answers.cut,
        "empty": answers.empty,
        "reasoning_only": answers.reasoning_only,
        "identical": answers.identical,
        "refused": answers.refused,
        "json_asked": answers.json_asked,
        "not_json": answers.not_json,
        "dimensions": sorted(answers.dimensions),
        "samples": [
            {"custom_id": one.custom_id, "prompt": one.prompt, "text": one.words, "finish_reason": one.finish_reason}
            for one in answers.samples
        ],
    }


def _projection_json(plan: "Projection") -> dict[str, Any]:
    from batchrun.core.prices import usd

    cost = plan.cost_pusd
    missed = plan.missed_share
    return {
        "items": plan.items,
        "duration_s": _estimate(plan.duration_s),
        "prompt_tokens": _estimate(plan.prompt_tokens),
        "completion_tokens": _estimate(plan.completion_tokens),
        "cost_usd": None
        if cost is None
        else {
            name: None if value is None else usd(round(value))
            for name, value in (("expected", cost.expected), ("low", cost.low), ("high", cost.high))
        },
        "missed_share": None if missed is None else {"low": round(missed[0], 4), "high": round(missed[1], 4)},
    }


def _estimate(value: "Estimate | None") -> dict[str, Any] | None:
    if value is None:
        return None
    rounded = {"expected": value.expected, "low": value.low, "high": value.high}
    return {name: None if one is None else round(one, 3) for name, one in rounded.items()}
