"""Walks through every state that a world can reach, and shows the shortest way to one that breaks the promise."""

from collections import deque
from dataclasses import dataclass

from tests.proof.world import Key, Step, World


@dataclass(frozen=True)
class Explored:
    """What was found."""

    states: int
    moves: int
    settled: int
    fault: str | None = None
    way: tuple[Step, ...] = ()  # the steps to the fault


def explore(start: World) -> Explored:
    """Visit every reachable state, nearest first; stop at the first that breaks a rule or can reach no end."""
    came: dict[Key, tuple[Key, Step] | None] = {start.key(): None}
    before: dict[Key, list[Key]] = {}  # the other way round, to see who can reach an end
    settled: list[Key] = []
    waiting = deque([(start.key(), start)])
    moves = 0
    while waiting:
        key, world = waiting.popleft()
        try:
            world.check()
        except AssertionError as fault:
            return Explored(len(came), moves, len(settled), str(fault), _way(came, key))
        if world.is_settled:
            settled.append(key)
        for step in world.steps():
            moves += 1
            following = world.copy()
            following.take(step)
            reached = following.key()
            before.setdefault(reached, []).append(key)
            if reached not in came:
                came[reached] = (key, step)
                waiting.append((reached, following))
    if stuck := came.keys() - _can_reach(settled, before):
        return Explored(len(came), moves, len(settled), "it never ends", _way(came, next(iter(stuck))))
    return Explored(len(came), moves, len(settled))


def _can_reach(ends: list[Key], before: dict[Key, list[Key]]) -> set[Key]:
    found, waiting = set(ends), list(ends)
    while waiting:
        for key in before.get(waiting.pop(), ()):
            if key not in found:
                found.add(key)
                waiting.append(key)
    return found


def _way(came: dict[Key, tuple[Key, Step] | None], key: Key) -> tuple[Step, ...]:
    steps: list[Step] = []
    while (last := came[key]) is not None:
        key, step = last
        steps.append(step)
    return tuple(reversed(steps))
