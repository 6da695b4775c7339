"""One way by chance through a world of a few items, and then straight on to its end. The seed says which."""

import random
from collections.abc import Callable

from batchrun.core.states import AttemptState, ItemState
from tests.ledger.desk import NOW
from tests.ledger.model import Item, Model
from tests.proof.world import OPEN, Bounds, Step, World

ITEMS = 4
STEPS = 60
BOUNDS = Bounds(attempts=6, deaths=4, wrong_verdicts=3, consents=4, cancels=1)


def start_of(dice: random.Random, model: Callable[..., Model] = Model) -> World:
    """Make a world: mostly under hold."""
    on_unknown = dice.choice(["hold", "hold", "retry"])
    retry_times = dice.choice([0, 1, 3])
    return World(model([Item(ready_at=NOW) for _ in range(ITEMS)], on_unknown, retry_times, NOW), BOUNDS)


def walk(seed: int, model: Callable[..., Model] = Model) -> list[Step]:
    """Take steps by chance, then end everything; check after each. Return the steps.

    Raises:
        AssertionError: the promise was broken, or no end was reached; the note tells the seed and the steps.
    """
    dice = random.Random(seed)
    world = start_of(dice, model)
    taken: list[Step] = []
    try:
        for _ in range(STEPS):
            _take(world, _choose(world, dice), taken)
        for step in iter(lambda: _towards_the_end(world, dice), None):
            _take(world, step, taken)
        assert all(item.state not in OPEN for item in world.model.items), "it never ends"
    except AssertionError as fault:
        fault.add_note(f"seed {seed}, {world.model.on_unknown}:\n" + "\n".join(map(str, taken)))
        raise
    return taken


def _take(world: World, step: Step | None, taken: list[Step]) -> None:
    if step is None:
        return
    taken.append(step)
    world.take(step)
    world.check()


def _choose(world: World, dice: random.Random) -> Step | None:
    """Choose first what happens and then to whom: a send has many fates, which must not crowd out the rest."""
    kinds: dict[str, list[Step]] = {}
    for step in world.steps():
        kinds.setdefault(step[0], []).append(step)
    return dice.choice(kinds[dice.choice(sorted(kinds))]) if kinds else None


def _towards_the_end(world: World, dice: random.Random) -> Step | None:
    """Return the next step of a run in which nothing more goes wrong; None where nothing is left to do."""
    if world.held:
        held = world.held[0]
        if not world.attempt(held).is_marked:
            return "mark", held
        fate = world.attempt(held).fate
        return ("hear", held, True) if fate else ("send", held, dice.choice(["answered", "refused", "lost and billed"]))
    for worker in world.workers:
        if worker in world.fallen:
            return "rescue", worker, dice.choice([True, False])
    for number, item in enumerate(world.model.items):
        if item.state is ItemState.RUNNING:  # its owner lives, or is declared dead: nobody else can have it
            assert item.attempts[item.fence].state is not AttemptState.INTENT, "running, and in nobody's hands"
        if item.state is ItemState.PENDING:
            return ("claim", world.workers[0], number) if world.model.state == "in_progress" else ("reopen",)
    return None
