"""Background tasks end, also where a clean-up puts its own error in the place of a cancellation."""

from __future__ import annotations

import asyncio

from contracts.tasks import end_all


async def _survivor(lost: int) -> str:
    """Takes so many cancellations for a lost connection, as a loop around redis-py may."""
    while True:
        try:
            try:
                await asyncio.sleep(60)
            finally:
                if lost > 0:
                    lost -= 1
                    raise TimeoutError("closing the connection")
        except TimeoutError:
            continue


def test_a_task_that_swallows_a_cancellation_is_asked_again() -> None:
    async def main() -> list[bool]:
        tasks = [asyncio.create_task(_survivor(lost)) for lost in (0, 1, 2)]
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await end_all(tasks)
        return [task.cancelled() for task in tasks]

    assert asyncio.run(main()) == [True, True, True]


def test_what_has_ended_already_or_failed_is_no_trouble() -> None:
    async def fail() -> None:
        raise OSError("gone")

    async def main() -> None:
        failed = asyncio.create_task(fail())
        await asyncio.sleep(0)
        await end_all([failed])
        await end_all([])

    asyncio.run(main())
