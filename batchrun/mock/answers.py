"""The text of answers: a pure function of the seed and the request's body."""

from dataclasses import dataclass

from batchrun.mock.config import MockConfig
from batchrun.mock.dice import Dice

# Plain words without quotes or backslashes: they stand in JSON as they are.
WORDS = (
    b"the river carries small boats past a quiet mill while evening light settles on stone walls and slow water turns"
    b" wheels that once ground grain for every village along its banks before rail came through hills bringing coal"
    b" letters clocks and news from distant towns where people counted hours not seasons"
).split()

RING_TOKENS = 4096
# A ring of tokens, laid out once as text, so that any answer is one slice of it.
_RING = tuple(b" " + WORDS[(no * no * 7 + no * 3 + no // 61) % len(WORDS)] for no in range(RING_TOKENS))
_TOKENS = _RING * 2
_TEXT = b"".join(_TOKENS)


def _measure_offsets() -> tuple[int, ...]:
    offsets = [0]
    for token in _TOKENS:
        offsets.append(offsets[-1] + len(token))
    return tuple(offsets)


_OFFSETS = _measure_offsets()


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of one choice; the bytes of its tokens are ready to stand between the quotes of a JSON string."""

    mark: bytes  # the first token: [[key]] of the item, or else the start of the body's digest
    start: int  # where in the ring the other tokens begin
    token_count: int
    is_cut: bool  # max_tokens was reached

    def get_token(self, no: int) -> bytes:
        """Return token `no`, counted from 0."""
        return _TOKENS[(self.start + no - 1) % RING_TOKENS] if no else self.mark

    def get_text(self) -> bytes:
        """Return all tokens."""
        end = self.start + self.token_count - 1
        if end < len(_OFFSETS):
            return self.mark + _TEXT[_OFFSETS[self.start] : _OFFSETS[end]]
        return b"".join(map(self.get_token, range(self.token_count)))


class Author:
    """Write answers."""

    def __init__(self, config: MockConfig, dice: Dice) -> None:
        self._dice = dice
        self._least = max(round(config.answer_tokens * (1.0 - config.answer_spread)), 1)
        self._most = max(round(config.answer_tokens * (1.0 + config.answer_spread)), self._least)

    def write(
        self, digest: bytes, mark: bytes, *, choice_no: int, max_tokens: int | None, ignore_eos: bool = False
    ) -> Answer:
        """Write choice `choice_no` (from 0) of the answer to the body with this digest."""
        throw = self._dice.throw(digest, -choice_no)
        wanted = self._least + throw[0] % (self._most - self._least + 1)
        if max_tokens is not None and (ignore_eos or wanted > max_tokens):
            return Answer(mark, throw[1] % RING_TOKENS, max_tokens, True)
        return Answer(mark, throw[1] % RING_TOKENS, wanted, False)
