"""The journal's thread: in order, whatever a piece of work raises."""

import asyncio
import gc
import threading

import pytest

from gpumanager.allocator.scribe import Scribe


class Stop(BaseException):
    """No error that anybody would handle."""


def raise_it(error: BaseException) -> None:
    raise error


async def test_work_is_done_in_its_order_though_nobody_awaits_it() -> None:
    scribe, done = Scribe(), list[int]()

    for number in range(20):
        scribe.run(done.append, number)
    await scribe.run(done.append, 20)

    assert done == [*range(21)]


@pytest.mark.parametrize("error", [OSError("disk"), Stop()])
async def test_whatever_work_raises_is_told_and_the_next_is_done(error: BaseException) -> None:
    scribe = Scribe()

    with pytest.raises(type(error)):
        await scribe.run(raise_it, error)

    assert await scribe.run(int, "7") == 7


async def test_who_gives_up_waiting_does_not_stop_the_work() -> None:
    scribe, go, done = Scribe(), threading.Event(), list[int]()
    scribe.run(go.wait, 10)
    waiting = scribe.run(done.append, 1)

    waiting.cancel()
    go.set()
    await scribe.run(int)

    assert done == [1]


def test_a_loop_that_is_closed_is_no_trouble_for_the_thread() -> None:
    scribe, go = Scribe(), threading.Event()

    async def leave() -> None:
        scribe.run(go.wait, 10)

    async def again() -> int:
        go.set()
        return await scribe.run(int, "7")

    asyncio.run(leave())

    assert asyncio.run(again()) == 7


async def test_the_thread_ends_with_its_scribe() -> None:
    scribe = Scribe()
    thread = await scribe.run(threading.current_thread)

    del scribe
    gc.collect()

    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
