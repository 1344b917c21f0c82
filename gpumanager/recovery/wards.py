"""Which pods the virtual manager may meet in directories that gpu-manager made. Pure."""

from collections.abc import Collection

from gpumanager.grants.journal import Allocation, Journal, State
from gpumanager.isolation.answer import limits
from gpumanager.virtual.original_pods import Ward, Wards


def wards(journal: Journal, uids: Collection[str]) -> Wards:
    """Of these pods, those that are settled."""
    found: dict[str, tuple[Ward, ...]] = {}
    for allocation in journal.live():
        if allocation.pod and allocation.pod.uid in uids and allocation.state is State.SETTLED:
            uid = allocation.pod.uid
            found[uid] = (*found.get(uid, ()), _ward(allocation, uid, allocation.pod.container))
    return found


def _ward(allocation: Allocation, uid: str, container: str) -> Ward:
    own = limits(allocation, allocation.blocks)
    return Ward(allocation.allocation, uid, container, own)
