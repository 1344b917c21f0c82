"""The container of each process on a GPU. Pure.

The manager's memory comes first: it gave a slot to a process which the kernel named. Then its
cgroup: the pod, and where a pod has several containers on the GPU, nobody in particular. A cgroup
of another pod than the slot's is told (`gpumanager.monitor.unlimited.audit.mismatches`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from gpumanager.gpu.usage.process_memory import ProcessMemory
from gpumanager.gpu.values import Gpu, GpuUUID, bare
from gpumanager.grants.grant import Claimant, ClaimSource, Grant
from gpumanager.ids import AllocationID, PodUID
from gpumanager.limits.processes import Process
from gpumanager.limits.values import AllocationUsage
from gpumanager.monitor.ports import holder
from gpumanager.monitor.snapshot import Resident
from gpumanager.runtime.cgroup import Membership
from gpumanager.units import Bytes

Holders = Sequence[tuple[Grant, Collection[PodUID]]]
"""The grants of a GPU, and the pods of each."""

SlotsByProcess = Mapping[tuple[Process, GpuUUID], tuple[AllocationID, Bytes, bool]]
"""Process and bare GPU → whose books have it, what they say it holds, and whether its slot was
adopted."""


def slots_by_process(usages: Iterable[AllocationUsage]) -> SlotsByProcess:
    return {
        (Process(one.pid, one.start_time), bare(device.limit.gpu)): (
            usage.allocation,
            held,
            one.adopted,
        )
        for usage in usages
        for one in usage.processes
        for device, held in zip(usage.devices, one.held, strict=True)
    }


def residents(
    gpus: Iterable[Gpu],
    held: ProcessMemory,
    slots: SlotsByProcess,
    live: Iterable[Grant],
    *,
    users: Callable[[Grant], Sequence[Claimant]] = holder,
    find: Callable[[int], Process | None],
    of: Callable[[Process], Membership | None],
) -> Iterator[Resident]:
    """Yield every process that the driver lists and that lives still. held: by bare GPU. users: the
    containers that a grant is for, as far as known."""
    live = tuple(live)
    for gpu in gpus:
        if not held.get(bare(gpu.uuid)):
            continue
        holders = [
            (one, {user.uid for user in users(one) or holder(one)})
            for one in live
            if gpu.uuid in one.gpus and not one.suspect
        ]
        for pid, size in held.get(bare(gpu.uuid), {}).items():
            if process := find(pid):
                slot = slots.get((process, bare(gpu.uuid)))
                own = of(process)
                allocation, booked, adopted = slot or (_by_cgroup(own, holders), None, False)
                yield Resident(process, gpu, size, allocation, booked, own, adopted)


def _by_cgroup(of: Membership | None, holders: Holders) -> AllocationID | None:
    """Find the grant of a process. An unknown one on a GPU that one grant holds whole is its."""
    if of is None:
        whole = [one for one, _ in holders if one.exclusive]
        return whole[0].id if len(holders) == len(whole) == 1 else None
    own = [one for one, pods in holders if any(same_pod(uid, of) for uid in pods)]
    if not own and len(holders) == 1 and holders[0][0].exclusive:
        # A claim may be used by more pods than the watch has told of.
        own = [one for one, _ in holders if isinstance(one.source, ClaimSource)]
    return own[0].id if len(own) == 1 else None


def by_holder(
    residents: Iterable[Resident],
) -> dict[tuple[AllocationID, GpuUUID], tuple[Resident, ...]]:
    """Return those whose allocation is known, by it and the GPU."""
    found: dict[tuple[AllocationID, GpuUUID], tuple[Resident, ...]] = {}
    for one in residents:
        if one.allocation is not None:
            key = (one.allocation, one.gpu.uuid)
            found[key] = (*found.get(key, ()), one)
    return found


def same_pod(uid: str, of: Membership) -> bool:
    """Compare, taking `_` for `-`: systemd has no `-` in the name of a slice."""
    return uid.replace("_", "-") == of.pod_uid
