"""The devices that the kubelet is told of, and the grants that hold them. Pure.

The kubelet is told of all devices of every GPU; besides, of IDs that pods hold and no GPU of ours
has: the original's, healthy, for as long as its pods hold them (meanwhile the same amount of the
GPU's own is left out), and those of a GPU that is gone, unhealthy. An ID that is held must never
vanish: a kubelet that starts again would end its pod. Until the kubelet hears that a pod of the
original has ended, it gives that pod's IDs to others, which then hold them likewise: they are as
good as the GPU's own that are left out.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.device_ids import ORIGINAL, Device, DeviceIDs
from gpumanager.grants.grant import DevicePluginSource, Grant, shares_of
from gpumanager.grants.ledger import Ledger
from gpumanager.isolation.table import isolation_of
from gpumanager.names import VCORE
from gpumanager.placement.place import place
from gpumanager.placement.values import GpuChoice, Refusal, Request


def ids_of(grant: Grant, resource: str) -> tuple[str, ...]:
    return grant.ids.core_ids if resource == VCORE else grant.ids.memory_ids


def holders_of(grants: Iterable[Grant], ids: Collection[str]) -> list[Grant]:
    """Return the grants that have any of `ids`."""
    wanted = frozenset(ids)
    return [
        one
        for one in grants
        if not (wanted.isdisjoint(one.ids.core_ids) and wanted.isdisjoint(one.ids.memory_ids))
    ]


def of_admission(grants: Iterable[Grant], admission: str) -> list[Grant]:
    return [grant for grant in grants if grant.ids.admission == admission]


def locate(
    ledger: Ledger, live: Iterable[Grant], admission: str, ids: Iterable[str]
) -> frozenset[GpuUUID]:
    """Return the GPUs of the IDs: where an earlier container of the pod has them, or as named."""
    own = {
        device_id: grant.gpus
        for grant in of_admission(live, admission)
        if grant.shares
        for device_id in grant.ids.all
    }
    found: set[GpuUUID] = set()
    for device_id in ids:
        if device_id not in ledger.ids:
            found.update(own.get(device_id, ()))
            continue
        named = ledger.ids.gpu_of(device_id).uuid
        gpus = own.get(device_id, (named,))
        found.update((named,) if named in gpus else gpus[:1])
    return frozenset(found)


def resized(grant: Grant, source: DevicePluginSource) -> Grant:
    """With these IDs, on the GPUs that it has."""
    return on_gpus(replace(grant, source=source), grant.gpus, exclusive=grant.exclusive)


def on_gpus(grant: Grant, gpus: Iterable[GpuUUID], *, exclusive: bool) -> Grant:
    """As much as its IDs are, on these GPUs. Until its cores are asked for nothing holds it."""
    cores, memory = grant.ids.core_ids, grant.ids.memory_ids
    shares = shares_of(gpus, len(cores), len(memory), exclusive=exclusive)
    return replace(grant, shares=shares, isolation=isolation_of(shares) if cores else "")


def place_new(
    ledger: Ledger, others: Iterable[Grant], request: Request, policy: str
) -> GpuChoice | Refusal:
    """Where a new container goes: on GPUs that leave only where no other has room. Example: a pod
    that the scheduler bound before it knew that there is less."""
    others = tuple(others)
    answer = place(ledger.topology, ledger.books(others), request, policy)
    if ledger.leaving and not isinstance(answer, GpuChoice):
        return place(ledger.topology, ledger.books(others, leaving=True), request, policy)
    return answer


def advertised(
    ids: DeviceIDs,
    live: tuple[Grant, ...],
    resource: str,
    unhealthy: Collection[GpuUUID] = (),
    closing: Collection[GpuUUID] = (),
) -> tuple[Device, ...]:
    """GPU by GPU; then what is only held. closing: of the unhealthy ones, those just withdrawn."""
    left_out = frozenset(_left_out(ids, live, resource))
    other = exchanged(ids, live, resource, unhealthy, closing) if closing else frozenset()
    own = (
        Device(device_id, (gpu.uuid in unhealthy) == (device_id in other), gpu.numa_node)
        for device_id, gpu in ids.of(resource)
        if device_id not in left_out
    )
    foreign = (
        # The original's are as good as ours that are left out; others are of a GPU that is gone.
        Device(device_id, healthy=device_id.startswith(ORIGINAL), numa_node=None)
        for grant in live
        for device_id in ids_of(grant, resource)
        if device_id.startswith(ORIGINAL) or device_id not in ids
    )
    return (*own, *foreign)


def exchanged(
    ids: DeviceIDs,
    live: Iterable[Grant],
    resource: str,
    unhealthy: Collection[GpuUUID],
    closing: Collection[GpuUUID],
) -> frozenset[str]:
    """IDs whose health is told the wrong way round, while schedulers learn that there are fewer.

    A kubelet refuses at once what needs an ID that has become unhealthy, and tells schedulers only
    later that there are fewer. So the free IDs of a GPU that closes stay healthy for that time, and
    as many that pods hold elsewhere are unhealthy instead, which harms none of them.
    """
    held = {i for one in live for i in ids_of(one, resource)}
    free = [i for i, gpu in ids.of(resource) if gpu.uuid in closing and i not in held]
    instead = [i for i, gpu in ids.of(resource) if gpu.uuid not in unhealthy and i in held]
    count = min(len(free), len(instead))
    return frozenset((*free[:count], *instead[:count]))


def accepted(ids: DeviceIDs, asked: Collection[str]) -> tuple[str, ...]:
    """`asked` in order, last those of the original, which name no GPU. Raises UnknownDeviceID."""
    for one in asked:
        if not one.startswith(ORIGINAL):
            ids.gpu_of(one)
    return (*ids.ordered(asked), *originals(asked))


def originals(ids: Iterable[str]) -> list[str]:
    return sorted(i for i in ids if i.startswith(ORIGINAL))


def _left_out(ids: DeviceIDs, live: tuple[Grant, ...], resource: str) -> Iterator[str]:
    """Yield the last of each GPU's that nobody holds, as many as others stand for."""
    counts: dict[GpuUUID, int] = {}
    for grant in live:
        foreign = len(originals(ids_of(grant, resource)))
        if grant.legacy or (grant.exclusive and foreign):
            foreign = grant.cores if resource == VCORE else grant.blocks
        for uuid in grant.shares:
            counts[uuid] = counts.get(uuid, 0) + -(-foreign // len(grant.shares))
    if not any(counts.values()):
        return
    held = {i for a in live for i in ids_of(a, resource)}
    for device_id, gpu in reversed(ids.of(resource)):
        if counts.get(gpu.uuid, 0) > 0 and device_id not in held:
            counts[gpu.uuid] -= 1
            yield device_id
