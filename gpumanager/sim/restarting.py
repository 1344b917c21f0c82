"""Pods that are started again when they end, as a Deployment's are, until all are told to end.

A pod that failed waits longer each time, as in CrashLoopBackOff, only that this begins at a second.
One that was refused is not tried again.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from gpumanager.sim.manifest.pods import Pod
from gpumanager.sim.results import ContainerResult

AGAIN_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0

Results = tuple[ContainerResult, ...]


async def keep_running(
    pods: Sequence[Pod], run: Callable[[Pod], Awaitable[Results]], stop: asyncio.Event
) -> Results:
    """Run pods again and again; return their last results. run: one pod once, or to `stop`."""

    async def keep(pod: Pod) -> Results:
        seconds = AGAIN_SECONDS
        while True:
            results = await run(pod)
            if any(one.refused for one in results):
                await stop.wait()
            failed = any(one.failed for one in results)
            seconds = min(2 * seconds, LONGEST_SECONDS) if failed else AGAIN_SECONDS
            if await is_set_within(stop, seconds):
                return results
            pod = replace(pod, uid=str(uuid.uuid4()))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(keep(pod)) for pod in pods]
    return tuple(one for task in tasks for one in task.result())


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
