"""Grants that can be released before a pod is refused for good. Examples:

* The agent stopped in the middle of an admission: the kubelet rejected that pod, its grant is left.
* A pod with a whole GPU and no memory has ended, and the next pod asks for memory first: the
  kubelet's offer of memory IDs does not show that the GPU is free.
* A static pod was deleted and created again under the same UID, as if it had never gone.
"""

from collections.abc import Collection
from typing import Final

from gpumanager.deviceplugin.admission.transaction import Transaction, View
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.identity.evidence import lived_on, who_lives
from gpumanager.deviceplugin.identity.lifecycle import again, ended, never_given
from gpumanager.grants.grant import Grant
from gpumanager.runtime.values import LiveContainers
from gpumanager.virtual.values import AllocationID

HURRY: Final = 1.0
"""Seconds for the container runtime to list containers, while the kubelet waits."""


async def reclaimable(
    live: Collection[Grant], open_: Transaction, view: View | None, deps: Dependencies
) -> frozenset[AllocationID]:
    """Grants that may be released while `open_` is being admitted."""
    checkpoint, admission = await deps.books.read(), open_.admission
    never = never_given(live, admission, checkpoint, view)
    over = ended(live, admission, view) | again(live, open_, view)
    return frozenset(never) | await _proved_over(live, over, deps.runtime)


async def _proved_over(
    live: Collection[Grant], over: frozenset[AllocationID], runtime: LiveContainers | None
) -> frozenset[AllocationID]:
    """Those of `over` that no running container uses."""
    running = await who_lives(runtime, HURRY) if over else None
    return frozenset() if running is None else over - lived_on(running, live)
