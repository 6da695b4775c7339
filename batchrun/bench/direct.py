"""The queue of a measured job: none at all.

A queue is for other workers, and none come to a measurement. A thread that polls one beside the event loop takes its
turns from the very loop that stamps the chunks.
"""

from batchrun.runner.means import Take


class DirectQueue:
    """Hands every hint to the performer itself, in the thread that sends it."""

    def __init__(self, name: str) -> None:
        self._take: Take | None = None

    def start(self, take: Take) -> None:
        """Begin to hand over."""
        self._take = take

    def send(self, job_id: int, item_ids: list[int]) -> None:
        """Hand the items over; return when the performer has taken them all, or takes none any more."""
        while item_ids and (take := self._take) is not None:
            item_ids = take(job_id, item_ids)

    def stop(self) -> None:
        """Hand nothing over any more. What was not taken stands in the ledger."""
        self._take = None
