"""What is sent: request sets of known lengths, made of words by a seed, each prompt with a beginning of its own.

A set holds the same texts in every run, so that runs are comparable. What a cache could know again is the beginning:
every prompt begins with a mark that no other prompt of this or any other measurement has. Only a prefix that is shared
on purpose comes before it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random
from typing import NamedTuple

from batchrun.bench.lengths import Lengths
from batchrun.errors import UsageFault


class Shape(NamedTuple):
    """The lengths of one request, in tokens."""

    prompt_tokens: int
    max_tokens: int


SHORT, MEDIUM, LONG, VERY_LONG = Shape(100, 50), Shape(500, 256), Shape(1_200, 512), Shape(4_000, 1_024)
OUTLIER_EVERY = 20  # one request of so many is very long
SETS = ("short", "medium", "long", "mixed", "outliers")
_OWN = re.compile(r"(\d{1,7})x(\d{1,6})$")
_MARK_BYTES = 8
_TEXT = """
the of and to in is that it was for on are with as his they at be this from have or by one had not but what
all were when we there can an your which their said if do will each about how up out them then she many some
so these would other into has more her two like him see time could no make than first been its who now people
my made over did down only way find use may water long little very after words called just where most know get
through back much before go good new write our used me man too any day same right look think also around
another came come work three word must because does part even place well such here take why things help put
years different away again off went old number
"""
_WORDS = tuple(_TEXT.split())  # short and common: about a token each
_ASK = "\n\nGo on with this text, in the same manner, for as long as you can."


@dataclass(frozen=True, slots=True)
class RequestSet:
    """The shapes of a run's requests, in the order of their numbers; each run sends them in an order of its own."""

    name: str
    shapes: tuple[Shape, ...]

    @classmethod
    def named(cls, name: str, count: int) -> "RequestSet":
        """Return a set by its name, or one of shape "300x64": 300 tokens in, 64 out.

        Raises:
            UsageFault: there is none of this name.
        """
        one = {"short": SHORT, "medium": MEDIUM, "long": LONG}.get(name)
        if (own := _OWN.match(name)) and int(own[1]) > 0 and int(own[2]) > 0:
            one = Shape(int(own[1]), int(own[2]))
        if one is not None:
            return cls(name, (one,) * count)
        if name == "mixed":
            return cls(name, tuple((SHORT, MEDIUM, LONG)[number % 3] for number in range(count)))
        if name == "outliers":
            is_long = [number % OUTLIER_EVERY == OUTLIER_EVERY // 2 for number in range(count)]
            return cls(name, tuple(VERY_LONG if far else SHORT for far in is_long))
        raise UsageFault(
            f"there is no workload {name!r}", hint=f"one of {', '.join(SETS)}, or TOKENSxTOKENS such as 300x64"
        )

    def limited(self, max_tokens: int | None) -> "RequestSet":
        """Return the set with another limit of every answer; None leaves it as it is."""
        if max_tokens is None:
            return self
        return replace(self, shapes=tuple(shape._replace(max_tokens=max_tokens) for shape in self.shapes))

    @property
    def mean_prompt_tokens(self) -> int:
        return round(sum(shape.prompt_tokens for shape in self.shapes) / len(self.shapes))


class Prompt(NamedTuple):
    """One request of a run."""

    name: str  # of its item
    text: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Prompts:
    """Writes the prompts of a measurement's runs.

    Args:
        seed: of the texts and of the order in each run.
        nonce: of this measurement alone: its prompts begin as those of no other.
        shared_prefix_tokens: what all of them have in common on purpose, before their marks; 0: nothing.
    """

    seed: int
    nonce: str
    shared_prefix_tokens: int = 0

    def write(self, requests: RequestSet, lengths: Lengths, *, run: str) -> list[Prompt]:
        """Write one run's prompts in the order in which they are sent; `run` names it within the measurement."""
        prefix = self._words(lengths.words_of(self.shared_prefix_tokens), "prefix") if self.shared_prefix_tokens else ""
        prompts = []
        for number, shape in enumerate(requests.shapes):
            words = lengths.words_for(shape.prompt_tokens - self.shared_prefix_tokens)
            text = f"{prefix}{self.mark(run, number)}: {self._words(words, str(number))}{_ASK}"
            prompts.append(Prompt(f"{number:05d}", text, shape.max_tokens))
        Random(f"{self.seed} order {run}").shuffle(prompts)
        return prompts

    def mark(self, run: str, number: int) -> str:
        """Return what one prompt of one run begins with, and no other."""
        return blake2b(f"{self.nonce} {run} {number}".encode(), digest_size=_MARK_BYTES).hexdigest()

    def _words(self, count: int, part: str) -> str:
        dice = Random(f"{self.seed} text {part}")
        return "".join(f"{word} " for word in dice.choices(_WORDS, k=count))


def heads(prompts: Sequence[Prompt], chars: int = 64) -> set[str]:
    """Return the beginnings of prompts, as a prefix cache would see them."""
    return {prompt.text[:chars] for prompt in prompts}
