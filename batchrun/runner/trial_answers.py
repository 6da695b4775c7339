"""What the answers of a trial look like, counted: their endings, and which are empty, equal, cut or not JSON."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchrun.core.answer_view import AnswerView, asks_for_json, is_json, view_answer
from batchrun.core.request_view import asked_words, read_request
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.results import Result, results_of
from batchrun.ledger.trial import request_bodies
from batchrun.runner.hints import asked_tokens

SHOWN = 3
SHOWN_CHARS = 2_000  # of one answer
CHUNK = 100  # items read at once: bodies can be large
LABEL_CHARS = 30  # an answer as short as this is a label, and labels may well be equal
NOT_TOLD = "not told"
_WITH_ANSWER = (ItemState.COMPLETED, ItemState.FAILED)  # failed: with an invalid answer, paid for like any other


@dataclass(frozen=True, slots=True)
class Sample:
    """One of the trial's answers, to be looked at."""

    custom_id: str
    prompt: str  # of others, as `words` are: not fit for a terminal as it is
    words: str
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class Measured:
    """What one answer took; None is not told."""

    length: int  # bytes of the request's body
    duration_s: float | None
    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass
class Answers:
    """The trial's answers, counted: `of` were looked at, and each count is of these. Durations are seconds."""

    of: int = 0
    finish_reasons: Counter[str] = field(default_factory=Counter)
    empty: int = 0  # no text, call or vector; those that hold only reasoning among them
    reasoning_only: int = 0
    refused: int = 0  # the filter's or the model's own refusal
    invalid: int = 0  # not of the job's response_schema: their items failed
    cut: int = 0  # by the token limit
    cut_thinking: int = 0  # of these: those that hold only reasoning
    json_asked: int = 0
    not_json: int = 0  # of those that hold a text at all
    not_json_cut: int = 0  # of these: by the token limit, so that is why
    fenced: int = 0  # of these: in a code fence
    dimensions: Counter[int] = field(default_factory=Counter)  # of vectors
    cut_limits: list[int] = field(default_factory=list)  # what the cut ones were allowed, in tokens
    whole_tokens: list[int] = field(default_factory=list)  # what the whole ones came to
    durations_s: list[float] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    completion_tokens: list[int] = field(default_factory=list)
    measured: list["Measured"] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    endpoint: str | None = None
    _same: Counter[bytes] = field(default_factory=Counter)
    _same_requests: Counter[bytes] = field(default_factory=Counter)
    _lengths: dict[bytes, int] = field(default_factory=dict)

    @property
    def identical(self) -> int:
        """How many answers say what the most frequent one says; 0 where all differ."""
        return _most(self._same)

    @property
    def identical_requests(self) -> int:
        """How many requests are the most frequent one; 0 where all differ."""
        return _most(self._same_requests)

    @property
    def is_label(self) -> bool:
        """True where the most frequent answer is so short that others may well give it too."""
        return bool(self._same) and self._lengths[self._same.most_common(1)[0][0]] <= LABEL_CHARS

    def add(self, row: Result, body: bytes) -> None:
        """Look at one answer and the request that it answers."""
        view = view_answer(bytes(row.raw or b"")) or AnswerView()
        request = read_request(body)
        is_cut = row.finish_reason == "length"
        self.of += 1
        self.refused += view.is_refused or row.finish_reason == "content_filter"
        self.reasoning_only += view.is_reasoning_only
        self.empty += view.is_empty
        self.cut += is_cut
        self.cut_thinking += is_cut and view.is_reasoning_only
        if not view.vectors:
            self.finish_reasons[row.finish_reason or NOT_TOLD] += 1
        if view.dimension is not None:
            self.dimensions[view.dimension] += 1
        if len(self.samples) < SHOWN:
            prompt = asked_words(request)[:SHOWN_CHARS]
            sample = Sample(row.custom_id, prompt, view.words[:SHOWN_CHARS], row.finish_reason)
            self.samples.append(sample)
        self._add_tokens(row, request, body, is_cut=is_cut)
        self._add_json(view, request, is_cut=is_cut)
        self._add_marks(view, body)

    def _add_tokens(self, row: Result, request: dict[str, Any], body: bytes, *, is_cut: bool) -> None:
        self.measured.append(Measured(len(body), row.duration_s, row.prompt_tokens, row.completion_tokens))
        if row.duration_s is not None:
            self.durations_s.append(row.duration_s)
        if row.prompt_tokens is not None:
            self.prompt_tokens.append(row.prompt_tokens)
        if row.completion_tokens is not None:
            self.completion_tokens.append(row.completion_tokens)
            if not is_cut:
                self.whole_tokens.append(row.completion_tokens)
        if is_cut and (limit := asked_tokens(request) or row.completion_tokens):
            self.cut_limits.append(limit)

    def _add_json(self, view: AnswerView, request: Mapping[str, Any], *, is_cut: bool) -> None:
        if not asks_for_json(request):
            return
        self.json_asked += 1
        wrong = [choice.text for choice in view.choices if choice.text.strip() and not is_json(choice.text)]
        self.not_json += bool(wrong)
        self.not_json_cut += bool(wrong) and is_cut
        self.fenced += any(text.lstrip().startswith("```") for text in wrong)

    def _add_marks(self, view: AnswerView, body: bytes) -> None:
        if (mark := view.mark) and not view.is_empty:
            self._same[mark] += 1
            self._lengths[mark] = len(view.words)
        if body:
            self._same_requests[hashlib.blake2b(body, digest_size=16).digest()] += 1


def read_answers(ledger: Ledger, job_id: int, item_ids: Sequence[int]) -> Answers:
    """Look at the answers of these items, a few at a time."""
    found = Answers()
    for start in range(0, len(item_ids), CHUNK):
        chunk = item_ids[start : start + CHUNK]
        with ledger.read() as connection:
            rows = results_of(connection, job_id, chunk)
            bodies = request_bodies(connection, chunk)
        for row in rows:
            found.endpoint = found.endpoint or row.endpoint
            if row.state in _WITH_ANSWER and row.attempt_state == AttemptState.ANSWERED:
                found.add(row, bodies.get(row.id, b""))
                found.invalid += row.state != ItemState.COMPLETED
    return found


def _most(counted: Counter[bytes]) -> int:
    most = max(counted.values(), default=0)
    return most if most > 1 else 0
