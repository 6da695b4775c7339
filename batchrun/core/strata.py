"""A trial's items, drawn from all by length: short and long ones in their right shares. Seeded, so repeatable.

Prompts of about one length are a class; neighbouring classes are put together into strata, each with about the same
part of the items or of their bytes, whichever is more. A few giants that hold half of the bytes are thus a stratum of
their own, and at least two of each stratum are tried. Cochran, Sampling Techniques, chapter 5, has the theory.
"""

import hashlib
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

STEPS = 8  # classes to a doubling of the length
MOST_STRATA = 12


def length_class(size_bytes: int) -> int:
    """Return the class of a length: lengths in one class differ by less than a tenth."""
    return 0 if size_bytes < 1 else 1 + int(STEPS * math.log2(size_bytes))


@dataclass(frozen=True, slots=True)
class Stratum:
    """Items whose lengths lie in these classes, the last one included."""

    first: int
    last: int
    count: int
    taken: int  # of them, into the trial

    def holds(self, size_bytes: int) -> bool:
        return self.first <= length_class(size_bytes) <= self.last


def stratify(lengths: Mapping[int, int], *, take: int) -> list[Stratum]:
    """Divide items into strata and say how many of each are to be tried.

    Args:
        lengths: how many items have which length, in bytes.
    """
    counts, weights = _classes(lengths)
    groups = list(_groups(weights, wanted=max(1, min(take // 2, MOST_STRATA))))
    sizes = [sum(counts[one] for one in group) for group in groups]
    taken = _shares(sizes, [sum(weights[one] for one in group) for group in groups], take=take)
    return [Stratum(group[0], group[-1], size, share) for group, size, share in zip(groups, sizes, taken, strict=True)]


def whole(lengths: Mapping[int, int], *, take: int) -> list[Stratum]:
    """Put all items into one stratum: they are tried whatever their length."""
    total = sum(lengths.values())
    return [Stratum(0, length_class(max(lengths, default=0)), total, min(take, total))]


def _classes(lengths: Mapping[int, int]) -> tuple[dict[int, int], dict[int, float]]:
    """Return the count of each class, and its weight: its part of the items or of the bytes, whichever is more."""
    items, size_bytes = sum(lengths.values()), sum(length * count for length, count in lengths.items())
    counts: dict[int, int] = {}
    weights: dict[int, float] = {}
    for length, count in sorted(lengths.items()):
        one = length_class(length)
        counts[one] = counts.get(one, 0) + count
        weights[one] = weights.get(one, 0.0) + max(count / items, length * count / size_bytes if size_bytes else 0.0)
    whole = sum(weights.values())
    return counts, {one: weight / whole for one, weight in weights.items()}


def _groups(weights: Mapping[int, float], *, wanted: int) -> Iterator[list[int]]:
    """Cut the classes, shortest first, into at most `wanted` groups of about equal weight, and at the widest gaps."""
    runs = _runs(list(weights), most=wanted)
    run_weights = [sum(weights[one] for one in run) for run in runs]
    for run, parts in zip(runs, _shares([len(run) for run in runs], run_weights, take=wanted, least=1), strict=True):
        group: list[int] = []
        done, reached, whole = 0.0, 1, sum(weights[one] for one in run)
        for one in run:
            group.append(one)
            done += weights[one] / whole
            if done >= reached / parts - 1e-9:
                yield group
                group, reached = [], 1 + math.floor(done * parts + 1e-9)
        if group:
            yield group


def _runs(classes: list[int], *, most: int) -> list[list[int]]:
    """Part the classes where a length is twice the one before: giants do not hide among what is merely long."""
    gaps = sorted(range(1, len(classes)), key=lambda at: classes[at - 1] - classes[at])[: most - 1]
    cuts = sorted(at for at in gaps if classes[at] - classes[at - 1] > STEPS)
    return [classes[start:end] for start, end in pairwise([0, *cuts, len(classes)])]


def _shares(sizes: list[int], weights: list[float], *, take: int, least: int = 2) -> list[int]:
    """Divide `take` by weight (D'Hondt), none more than its size, and each `least` of it where there is so much."""
    taken = [0] * len(sizes)
    for _ in range(least):
        for at, size in enumerate(sizes):
            if taken[at] < size and sum(taken) < take:
                taken[at] += 1
    while sum(taken) < min(take, sum(sizes)):
        open_ones = [at for at, size in enumerate(sizes) if taken[at] < size]
        taken[max(open_ones, key=lambda at: weights[at] / (taken[at] + 1))] += 1
    return taken


def draw(items: Iterable[tuple[int, int]], strata: list[Stratum], *, seed: int) -> set[int]:
    """Draw each stratum's share at random; memory is bounded by the number of items drawn.

    Args:
        items: id and length in bytes of each, always in the same order.
    """
    heaps: list[list[tuple[int, int]]] = [[] for _ in strata]
    stratum_of = {one: at for at, stratum in enumerate(strata) for one in range(stratum.first, stratum.last + 1)}
    for number, (item_id, size_bytes) in enumerate(items):
        at = stratum_of[length_class(size_bytes)]
        lot = int.from_bytes(hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=8).digest(), "big")
        if len(heaps[at]) < strata[at].taken:
            heapq.heappush(heaps[at], (-lot, item_id))
        elif heaps[at] and -lot > heaps[at][0][0]:
            heapq.heapreplace(heaps[at], (-lot, item_id))
    return {item_id for heap in heaps for _, item_id in heap}
