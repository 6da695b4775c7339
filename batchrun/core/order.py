"""In which order a job's items are sent: each gets a rank when it is written; lower ranks first, equal ones as read.

A rank is made of the request alone. So a job of any size is ordered while its lines stream by, and the sorting is an
index of the ledger.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal
from zlib import crc32

from pydantic_core import from_json, to_json

# "prefix": requests that begin alike go one after the other, so that the server has their beginning in its cache.
# "longest": what may take long goes first, so that at the end nothing is waited for alone.
Order = Literal["input", "prefix", "longest"]

# A prefix is told by how it begins, again and again, each time twice as far: requests that share it up to one of
# these places lie together, among them those that share it up to the next, and so on. Of any shared prefix less than
# half is thus not seen.
LEVELS_BYTES = (256, 512, 1_024, 2_048, 4_096, 8_192, 16_384)
LEVEL_BITS = 9
LATEST = 1 << 62
# A guess, and not a measurement: prompts are read many tokens at a time, answers are written one by one.
PROMPT_TOKENS_PER_ANSWER_TOKEN = 10
BYTES_PER_TOKEN = 4


# What a server reads before it answers, in the order in which chat templates put it.
_READ_FIRST = ("model", "tools", "instructions", "messages", "prompt", "input")


def rank_of(order: Order, *, body: bytes, max_output_tokens: int) -> int:
    """Return the rank of a request in this order, from 0 to `LATEST` (its 63 bits fit into a ledger's integer)."""
    match order:
        case "input":
            return 0
        case "longest":
            work = len(body) // BYTES_PER_TOKEN + PROMPT_TOKENS_PER_ANSWER_TOKEN * max_output_tokens
            return LATEST - min(work, LATEST)
        case "prefix":
            return prefix_key(body)


def prefix_key(body: bytes) -> int:
    """Return 63 bits that stand for how a prompt begins: 9 for each of `LEVELS_BYTES`, the shortest first.

    Two keys agree in their first 9 x n bits where the prompts agree up to level n; else hardly ever.
    """
    fields = from_json(body)
    text = to_json([fields.get(name) for name in _READ_FIRST])
    key, check, done = 0, 0, 0
    for level in LEVELS_BYTES:
        check = crc32(text[done:level], check)
        done = level
        key = key << LEVEL_BITS | check >> 32 - LEVEL_BITS
    return key


def affinities(ranks: Sequence[int], *, seen: Sequence[int] = ()) -> list[bytes | None]:
    """Return what each of some requests has in common with others of them, as a key; None where that is nothing.

    How far a beginning is shared shows only beside others: to the whole length of a request each is alone.

    Args:
        ranks: in the order "prefix".
        seen: ranks of requests that went before.
    """
    whole = sorted({*ranks, *seen})
    depths = dict.fromkeys(whole, 0)
    for one, other in pairwise(whole):
        shared = _shared_levels(one, other)
        depths[one], depths[other] = max(depths[one], shared), max(depths[other], shared)
    counts = Counter((*ranks, *seen))
    return [_first_levels(rank, len(LEVELS_BYTES) if counts[rank] > 1 else depths[rank]) for rank in ranks]


def _shared_levels(one: int, other: int) -> int:
    """Return up to how many levels two keys agree."""
    return len(LEVELS_BYTES) - -(-(one ^ other).bit_length() // LEVEL_BITS)


def _first_levels(rank: int, count: int) -> bytes | None:
    if not count:
        return None
    return bytes([count]) + (rank >> LEVEL_BITS * (len(LEVELS_BYTES) - count)).to_bytes(8)
