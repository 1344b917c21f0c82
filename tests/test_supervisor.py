"""Background tasks are restarted, and errors about one object are skipped."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from gpumanager.supervisor import LONGEST_PAUSE, SkippedErrors, Supervisor


class Clock:
    """Time that passes only while somebody sleeps. pauses: how long they did."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def supervisor(clock: Clock) -> AsyncIterator[Supervisor]:
    made = Supervisor(clock=clock, sleep=clock.sleep)
    yield made
    await made.stop()


async def until(supervisor: Supervisor, restarts: int) -> None:
    while supervisor.restarts["task"] < restarts:  # noqa: ASYNC110 - the clock is a manual one
        await asyncio.sleep(0)


async def fails() -> None:
    raise OverflowError("int too big to convert")


async def test_a_task_that_fails_is_restarted_ever_later(
    supervisor: Supervisor, clock: Clock
) -> None:
    supervisor.keep("task", fails)
    await until(supervisor, 9)

    assert clock.pauses[:9] == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


async def test_a_task_that_has_run_for_long_is_restarted_soon(
    supervisor: Supervisor, clock: Clock
) -> None:
    async def works_for_a_minute() -> None:
        clock.now += 61
        await fails()

    supervisor.keep("task", works_for_a_minute)
    await until(supervisor, 3)

    assert clock.pauses[:3] == [1, 1, 1]


async def test_it_is_in_trouble_until_it_has_run_as_long_as_it_was_down(
    supervisor: Supervisor, clock: Clock
) -> None:
    runs = 0

    async def fails_once() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            await fails()
        await asyncio.Event().wait()

    supervisor.keep("task", fails_once)
    assert supervisor.trouble == ""
    await until(supervisor, 1)
    assert supervisor.trouble == "background task task: OverflowError: int too big to convert"
    clock.now += 0.9
    assert supervisor.trouble
    clock.now += 0.2
    assert supervisor.trouble == ""


async def test_a_task_that_fails_does_not_touch_the_others(supervisor: Supervisor) -> None:
    ran = asyncio.Event()

    async def works() -> None:
        await until(supervisor, 2)
        ran.set()
        await asyncio.Event().wait()

    supervisor.keep("other", works)
    supervisor.keep("task", fails)
    await ran.wait()

    assert supervisor.restarts["task"] >= 2
    assert supervisor.restarts["other"] == 0


async def test_what_is_cancelled_within_a_task_does_not_end_it(supervisor: Supervisor) -> None:
    async def awaits_what_is_cancelled() -> None:
        inner: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    supervisor.keep("task", awaits_what_is_cancelled)
    await until(supervisor, 1)
    assert "CancelledError" in supervisor.trouble


async def test_work_that_is_done_is_not_done_again(supervisor: Supervisor) -> None:
    runs = 0

    async def once() -> None:
        nonlocal runs
        runs += 1

    supervisor.keep("task", once)
    for _ in range(5):
        await asyncio.sleep(0)

    assert (runs, supervisor.trouble) == (1, "")


async def test_of_several_errors_at_once_the_first_is_told(supervisor: Supervisor) -> None:
    async def two() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    supervisor.keep("task", two)
    await until(supervisor, 1)
    assert supervisor.trouble.endswith("OverflowError: int too big to convert")


async def test_a_traceback_is_logged_once_for_each_kind(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor.keep("task", fails)
    await until(supervisor, 4)

    said = [record for record in caplog.records if "has stopped" in record.message]
    assert len(said) >= 4
    assert [bool(record.exc_info) for record in said[:4]] == [True, False, False, False]


def test_an_error_about_one_object_is_said_once_and_always_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    skipped = SkippedErrors()

    for source in ("a", "a", "b", "a", "b"):
        with skipped.skipping("task", source):
            raise ValueError("5000 digits")

    assert skipped.counts == {"task": 5}
    assert [(r.message, bool(r.exc_info)) for r in caplog.records] == [
        ("task: a is skipped: ValueError: 5000 digits", True),
        ("task: b is skipped: ValueError: 5000 digits", False),
    ]


def test_an_error_about_everything_is_not_skipped() -> None:
    skipped = SkippedErrors()

    with pytest.raises(OSError, match="disk"), skipped.skipping("task", "a", unless=(OSError,)):
        raise OSError("disk")

    assert skipped.counts == {}


def test_an_error_s_text_is_cut() -> None:
    """Tenants may have written it."""
    skipped = SkippedErrors()
    records: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    handler, logger = Handler(), logging.getLogger("gpumanager.supervisor")
    logger.addHandler(handler)
    try:
        skipped.skip("task", "a" * 999, ValueError("x\ny" * 999))
    finally:
        logger.removeHandler(handler)

    assert len(records[0]) < 500
    assert "\n" not in records[0]


async def test_a_task_whose_error_hides_that_it_was_cancelled_ends_all_the_same(
    supervisor: Supervisor,
) -> None:
    """As a TaskGroup in it does, one of whose tasks fails at the same moment."""
    began = asyncio.Event()

    async def hides() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await fails()

    supervisor.keep("task", hides)
    await began.wait()

    await supervisor.stop()

    assert supervisor.restarts == {"task": 0}
