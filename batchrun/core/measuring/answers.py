"""Two jobs' answers to the same questions, side by side: equal, different, or on one side alone."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from batchrun.core.answer_view import view_answer

Verdict = Literal["equal", "different", "only_a", "only_b"]
SAMPLES = 5


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """One question's answers as a person reads them; None: that side has none."""

    custom_id: str
    verdict: Verdict
    a: str | None
    b: str | None


@dataclass(slots=True)
class AnswerTally:
    """How many answers were equal, different, or on one side alone; and the first that differ."""

    equal: int = 0
    different: int = 0
    only_a: int = 0
    only_b: int = 0
    samples: list[AnswerPair] = field(default_factory=list)

    def count(self, pairs: Iterable[AnswerPair]) -> Iterator[AnswerPair]:
        """Count pairs as they pass by."""
        for pair in pairs:
            setattr(self, pair.verdict, getattr(self, pair.verdict) + 1)
            if pair.verdict == "different" and len(self.samples) < SAMPLES:
                self.samples.append(pair)
            yield pair


def pair_of(custom_id: str, a: bytes | None, b: bytes | None) -> AnswerPair:
    """Compare the answers of two sides, one of which there is at least. What they say counts, not ids and times."""
    (words_a, mark_a), (words_b, mark_b) = _read(a), _read(b)
    if b is None:
        return AnswerPair(custom_id, "only_a", words_a, None)
    if a is None:
        return AnswerPair(custom_id, "only_b", None, words_b)
    return AnswerPair(custom_id, "equal" if mark_a == mark_b else "different", words_a, words_b)


def _read(raw: bytes | None) -> tuple[str | None, bytes]:
    """Return an answer's words, and a mark that is equal where answers say the same."""
    if raw is None:
        return None, b""
    view = view_answer(raw)
    if view is None:
        return raw.decode("utf-8", "replace"), raw
    return view.words, view.mark or raw
