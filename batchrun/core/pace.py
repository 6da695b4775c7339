"""When the next request may leave: the job-wide hold after throttling, and the gentle start after it."""

from dataclasses import dataclass

FIRST_HOLD_S = 0.5
LONGEST_GUESSED_HOLD_S = 8.0
RAMP_S = 0.6  # the slots come back one by one over this time, never in one stampede


@dataclass
class Pace:
    """The pace of one job in one process. Times are monotonic seconds; chance is an argument in [0, 1)."""

    concurrency: int
    held_until: float = 0.0
    is_blocked: bool = False  # until somebody lifts it: the endpoint is away
    _ramp_left: int = 0  # sends that still start one by one
    _guesses: int = 0

    def hold(self, now: float, *, asked_s: float | None, chance: float) -> float:
        """Hold the whole job back and return for how long, in seconds.

        Args:
            asked_s: what the endpoint asked for (Retry-After); None where it named nothing: then the hold doubles each
                time until an answer comes.
        """
        if asked_s is None or asked_s < FIRST_HOLD_S:
            if now < self.held_until:
                return self.held_until - now  # the refusals of one moment are one reason to wait
            asked_s = min(FIRST_HOLD_S * 2**self._guesses, LONGEST_GUESSED_HOLD_S)
            self._guesses += 1
        wait_s = asked_s + (0.05 + 0.1 * asked_s) * chance  # never earlier than asked
        if now + wait_s > self.held_until:
            self.held_until = now + wait_s
            self._ramp_left = self.concurrency
        return wait_s

    def wait_until(self, moment: float) -> None:
        """Hold back until a moment that somebody else was given."""
        if moment > self.held_until:
            self.held_until = moment
            self._ramp_left = self.concurrency

    def resize(self, concurrency: int) -> None:
        """Have so many slots from now on; new ones come into use one by one, so that a refusal meets few of them."""
        if 0 < self.concurrency < concurrency:
            self._ramp_left = max(self._ramp_left, concurrency - self.concurrency)
        self.concurrency = concurrency

    def restart(self) -> None:
        """Begin gently after the endpoint was away."""
        self.is_blocked = False
        self._ramp_left = self.concurrency

    def answered(self) -> None:
        """Note that the endpoint answers again."""
        self._guesses = 0

    def is_held(self, now: float) -> bool:
        return self.is_blocked or now < self.held_until

    def admit(self, *, chance: float) -> float:
        """Take the next place; return how long after the one before it may start, in seconds: 0 outside of a ramp."""
        if self._ramp_left <= 0:
            return 0.0
        self._ramp_left -= 1
        return RAMP_S / max(1, self.concurrency) * (0.5 + chance)
