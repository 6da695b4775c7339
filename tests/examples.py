"""How many values a test draws: at home all of them, in CI a third, by another seed each day (.ci/run).

Left alone, Hypothesis draws the very same values in every CI run: those of the first day tell nothing on the second.
"""

import os

SHARES = 3


def drawn(count: int) -> int:
    """Return how many of `count` examples are drawn here."""
    return -(-count // SHARES) if os.environ.get("CI", "").lower() in ("true", "1") else count
