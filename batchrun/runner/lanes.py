"""All the lanes of a job: the slots that they share, and which of them gets what."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from batchrun.core.routing import assign
from batchrun.runner.lane import Lane
from batchrun.runner.slots import Slots


class Lanes:
    """The lanes of one job in one process, at least one. To be used on one event loop. Times are monotonic seconds."""

    def __init__(self, lanes: Sequence[Lane], slots: Slots) -> None:
        self._lanes = tuple(lanes)
        self.slots = slots

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes)

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def in_hand(self) -> int:
        """Claims that have not been sent to the end."""
        return sum(lane.in_hand for lane in self._lanes)

    @property
    def has_reached(self) -> bool:
        """True once any endpoint has answered something in this run."""
        return any(lane.has_reached for lane in self._lanes)

    @property
    def left(self) -> list[Lane]:
        """Those that are not out."""
        return [lane for lane in self._lanes if lane.out is None]

    @property
    def refused(self) -> set[int]:
        """Items that each endpoint has refused which is not out, without an answer to anybody since."""
        return set.intersection(*(lane.breaker.refused for lane in self.left)) if self.left else set()

    @property
    def are_all_away(self) -> bool:
        """True where no endpoint can be reached of those that are not out."""
        left = self.left
        return bool(left) and all(lane.pace.is_blocked for lane in left)

    def is_held(self, now: float) -> bool:
        """Say whether no request may leave on any lane."""
        return not any(lane.is_open(now) for lane in self._lanes)

    def open_at(self, now: float) -> float | None:
        """Return when the next lane opens by itself; None where none does."""
        held = [lane.pace.held_until for lane in self.left if not lane.pace.is_blocked]
        return min((moment for moment in held if moment > now), default=None)

    def room(self, now: float, *, room: int, ahead: int) -> int:
        """Return how many claims are worth making, of those that the job has room for."""
        loads = [lane.load(now, room=room, ahead=ahead) for lane in self._lanes if lane.is_open(now)]
        return min(room, sum(load.room for load in loads))

    def assign(
        self,
        item_ids: Sequence[int],
        now: float,
        *,
        room: int,
        ahead: int,
        waiting: int | None,
        affinities: Sequence[bytes | None] | None = None,
    ) -> tuple[list[tuple[Lane, list[int]]], list[int]]:
        """Say which items go on which lane, and which had better wait.

        Args:
            affinities: what each has in common with others, where that is known: those had better go one way.
        """
        lanes = [lane for lane in self._lanes if lane.is_open(now)]
        if len(self._lanes) == 1 and lanes:
            return [(lanes[0], list(item_ids))] if item_ids else [], []
        loads = [lane.load(now, room=room, ahead=ahead) for lane in lanes]
        parts, left = defaultdict[int, list[int]](list), list[int]()
        chosen = assign(loads, affinities or [None] * len(item_ids), waiting=waiting)
        for item_id, at in zip(item_ids, chosen, strict=True):
            if at is None:
                left.append(item_id)
            else:
                parts[at].append(item_id)
        return [(lanes[at], ids) for at, ids in parts.items()], left

    def resize(self, concurrency: int) -> None:
        """Have at most so many requests out from now on; those that are out beyond that finish first."""
        if concurrency < self.slots.size:  # what waits for a slot may wait for ever: its owner has given it back
            self.slots.send_away()
            for lane in self._lanes:
                lane.send_away()
        for lane in self._lanes:
            lane.resize(concurrency)
        self.slots.resize(concurrency)
