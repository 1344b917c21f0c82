"""What the driver holds for each process, and what of it no allocation accounts for.

One pass over the GPUs tells the memory of all processes on those that somebody asks about. Passes
come one after another, and a question that arrives while one runs waits for the next: the answer
must have been taken after it was asked. NVML takes locks that programs on the GPU wait for, too.
So passes begin at least 50 ms apart, and all that ask meanwhile share the next. NVML may hang, so a
pass has a thread of its own, and a bound.

A context's size is learnt from the first that a process makes: the smallest figure seen of a GPU
model. A container can lie about what else it holds, so that its context looks large. So what one
container shows counts for itself alone, until a second one shows its own. Nothing is assumed
before. The first context may then be over a limit that is smaller than itself, and is undone; at
that moment its container cannot hold anything else. Where the driver does not list a process that
asks, nothing will be learnt: then a size is assumed, for its container only.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from gpumanager.errors import GpuManagerError, words_of
from gpumanager.gpu.daemon_thread import DaemonThreadExecutor
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.units import MIB, Bytes

log = logging.getLogger(__name__)

PASS_SECONDS: Final = 0.8
"""Bound for one pass; a shim waits a second for its answer."""

APART_SECONDS: Final = 0.05
"""Between the beginnings of two passes."""

ASSUMED: Final = Bytes(512 * MIB)
"""What a context takes if nobody can say: about as much as on the largest GPUs."""

WITNESSES: Final = 2
"""Containers that must have shown how large a context is before others believe it."""

Held = Mapping[GpuUUID, Mapping[int, Bytes | None]]
"""GPU → host pid → bytes, or None for a process of which the driver does not tell. Complete for
each GPU that it names: a process that is not there has nothing."""


ModelOf = Callable[[GpuUUID], str | None]


def unknown_model(gpu: GpuUUID) -> str | None:
    """Each GPU counts for itself."""
    del gpu
    return None


class Meter(Protocol):
    """Asks the driver, in a thread; raises GpuManagerError where it cannot answer."""

    def __call__(self, gpus: Collection[GpuUUID], /) -> Held:
        """gpus: those to ask, by their bare UUIDs."""


class MeasuringUnavailable(GpuManagerError):
    """The driver does not tell, or not in time."""


class Measuring:
    """One pass at a time, shared by all that wait for it. cost: seconds that the last one took."""

    def __init__(
        self,
        meter: Meter,
        *,
        pass_seconds: float = PASS_SECONDS,
        apart_seconds: float = APART_SECONDS,
    ) -> None:
        self._meter = meter
        self._pass_seconds = pass_seconds
        self._apart_seconds = apart_seconds
        self.cost = 0.0
        self._begun = -apart_seconds
        self._asked_about: set[GpuUUID] = set()
        self._thread = DaemonThreadExecutor("measuring")
        self._running: asyncio.Task[Held] | None = None
        self._next: asyncio.Task[Held] | None = None
        self._complained = False

    async def fresh(self, gpus: Collection[GpuUUID]) -> Held:
        """Figures taken after this call, of these GPUs at least, by their bare UUIDs.

        Raises MeasuringUnavailable.
        """
        self._asked_about.update(gpus)
        try:
            async with asyncio.timeout(self._pass_seconds):
                held = await asyncio.shield(self._coming())
        except (GpuManagerError, TimeoutError) as error:
            self._complain(error)
            raise MeasuringUnavailable(f"memory of processes: {words_of(error)}") from error
        self._complained = False
        return held

    def close(self) -> None:
        """Its thread ends after what is under way."""
        self._thread.shutdown()

    def _coming(self) -> asyncio.Task[Held]:
        """The pass that has not begun yet."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
            self._next.add_done_callback(_read)
        return self._next

    async def _after(self, earlier: asyncio.Task[Held] | None) -> Held:
        if earlier is not None:
            await asyncio.wait((earlier,))
        await asyncio.sleep(self._begun + self._apart_seconds - time.monotonic())
        self._running, self._next = self._next, None
        self._begun = time.monotonic()
        gpus, self._asked_about = frozenset(self._asked_about), set()
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._pass, gpus)

    def _pass(self, gpus: Collection[GpuUUID]) -> Held:
        """In its thread."""
        begun = time.monotonic()
        try:
            return self._meter(gpus)
        finally:
            self.cost = time.monotonic() - begun

    def _complain(self, error: Exception) -> None:
        """Once, until it works again."""
        if not self._complained:
            log.warning("cannot measure driver overhead: %s", words_of(error))
        self._complained = True


def _read(done: "asyncio.Task[Held]") -> None:
    """Its failure is raised in those that wait; there may be none left."""
    if not done.cancelled():
        done.exception()


@dataclass(slots=True)
class ContextSizes:
    """What one context takes, by GPU model; of a GPU without a known model for itself alone.

    model_of: asked anew each time, because a GPU may appear late. The smallest figures of
    WITNESSES containers are kept of each model.
    """

    model_of: ModelOf = unknown_model
    _seen: dict[str, dict[AllocationID, Bytes]] = field(default_factory=dict)

    def learn(self, gpu: GpuUUID, size: Bytes, shown_by: AllocationID) -> bool:
        """One more context was seen; whether that changes what is known."""
        seen = self._seen.setdefault(self.model_of(gpu) or gpu, {})
        before = dict(seen)
        if size > 0:
            seen[shown_by] = Bytes(min(size, seen.get(shown_by, size)))
        if len(seen) > WITNESSES:
            del seen[max(seen, key=lambda name: seen[name])]
        return seen != before

    def of(self, gpu: GpuUUID, container: AllocationID) -> Bytes:
        """As far as that container is to believe it; 0 while nobody knows."""
        seen = self._seen.get(self.model_of(gpu) or gpu, {})
        believed = container in seen or len(seen) >= WITNESSES
        return min(seen.values()) if believed else Bytes(0)
