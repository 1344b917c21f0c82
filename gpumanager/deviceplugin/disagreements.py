"""Where the journal, the kubelet, the runtime and the driver disagree about this node's GPUs. Pure.

Nothing is decided here: what is found is counted, reported, and looked at again at the next pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpumanager.deviceplugin.identity.adoption import unrecorded
from gpumanager.deviceplugin.identity.evidence import Evidence, allocation_of, is_tenant, lived_on
from gpumanager.deviceplugin.identity.verdict import has_ended
from gpumanager.gpu.values import Topology
from gpumanager.grants.grant import Grant, State
from gpumanager.grants.journal import LiveGrants
from gpumanager.ids import AllocationID
from gpumanager.names import VCORE


@dataclass(frozen=True, slots=True)
class Disagreement:
    """kind: one of KINDS. what: an allocation, or a pod and its container."""

    kind: str
    what: str
    detail: str


KINDS = {
    "unrecorded": "the kubelet has allocated devices that are not in the journal",
    "unbooked": "a container's grant has devices that the kubelet's checkpoint does not give it",
    "lingering": "the pod has ended, but a container still runs with its grant",
    "unknown-container": "a container runs with an allocation that is not in the journal",
    "directory": "a directory belongs to an allocation that is not in the journal",
    "doubled": "two live pods hold the same device",
    "stranger": "a pod has processes on a GPU without a grant for it",
    "gpu-gone": "a live pod holds a GPU that this node does not have",
}
"""What each kind means."""


def disagreements(
    topology: Topology,
    live: LiveGrants,
    evidence: Evidence,
    ended: frozenset[AllocationID],
) -> Iterator[Disagreement]:
    """Yield all there are. ended: grants of pods that look ended now."""
    standing = [one for one in live if one.id not in ended]
    yield from _in_books(live, standing, evidence)
    for running in evidence.live or ():
        own, name = lived_on((running,), live), allocation_of(running)
        for allocation in own & ended:
            yield Disagreement("lingering", allocation, str(running.container))
        if name is not None and not own:
            yield Disagreement("unknown-container", name, str(running.container))
    for gpu, pods in evidence.tenants.items():
        owners = {one.owner for one in live if gpu in one.gpus and one.owner}
        for uid in pods:
            if not any(is_tenant(owner, (uid,)) for owner in owners):
                yield Disagreement("stranger", uid, f"has processes on {gpu}")
    for one in standing:
        for uuid in one.gpus:
            if topology.by_uuid(uuid) is None:
                yield Disagreement("gpu-gone", one.id, f"{one.pod or 'nobody'}: {uuid}")


def _in_books(
    live: LiveGrants, standing: list[Grant], evidence: Evidence
) -> Iterator[Disagreement]:
    """Yield what checkpoint, journal and directories say otherwise of one another."""
    for uid, container in unrecorded(live, evidence.checkpoint or ()):
        if evidence.view is not None and not has_ended(uid, evidence.view):
            yield Disagreement("unrecorded", f"{uid} ({container})", "it will be held")
    booked = {(h.pod_uid, h.ids) for h in evidence.checkpoint or () if h.resource == VCORE}
    for one in standing if evidence.checkpoint is not None else ():
        if one.pod and (one.pod.uid, frozenset(one.ids.core_ids)) not in booked:
            yield Disagreement("unbooked", one.id, f"{one.pod}: {one.cores} cores")
    for name in evidence.directories.keys() - {one.id for one in live}:
        yield Disagreement("directory", name, "it goes once nobody has it mounted")
    holders: dict[str, Grant] = {}
    for one in (grant for grant in standing if grant.state is State.CONFIRMED):
        for device_id in one.ids.all:
            other = holders.setdefault(device_id, one)
            if other.owner != one.owner:
                yield Disagreement("doubled", device_id, f"{other.pod} and {one.pod}")
