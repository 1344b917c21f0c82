"""The journal's thread: in order, whatever a piece of work raises."""

import asyncio
import gc
import threading

import pytest

from gpumanager.grants.scribe import Scribe


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
    waiting = asyncio.ensure_future(scribe.run(done.append, 1))
    await asyncio.sleep(0)

    waiting.cancel()
    go.set()
    await scribe.run(int)

    assert done == [1]


async def test_the_loop_goes_on_while_work_takes_its_time() -> None:
    scribe, go = Scribe(), threading.Event()
    waiting = asyncio.ensure_future(scribe.run(go.wait, 10))
    asyncio.get_running_loop().call_soon(go.set)

    assert await waiting


async def test_what_is_awaited_late_or_twice_is_told_each_time() -> None:
    scribe = Scribe()
    work = scribe.run(int, "7")
    await scribe.run(int)

    assert [await work, await work] == [7, 7]


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
