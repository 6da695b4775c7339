"""How a job's concurrency is divided among its workers: evenly, and none gets more than it can use."""

from collections.abc import Mapping


def shares(total: int, wants: Mapping[int, int]) -> dict[int, int]:
    """Divide `total` slots (max-min fairness): what one worker does not want goes to the others.

    Args:
        wants: the most slots that each worker can use, by worker.

    Returns:
        Each worker's slots. Where they cannot be equal, the lower worker ids get one more: everybody comes to the same.
    """
    given = dict.fromkeys(wants, 0)
    left = total
    for place, (worker, want) in enumerate(sorted(wants.items(), key=lambda entry: (entry[1], -entry[0]))):
        given[worker] = min(want, left // (len(wants) - place))
        left -= given[worker]
    return given
