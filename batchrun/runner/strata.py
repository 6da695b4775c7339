"""How a job's items are divided for its trial. The same lengths give the same strata, so nobody needs to keep them."""

from collections.abc import Mapping, Sequence
from typing import Any

from batchrun.core.projection import Part
from batchrun.core.strata import Stratum, stratify, whole


def strata_of(trial: Mapping[str, Any], lengths: Mapping[int, int]) -> list[Stratum]:
    """Divide a job's items by length, as `trial` of its spec asks.

    Args:
        lengths: how many items have which length, in bytes.
    """
    if trial["sample"] != "stratified" or not lengths:
        return whole(lengths, take=trial["size"])
    return stratify(lengths, take=trial["size"])


def parts_of(strata: Sequence[Stratum], left: Mapping[int, int], seen: Sequence[tuple[float, float]]) -> list[Part]:
    """Put what is left, and what was seen, into its strata.

    Args:
        left: how many of the items left have which length.
        seen: length and value of each item that was tried.
    """
    return [
        Part(
            count=sum(count for length, count in left.items() if stratum.holds(length)),
            size=sum(length * count for length, count in left.items() if stratum.holds(length)),
            seen=[pair for pair in seen if stratum.holds(int(pair[0]))],
        )
        for stratum in strata
    ]
