"""What the node agent waits for at its start."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, TypeVar

from gpumanager.errors import GpuManagerError

if TYPE_CHECKING:
    from gpumanager.agent.interfaces import Interfaces

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_SECONDS: Final = 1.0
"""How long all else waits for the registration: without a kubelet it is needed, too."""


async def registered_or_late(plugin: "Interfaces") -> None:
    """Wait until the kubelet has registered the plugin, for a second at most: it comes first."""
    try:
        await plugin.registered(FIRST_SECONDS)
    except GpuManagerError as error:
        log.info("not registered with the kubelet yet; starting everything else: %s", error)


async def unless(stopping: asyncio.Event, work: Awaitable[T]) -> T | None:
    """Return the result of `work`; None where the agent is to stop before."""
    working, told = asyncio.ensure_future(work), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((working, told), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        told.cancel()
