"""The devices that are advertised to the kubelet. Pure.

All of every GPU; besides, IDs that pods hold and no GPU of ours has: the original's, healthy, for
as long as its pods hold them (meanwhile the same amount of the GPU's own is left out), and those of
a GPU that is gone, unhealthy. An ID that is held must never vanish: a kubelet that starts again
would end its pod. Until the kubelet notices that a pod of the original has ended, it gives that
pod's IDs to others, which then hold them likewise: they are as good as the GPU's own that are left
out.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from gpumanager.deviceplugin.device_ids import Device, DeviceIDs
from gpumanager.deviceplugin.device_ledger import ids_of
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import Grant
from gpumanager.names import VCORE

ORIGINAL = "tencent.com/"
"""How the original's IDs begin."""


def advertised(
    ids: DeviceIDs,
    live: tuple[Grant, ...],
    resource: str,
    unhealthy: Collection[GpuUUID] = (),
) -> tuple[Device, ...]:
    """GPU by GPU; then what is only held."""
    left_out = frozenset(_left_out(ids, live, resource))
    own = (
        Device(device_id, gpu.uuid not in unhealthy, gpu.numa_node)
        for device_id, gpu in ids.of(resource)
        if device_id not in left_out
    )
    return (*own, *_foreign(ids, live, resource))


def accepted(ids: DeviceIDs, asked: Collection[str]) -> tuple[str, ...]:
    """`asked` in order, last those of the original, which name no GPU. Raises UnknownDeviceID."""
    return (*ids.known(i for i in asked if not i.startswith(ORIGINAL)), *originals(asked))


def originals(ids: Iterable[str]) -> list[str]:
    return sorted(i for i in ids if i.startswith(ORIGINAL))


def _foreign(ids: DeviceIDs, live: Iterable[Grant], resource: str) -> Iterator[Device]:
    for grant in live:
        for device_id in ids_of(grant, resource):
            if device_id.startswith(ORIGINAL):
                yield Device(device_id, healthy=True, numa_node=None)
            elif device_id not in ids:
                yield Device(device_id, healthy=False, numa_node=None)


def _left_out(ids: DeviceIDs, live: tuple[Grant, ...], resource: str) -> Iterator[str]:
    """The last of each GPU's that nobody holds, as many as others stand for."""
    counts = dict(_stood_for(live, resource))
    if not any(counts.values()):
        return
    held = {i for a in live for i in ids_of(a, resource)}
    for device_id, gpu in reversed(ids.of(resource)):
        if counts.get(gpu.uuid, 0) > 0 and device_id not in held:
            counts[gpu.uuid] -= 1
            yield device_id


def _stood_for(live: Iterable[Grant], resource: str) -> Mapping[GpuUUID, int]:
    counts: dict[GpuUUID, int] = {}
    for grant in live:
        foreign = len(originals(ids_of(grant, resource)))
        if grant.legacy or (grant.exclusive and foreign):
            foreign = grant.cores if resource == VCORE else grant.blocks
        for uuid in grant.shares:
            counts[uuid] = counts.get(uuid, 0) + -(-foreign // len(grant.shares))
    return counts
