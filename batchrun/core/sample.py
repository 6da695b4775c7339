"""Which items are tried first: some from the head, where people look, and some from anywhere. Seeded, so repeatable."""

import hashlib


def choose(total: int, *, size: int, method: str, seed: int) -> frozenset[int]:
    """Choose `size` of the positions 0..total-1.

    Args:
        method: "head", "random", or "mixed": a third from the head and the rest at random.
    """
    size = min(size, total)
    if method == "head" or size == total:
        return frozenset(range(size))
    head = size // 3 if method == "mixed" else 0
    chosen = set(range(head))
    number = 0
    while len(chosen) < size:
        digest = hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=8).digest()
        chosen.add(int.from_bytes(digest, "big") % total)
        number += 1
    return frozenset(chosen)
