"""How many words make how many tokens, by what the endpoint itself counted: a straight line through its answers."""

from collections.abc import Iterable
from dataclasses import dataclass

FEWEST_WORDS = 1


@dataclass(frozen=True, slots=True)
class Lengths:
    """tokens = fixed + per_word * words: the chat template, the mark and the closing words are the fixed part."""

    fixed_tokens: float
    tokens_per_word: float

    @classmethod
    def through(cls, seen: Iterable[tuple[int, int]]) -> "Lengths":
        """Lay the line of least squares through pairs of words and tokens.

        Raises:
            ValueError: they are all of one length, or longer prompts have no more tokens.
        """
        pairs = list(seen)
        n = len(pairs)
        mean_words = sum(words for words, _ in pairs) / n if n else 0.0
        mean_tokens = sum(tokens for _, tokens in pairs) / n if n else 0.0
        spread = sum((words - mean_words) ** 2 for words, _ in pairs)
        if spread == 0:
            raise ValueError("lengths can be told from prompts of different lengths only")
        slope = sum((words - mean_words) * (tokens - mean_tokens) for words, tokens in pairs) / spread
        if slope <= 0:
            raise ValueError("the endpoint counts no more tokens for longer prompts")
        return cls(mean_tokens - slope * mean_words, slope)

    def words_for(self, tokens: int) -> int:
        """Return how many words bring a prompt to so many tokens, with all its fixed parts."""
        return max(FEWEST_WORDS, round((tokens - self.fixed_tokens) / self.tokens_per_word))

    def words_of(self, tokens: int) -> int:
        """Return how many words are so many tokens by themselves."""
        return max(FEWEST_WORDS, round(tokens / self.tokens_per_word))
