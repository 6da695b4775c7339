"""Where hints arrive: each item once, no more than there is room for, and the rest back to the queue."""

import asyncio
from collections.abc import Awaitable, Callable

from batchrun.runner.intake import Intake


def on_a_loop(act: Callable[[Intake], Awaitable[None]], *, room: int = 4) -> None:
    async def whole() -> None:
        await act(Intake(room=room, wake=asyncio.Event()))

    asyncio.run(asyncio.wait_for(whole(), 60))


async def offered(intake: Intake, item_ids: list[int]) -> list[int]:
    """Offer a hint as the queue's thread does; return what is left of it once the rest has arrived."""
    left = await asyncio.to_thread(intake.offer, item_ids)
    await asyncio.sleep(0)
    return left


def test_what_there_is_no_room_for_is_left_to_others_until_something_was_taken() -> None:
    async def act(intake: Intake) -> None:
        assert await offered(intake, [1, 2, 3]) == []
        assert await offered(intake, [4, 5, 6]) == [5, 6]
        assert await offered(intake, [5]) == [5]
        assert intake.take(3) == [1, 2, 3]
        assert await offered(intake, [5, 6, 7, 8]) == [8]
        assert intake.take(9) == [4, 5, 6, 7]
        assert intake.consumed == 7

    on_a_loop(act)


def test_an_item_waits_once_however_often_it_is_hinted_at_and_takes_up_one_place() -> None:
    async def act(intake: Intake) -> None:
        assert await offered(intake, [1, 2]) == []
        assert await offered(intake, [2, 1, 2]) == []
        intake.put(1)
        intake.put(3)
        assert await offered(intake, [3, 4, 5]) == []
        assert intake.take(9) == [1, 2, 3, 4, 5]
        assert await offered(intake, [6, 7, 8, 9, 10]) == [10]

    on_a_loop(act)


def test_what_this_process_puts_in_takes_no_room_and_may_go_first() -> None:
    async def act(intake: Intake) -> None:
        assert await offered(intake, [1, 2, 3, 4]) == []
        intake.put(5)
        intake.put(6, first=True)
        intake.put(2, first=True)
        assert intake.take(3) == [2, 6, 1]
        assert await offered(intake, [7, 8, 9]) == [9]

    on_a_loop(act)


def test_a_worker_without_slots_takes_nothing_and_leaves_everything_to_others() -> None:
    async def act(intake: Intake) -> None:
        assert await offered(intake, [1]) == [1]
        intake.resize(2)
        assert await offered(intake, [1, 2, 3]) == [3]
        intake.resize(1)
        assert await offered(intake, [3]) == [3]
        intake.forget()
        assert not intake
        assert await offered(intake, [3]) == []

    on_a_loop(act, room=0)


def test_an_offer_that_waits_for_room_goes_on_when_something_is_taken_or_everything_ends() -> None:
    async def act(intake: Intake) -> None:
        for ends in (False, True):
            intake.forget()
            assert await offered(intake, [1, 2, 3, 4]) == []
            waiting = asyncio.create_task(asyncio.to_thread(intake.offer, [5]))
            await asyncio.sleep(0)
            if ends:
                intake.close()
            else:
                intake.take(4)
            assert await waiting == []
        assert await offered(intake, [6]) == []
        assert not intake

    on_a_loop(act)
