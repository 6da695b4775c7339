"""What a trial suggests to change before the full run: one finding and one edit each, with the figures behind them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from batchrun.core.stats import percentile
from batchrun.ledger.jobs import Job
from batchrun.ledger.reports import CauseReport
from batchrun.runner.hints import Seen, hint_for, slower
from batchrun.runner.trial_answers import Answers

NEAR_TIMEOUT = 0.5  # of timeout_s: one answer that took longer than this may be followed by one that takes too long
THROTTLED = ("rate_limited", "overloaded")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to change."""

    about: str  # a word for scripts
    count: int  # of the items or requests that show it
    of: int
    finding: str
    edit: str

    def __str__(self) -> str:
        return f"{self.finding}: {self.edit}"


def what_to_change(
    job: Job,
    answers: Answers,
    causes: Sequence[CauseReport],
    setbacks: Mapping[str, int],
    *,
    tried: int,
    is_priced: bool,
) -> list[Change]:
    """Return what the trial's figures suggest, the gravest first; nothing is suggested that was not measured."""
    return [
        *_of_causes(job, causes, tried, has_answers=answers.of > 0),
        *_of_lengths(job, answers),
        *_of_contents(job, answers),
        *_of_times(job, answers, setbacks),
        *_of_usage(answers, is_priced=is_priced),
    ]


def _verb(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def _of_causes(job: Job, causes: Sequence[CauseReport], tried: int, *, has_answers: bool) -> Iterator[Change]:
    for one in causes:
        name = (one.cause or "unknown").replace("_", " ")
        hint = hint_for(job, one.cause, one.state, Seen(one.sample_message, has_answers=has_answers))
        state = one.state.value.replace("_", " ")
        yield Change(one.cause or "unknown", one.count, tried, f"{one.count} of {tried} {state} ({name})", hint.words)


def _of_lengths(job: Job, answers: Answers) -> Iterator[Change]:
    """Look at answers that the token limit cut; those that were still thinking are told apart."""
    limits = sorted(set(answers.cut_limits)) or [int(job.spec["max_tokens"])]
    limit = f"{limits[0]:,}" if len(limits) == 1 else f"{limits[0]:,} to {limits[-1]:,}"
    if thinking := answers.reasoning_only:
        finding = f"{thinking} of {answers.of} answers {_verb(thinking, 'holds', 'hold')} only reasoning, and no text"
        edit = f"raise max_tokens ({limit} now), or let the model think less"
        yield Change("reasoning_only", thinking, answers.of, finding, edit)
    if (cut := answers.cut - answers.cut_thinking) == 0:
        return
    finding = f"{cut} of {answers.of} answers {_verb(cut, 'was', 'were')} cut at max_tokens {limit}"
    measured = percentile(answers.whole_tokens, 95)
    if measured is not None and measured > limits[-1]:
        edit = f"raise it to about {_rounded_up(measured):,} (p95 of the whole ones)"
    elif answers.whole_tokens:
        edit = (
            f"raise it, say to {2 * limits[-1]:,} (the longest whole answer has {max(answers.whole_tokens):,} tokens)"
        )
    else:
        edit = f"raise it, say to {2 * limits[-1]:,}: not one answer came to its end"
    yield Change("cut", cut, answers.of, finding, edit)


def _rounded_up(tokens: float) -> int:
    step = 10 if tokens < 200 else 50 if tokens < 2_000 else 500
    return -int(-tokens // step) * step


def _of_contents(job: Job, answers: Answers) -> Iterator[Change]:
    of = answers.of
    if (empty := answers.empty - answers.reasoning_only) > 0:
        look = f"look at one with `batchrun show {job.task_id} ITEM --response`; a stop string, or the chat template?"
        yield Change("empty", empty, of, f"{empty} of {of} answers {_verb(empty, 'is', 'are')} empty", look)
    if answers.refused:
        finding = f"{answers.refused} of {of} answers {_verb(answers.refused, 'is a refusal', 'are refusals')}"
        yield Change("refused", answers.refused, of, finding, "change such prompts: they will be refused again")
    if wrong := answers.not_json:
        finding = (
            f"{wrong} of {answers.json_asked} answers {_verb(wrong, 'is', 'are')} not the JSON they were asked for"
        )
        yield Change("not_json", wrong, answers.json_asked, finding, _json_edit(answers))
    if (same := answers.identical) >= 3 and 2 * same > of:
        yield Change("identical", same, of, f"{same} of {of} answers are identical", _sameness(answers))
    if len(answers.dimensions) > 1:
        sizes = " and ".join(f"{size:,}" for size in sorted(answers.dimensions))
        finding = f"vectors have {sizes} numbers"
        yield Change("dimensions", len(answers.dimensions), of, finding, "do the lines name different models?")


def _json_edit(answers: Answers) -> str:
    if answers.not_json_cut == answers.not_json:
        return "they were cut: raise max_tokens"
    if answers.fenced == answers.not_json:
        return "they stand in a code fence: does the endpoint honour response_format? try json_schema"
    return "does the endpoint honour response_format? try json_schema, or say it in the prompt"


def _sameness(answers: Answers) -> str:
    if answers.identical_requests >= 3:
        return f"{answers.identical_requests} of the requests are identical too: is the template filling in?"
    if answers.is_label:
        return "right where an answer is a label, and these are short; otherwise look at the prompts"
    return "their requests differ: does the prompt reach the model whole?"


def _of_times(job: Job, answers: Answers, setbacks: Mapping[str, int]) -> Iterator[Change]:
    timeout_s, slowest_s = float(job.spec["timeout_s"]), max(answers.durations_s, default=0.0)
    if slowest_s > NEAR_TIMEOUT * timeout_s:
        finding = f"the slowest answer took {slowest_s:.3g} s of timeout_s {timeout_s:g}"
        edit = f"raise timeout_s, say to {_rounded_up(4 * slowest_s):,}, or lower concurrency ({job.concurrency} now)"
        count = sum(duration_s > NEAR_TIMEOUT * timeout_s for duration_s in answers.durations_s)
        yield Change("near_timeout", count, answers.of, finding, edit)
    if throttled := sum(setbacks.get(cause, 0) for cause in THROTTLED):
        noun = "request was" if throttled == 1 else "requests were"
        finding = f"{throttled} {noun} turned away for the moment (429 or 503)"
        edit = "they were sent again; the full run will be held back in the same way"
        if job.climb is not None:
            edit = f"they were sent again; concurrency follows by itself ({job.concurrency} now, of {job.allowed})"
        elif job.concurrency > 1:
            edit = f"lower concurrency ({job.concurrency} now), say to {slower(job.concurrency)}"
        yield Change("throttled", throttled, answers.of + sum(setbacks.values()), finding, edit)


def _of_usage(answers: Answers, *, is_priced: bool) -> Iterator[Change]:
    if (silent := answers.of - len(answers.prompt_tokens)) and is_priced:
        finding = f"{silent} of {answers.of} answers {_verb(silent, 'tells', 'tell')} no token counts"
        edit = "their cost is not known, and a budget counts the most they can have cost"
        yield Change("no_usage", silent, answers.of, finding, edit)
