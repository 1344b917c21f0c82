"""What is held by nobody any more, looked for before a pod is refused for good.

An agent that died in an admission left a grant to a pod that was rejected for that. And of a pod
that has ended the kubelet's offer only shows the resource that it asks for: who had a whole GPU and
no memory is not seen to be gone when memory is asked for first. A static pod that is put back under
its UID looks as if it had never gone.
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
"""Seconds for the container runtime to tell who runs, while the kubelet waits."""


async def reclaimable(
    live: Collection[Grant], open_: Transaction, view: View | None, deps: Dependencies
) -> frozenset[AllocationID]:
    """GrantStore that may be taken back while `open_` is being admitted."""
    checkpoint, admission = await deps.books.read(), open_.admission
    never = never_given(live, admission, checkpoint, view)
    over = ended(live, admission, view) | again(live, open_, view)
    return frozenset(never) | await _proved_over(live, over, deps.runtime)


async def _proved_over(
    live: Collection[Grant], over: frozenset[AllocationID], runtime: LiveContainers | None
) -> frozenset[AllocationID]:
    """Of these grants, those with which no container runs."""
    running = await who_lives(runtime, HURRY) if over else None
    return frozenset() if running is None else over - lived_on(running, live)
