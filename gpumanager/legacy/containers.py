"""Which pods the virtual manager may meet in directories that gpu-manager made. Pure."""

from collections.abc import Collection

from gpumanager.grants.grant import Grant, State
from gpumanager.grants.journal import Journal
from gpumanager.isolation.shim import limits
from gpumanager.legacy.pods import LegacyContainer, LegacyContainers


def legacy_containers(journal: Journal, uids: Collection[str]) -> LegacyContainers:
    """Of these pods, the confirmed grants."""
    found: dict[str, tuple[LegacyContainer, ...]] = {}
    for allocation in journal.live():
        if allocation.pod and allocation.pod.uid in uids and allocation.state is State.CONFIRMED:
            uid = allocation.pod.uid
            found[uid] = (*found.get(uid, ()), _legacy(allocation, uid, allocation.pod.container))
    return found


def _legacy(allocation: Grant, uid: str, container: str) -> LegacyContainer:
    return LegacyContainer(
        allocation.id, uid, container, () if allocation.exclusive else limits(allocation)
    )
