"""A semaphore that changes its size while it is used."""

import asyncio

from batchrun.runner.slots import Slots


async def hold(slots: Slots, inside: list[int], number: int, until: asyncio.Event) -> None:
    if not await slots.enter():
        return
    try:
        inside.append(number)
        await until.wait()
        inside.remove(number)
    finally:
        slots.leave()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _change_the_size() -> None:
    slots, inside, ends = Slots(2), list[int](), [asyncio.Event() for _ in range(6)]
    tasks = [asyncio.create_task(hold(slots, inside, number, ends[number])) for number in range(6)]
    await settle()
    assert inside == [0, 1]
    slots.resize(4)
    await settle()
    assert inside == [0, 1, 2, 3]
    slots.resize(1)
    for number in (0, 1, 2):
        ends[number].set()
    await settle()
    assert inside == [3], "nobody enters until it is below the new size"
    tasks[4].cancel()
    ends[3].set()
    await settle()
    assert inside == [5], "the first come is served, and who gave up is passed over"
    ends[5].set()
    await settle()
    assert (inside, slots.in_use) == ([], 0)
    slots.resize(0)
    last = asyncio.create_task(hold(slots, inside, 9, ends[0]))
    await settle()
    assert inside == []
    last.cancel()
    await asyncio.wait({last})
    assert slots.in_use == 0


def test_a_semaphore_changes_its_size_while_it_is_used() -> None:
    asyncio.run(_change_the_size())


def test_those_who_wait_can_be_sent_away_and_nobody_else_is() -> None:
    async def play() -> None:
        slots, inside, ends = Slots(1), list[int](), [asyncio.Event() for _ in range(3)]
        tasks = [asyncio.create_task(hold(slots, inside, number, ends[number])) for number in range(3)]
        await settle()
        slots.send_away()
        await settle()
        assert [task.done() for task in tasks] == [False, True, True]
        ends[0].set()
        await tasks[0]
        assert slots.in_use == 0

    asyncio.run(play())


def test_a_place_that_comes_together_with_the_end_is_given_on() -> None:
    async def play() -> int:
        slots, inside, ends = Slots(1), list[int](), [asyncio.Event() for _ in range(3)]
        tasks = [asyncio.create_task(hold(slots, inside, number, ends[number])) for number in range(3)]
        await settle()
        ends[0].set()
        await asyncio.sleep(0)
        tasks[1].cancel()  # in the very moment in which the place became its own
        await settle()
        return inside[0]

    assert asyncio.run(play()) == 2
