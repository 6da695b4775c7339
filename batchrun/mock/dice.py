"""Chance without a state: numbers drawn from the seed and the bytes of a request, so order never matters."""

import math
import struct
from hashlib import blake2b

EIGHT_NUMBERS = struct.Struct("<8I")


class Dice:
    """Throw numbers that depend only on the seed and on what is thrown for."""

    def __init__(self, seed: int) -> None:
        self._key = str(seed).encode()[:64]

    def throw(self, digest: bytes, no: int) -> tuple[int, ...]:
        """Draw eight 32-bit numbers for a body's digest; `no` keeps the throws of one body apart."""
        return EIGHT_NUMBERS.unpack(blake2b(digest + b"%d" % no, key=self._key, digest_size=32).digest())


def to_share(number: int) -> float:
    """Turn a 32-bit number into one in [0, 1)."""
    return number / 4294967296.0


def to_normal(first: int, second: int) -> float:
    """Turn two 32-bit numbers into a standard normal one (Box and Muller, 1958)."""
    return math.sqrt(-2.0 * math.log(1.0 - to_share(first))) * math.cos(2.0 * math.pi * to_share(second))
