"""What gpu-manager's display service tells: /usage, /graph, /version, as its JSON has them. Pure.

Protocol buffers in JSON leave out what is zero or empty; scripts that read them know that.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpumanager.gpu.tree import groups
from gpumanager.gpu.values import Level, Topology
from gpumanager.monitor.metrics.rows import busy_percent, memory_mib, requested_mib
from gpumanager.monitor.snapshot import ContainerSnapshot, DeviceView, GpuSnapshot, Snapshot
from gpumanager.units import CORES_PER_GPU, MIB

LEVELS: Final = tuple(sorted(Level))


def usage(snapshot: Snapshot) -> dict[str, Any]:
    """Pod UID → what each container of it uses and asked for."""
    pods: dict[str, list[ContainerSnapshot]] = {}
    for view in snapshot.containers:
        pods.setdefault(view.owner.uid, []).append(view)
    return _told({"usage": {uid: _pod(views) for uid, views in pods.items()}})


def _pod(views: Sequence[ContainerSnapshot]) -> dict[str, Any]:
    return _told(
        {
            "stat": {one.owner.container: {"dev": _devices(one)} for one in views},
            "project": views[0].owner.namespace,
            "spec": {one.owner.container: _spec(one) for one in views},
        }
    )


def _spec(view: ContainerSnapshot) -> dict[str, Any]:
    return _told({"gpu": view.grant.cores / CORES_PER_GPU, "mem": requested_mib(view)})


def _devices(view: ContainerSnapshot) -> list[dict[str, Any]]:
    return [_device(one) for one in view.devices]


def _device(device: DeviceView) -> dict[str, Any]:
    return _told(
        {
            "id": device.gpu.bus_id,
            "card_idx": str(device.gpu.index),
            "gpu": round(busy_percent(device), 3),
            "mem": memory_mib(device),
            "pids": list(device.pids),
            "device_mem": device.gpu.memory // MIB,
        }
    )


def _told(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value}


def graph(topology: Topology, snapshot: Snapshot) -> dict[str, Any]:
    """Return the tree as text: what is left of every GPU, and how many of a group nobody has
    touched."""
    views = {view.gpu.uuid: view for view in snapshot.gpus}
    gpus = [views.get(gpu.uuid, GpuSnapshot(gpu)) for gpu in topology.gpus]
    every = tuple(range(len(gpus)))
    pids = {
        view.gpu.uuid: sorted(r.process.pid for r in snapshot.residents if r.gpu == view.gpu)
        for view in gpus
    }
    free = sum(not one.cores for one in gpus)
    tree = _Tree(topology, gpus, pids)
    return {"graph": "\n".join([f"ROOT:{free}", *tree.below(every, 0, 0), ""])}


class _Tree:
    """Lines of one tree. gpus: by position; pids: by UUID."""

    def __init__(
        self, topology: Topology, gpus: Sequence[GpuSnapshot], pids: Mapping[Any, Sequence[int]]
    ) -> None:
        self._topology = topology
        self._gpus = gpus
        self._pids = pids

    def below(self, members: tuple[int, ...], level: int, depth: int) -> Iterator[str]:
        """Groups of one are the GPU itself, whatever the level; so is the tightest group's."""
        indent = "|   " * depth + "|---"
        if level == len(LEVELS):
            yield from (indent + self._leaf(self._gpus[one]) for one in members)
            return
        parts = groups(self._topology, members, LEVELS[level])
        if len(parts) == 1 and len(members) > 1 and self._joins_tighter(members, level):
            yield from self.below(members, level + 1, depth)
            return
        for part in parts:
            if len(part) == 1:
                yield indent + self._leaf(self._gpus[part[0]])
            else:
                yield indent + self._group(part, LEVELS[level])
                yield from self.below(part, level + 1, depth + 1)

    def _joins_tighter(self, members: tuple[int, ...], level: int) -> bool:
        """Return whether the next level joins all of them too: then this one tells nothing."""
        tighter = LEVELS[level + 1] if level + 1 < len(LEVELS) else None
        return tighter is not None and len(groups(self._topology, members, tighter)) == 1

    def _group(self, members: tuple[int, ...], level: Level) -> str:
        gpus = [self._gpus[one] for one in members]
        free = sum(not one.cores for one in gpus)
        return f"{level.name} (aval: {free}, {self._figures(gpus)})"

    def _leaf(self, view: GpuSnapshot) -> str:
        return f"GPU{view.gpu.index} ({self._figures([view])})"

    def _figures(self, gpus: Sequence[GpuSnapshot]) -> str:
        """Memory in bytes; used: by the driver, allocatable: not granted yet."""
        pids = [str(pid) for one in gpus for pid in self._pids.get(one.gpu.uuid, ())]
        used = sum(one.status.memory_used for one in gpus if one.status)
        return ", ".join(
            (
                f"pids: [{' '.join(pids)}]",
                f"usedMemory: {used}",
                f"totalMemory: {sum(one.gpu.memory for one in gpus)}",
                f"allocatableCores: {sum(CORES_PER_GPU - one.cores for one in gpus)}",
                f"allocatableMemory: {sum(one.gpu.memory - one.memory for one in gpus)}",
            )
        )
