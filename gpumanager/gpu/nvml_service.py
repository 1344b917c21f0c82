"""The one place that asks NVML what processes hold and do, how GPUs are, and what they are.

A part of the agent that needs that again and again is an `NvmlReader`; one that needs it once calls
`NvmlService.ask`. Questions are asked one after another, in a thread. All readers that wait share
the next pass over the GPUs, and a reading is never older than its question. NVML takes locks that
programs on the GPU wait for, too. So passes begin at least 50 ms apart, only GPUs that are named
are asked, and readers wait longer where passes are slow (`NvmlReader.interval`).

NVML may hang. Each reader waits no longer than its bound, the event loop never waits, and what
hangs is not asked again before it has answered. A pass that one GPU holds up for 10 s is left
behind, with its thread: later passes leave that GPU out until it answers, and tell so
(`NvmlReading.complete`), because unknown is not nothing. A single question that hangs is left
behind, too. Only a library that hangs as a whole, so that no GPU is to blame, holds all up.

Health has a thread of its own (`health.prober`): it waits in NVML for events, a second at a time,
and it has to find out which GPU hangs while this one hangs.
"""

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

from gpumanager.errors import GpuManagerError, words_of
from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.usage.nvml_pass import NvmlPasses, NvmlQuery, NvmlReading
from gpumanager.gpu.usage.samples import UtilizationByGpu, joined_samples

log = logging.getLogger(__name__)

T = TypeVar("T")

READ_SECONDS: Final = 0.8
"""Bound for a reading; a shim waits a second for its answer."""

ANSWER_SECONDS: Final = 5.0
"""Bound for the answer to a single question."""

APART_SECONDS: Final = 0.05
"""Between the beginnings of two passes."""

STUCK_SECONDS: Final = 10.0
"""After which a question that is under way is left behind."""

PASSES_KEPT: Final = 64
"""The samples of so many wait for readers."""

MOST_OF_TIME: Final = 0.01
"""How much of the time one that asks again and again may spend in the driver: NVML takes locks
that programs on the GPU wait for, too."""
LONGEST_SECONDS: Final = 5.0


def poll_interval(seconds: float, cost: float, longest: float = LONGEST_SECONDS) -> float:
    """How long to wait after a question that took `cost`, where `seconds` would do."""
    return min(max(seconds, cost / MOST_OF_TIME), max(seconds, longest))


NvmlDriver = Callable[[NvmlQuery], NvmlReading]
"""Makes one pass; called in the thread. Raises GpuManagerError where it cannot be made."""


class NvmlService:
    """Asks for one event loop. driver: makes passes; None: NVML itself."""

    def __init__(
        self,
        driver: NvmlDriver | None = None,
        *,
        apart_seconds: float = APART_SECONDS,
        stuck_seconds: float = STUCK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hanging: set[int] = set()
        self._driver = driver or NvmlPasses(self._hanging)
        self._apart_seconds = apart_seconds
        self._stuck_seconds = stuck_seconds
        self._clock = clock
        self._order = asyncio.Lock()
        self._question: asyncio.Future[Any] | None = None
        """What is under way, or was last."""
        self._asked_at = 0.0
        self._pass: asyncio.Future[NvmlReading] | None = None
        self._pass_at = -apart_seconds
        self._wanted = NvmlQuery()
        self._next: asyncio.Task[NvmlReading] | None = None
        self._passes = 0
        self._samples = deque[tuple[int, UtilizationByGpu]](maxlen=PASSES_KEPT)

    def read(self, query: NvmlQuery) -> "asyncio.Task[NvmlReading]":
        """Return a reading that begins after this call, of what `query` wants at least. Raises
        GpuManagerError. It is shared, and may take for ever: wait for it shielded, with a bound."""
        self._wanted |= query
        if self._next is None:
            self._next = asyncio.create_task(self._take_pass())
            self._next.add_done_callback(_mark_retrieved)
        return self._next

    async def ask(self, question: Callable[[], T], seconds: float | None = ANSWER_SECONDS) -> T:
        """Return the answer to one question, in its turn. Raises what it raises, and NvmlError
        where NVML does not answer in time. seconds None: it may take for ever."""
        try:
            async with asyncio.timeout(seconds):
                async with self._order:
                    await self._wait_for_turn()
                    asked = self._begin(question)
                return await asyncio.shield(asked)
        except TimeoutError as error:
            raise NvmlError("the driver does not answer NVML") from error

    def samples_since(self, number: int) -> tuple[UtilizationByGpu, int]:
        """What has been sampled since the pass of this number, and the number of the last pass."""
        found = joined_samples(answers for one, answers in self._samples if one > number)
        return found, self._passes

    async def _take_pass(self) -> NvmlReading:
        await asyncio.sleep(self._pass_at + self._apart_seconds - self._clock())
        async with self._order:
            await self._wait_for_turn()
            wanted, self._wanted, self._next = self._wanted, NvmlQuery(), None
            self._pass_at = self._clock()
            driver, begun = self._driver, self._pass_at

            def make_pass() -> NvmlReading:
                return replace(driver(wanted), query=wanted, cost=self._clock() - begun)

            self._pass = self._begin(make_pass)
        reading = await self._pass
        if reading.samples:
            self._passes += 1
            self._samples.append((self._passes, reading.samples))
        return reading

    def _begin(self, question: Callable[[], T]) -> "asyncio.Future[T]":
        asked = ask_in_thread(question)
        self._question, self._asked_at = asked, time.monotonic()
        return asked

    async def _wait_for_turn(self) -> None:
        """Until nothing is under way, or what is hangs and can be left behind."""
        while self._question is not None and not self._question.done():
            left = self._asked_at + self._stuck_seconds - time.monotonic()
            if left <= 0 and (self._question is not self._pass or self._leave_out(self._pass)):
                return
            await asyncio.wait((self._question,), timeout=left if left > 0 else READ_SECONDS)

    def _leave_out(self, stuck: "asyncio.Future[NvmlReading]") -> bool:
        """Ask the GPU that hangs no more, until it answers; False where none is to blame."""
        passes = self._driver
        if not isinstance(passes, NvmlPasses) or (gpu := passes.gpu_asked) is None:
            return False

        def answered(_: object) -> None:
            self._hanging.discard(gpu)
            ask_in_thread(passes.close)

        log.warning("GPU %d does not answer NVML; it is left out until it answers", gpu)
        self._hanging.add(gpu)
        stuck.add_done_callback(answered)
        self._driver = NvmlPasses(self._hanging)
        return True


def ask_in_thread(question: Callable[[], T]) -> "asyncio.Future[T]":
    """Return the answer, from a thread that keeps no program from ending. Python waits for the
    threads of its own executors."""
    answer: concurrent.futures.Future[T] = concurrent.futures.Future()
    answer.set_running_or_notify_cancel()  # the loop may end meanwhile; then nobody cancels it

    def run() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:  # noqa: BLE001  # whoever waits for it gets it
            answer.set_exception(error)

    threading.Thread(target=run, name="nvml", daemon=True).start()
    asked = asyncio.wrap_future(answer)
    asked.add_done_callback(_mark_retrieved)
    return asked


def _mark_retrieved(done: "asyncio.Future[Any]") -> None:
    """Its failure is raised in those that wait; there may be none left."""
    if not done.cancelled():
        done.exception()


class NvmlReader:
    """One part of the agent that reads again and again. cost: seconds that its last pass took.

    failing: for the log, what does not work while NVML does not answer. late: whether an answer
    after the bound serves the next reading. waiting_for: why NVML is to be left alone; empty where
    it is not.
    """

    def __init__(
        self,
        nvml: NvmlService,
        failing: str,
        seconds: float = READ_SECONDS,
        *,
        late: bool = False,
        waiting_for: Callable[[], str] = str,
    ) -> None:
        self._nvml = nvml
        self._failing = failing
        self._seconds = seconds
        self._late = late
        self._waiting_for = waiting_for
        self._asked: asyncio.Task[NvmlReading] | None = None
        self._taken = 0
        self.cost = 0.0
        self.failure = ""
        """Why the last reading failed; empty where it did not."""

    async def read(self, query: NvmlQuery) -> NvmlReading | None:
        """None where NVML does not answer now. The log says so once, until it answers again."""
        if reason := self._waiting_for():
            return self._fail(reason)
        if self._asked is None or not self._late:
            self._asked = self._nvml.read(query)
        try:
            async with asyncio.timeout(self._seconds):
                reading = await asyncio.shield(self._asked)
        except TimeoutError as error:
            self.cost = self._seconds
            return self._fail(words_of(error))
        except GpuManagerError as error:
            self._asked = None
            return self._fail(str(error))
        self._asked, self.cost, self.failure = None, reading.cost, ""
        return reading

    def take_samples(self) -> UtilizationByGpu:
        """Return all that was sampled since the last time, for whichever reader."""
        found, self._taken = self._nvml.samples_since(self._taken)
        return found

    def interval(self, seconds: float) -> float:
        """How long to wait until the next reading, where `seconds` would do."""
        return poll_interval(seconds, self.cost)

    def _fail(self, reason: str) -> NvmlReading | None:
        if not self.failure:
            log.warning("%s: %s", self._failing, reason)
        self.failure = reason
        return None
