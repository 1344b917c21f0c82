"""What gpu-manager's display service tells: /usage, /graph, /version, as its JSON has them. Pure.

Protocol buffers in JSON leave out what is zero or empty; scripts that read them know that.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpumanager.gpu.tree import groups
from gpumanager.gpu.values import Level, Topology
from gpumanager.monitor.metrics.rows import busy_percent, memory_mib, requested_mib
from gpumanager.monitor.snapshot import GpuSnapshot, Snapshot
from gpumanager.units import CORES_PER_GPU, MIB

LEVELS: Final = tuple(sorted(Level))


def usage(snapshot: Snapshot) -> dict[str, Any]:
    """Return by pod UID what each container of it uses and asked for."""
    pods: dict[str, dict[str, Any]] = {}
    for view in snapshot.containers:
        owner = view.owner
        empty = {"stat": {}, "project": owner.namespace, "spec": {}}
        pod = pods.setdefault(owner.uid, empty)
        devices = [
            {
                "id": one.gpu.bus_id,
                "card_idx": str(one.gpu.index),
                "gpu": round(busy_percent(one), 3),
                "mem": memory_mib(one),
                "pids": list(one.pids),
                "device_mem": one.gpu.memory // MIB,
            }
            for one in view.devices
        ]
        pod["stat"][owner.container] = {"dev": list(map(_without_zeros, devices))}
        request = {"gpu": view.grant.cores / CORES_PER_GPU, "mem": requested_mib(view)}
        pod["spec"][owner.container] = _without_zeros(request)
    return _without_zeros({"usage": {uid: _without_zeros(pod) for uid, pod in pods.items()}})


def _without_zeros(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value}


def graph(snapshot: Snapshot) -> dict[str, Any]:
    """Return the tree as text: what is left of every GPU, and how many of a group are unused."""
    topology = snapshot.topology
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
        """Draw groups. One of one is the GPU itself, whatever the level; so is the tightest's."""
        indent = "|   " * depth + "|---"
        if level == len(LEVELS):
            yield from (indent + self._leaf(self._gpus[one]) for one in members)
            return
        parts = groups(self._topology, members, LEVELS[level])
        tighter = LEVELS[level + 1 :]
        if (
            tighter
            and len(members) > len(parts) == 1
            and len(groups(self._topology, members, tighter[0])) == 1
        ):
            # The next level joins all of them too: this one separates nothing.
            yield from self.below(members, level + 1, depth)
            return
        for part in parts:
            if len(part) == 1:
                yield indent + self._leaf(self._gpus[part[0]])
            else:
                gpus = [self._gpus[one] for one in part]
                free = sum(not one.cores for one in gpus)
                yield f"{indent}{LEVELS[level].name} (aval: {free}, {self._figures(gpus)})"
                yield from self.below(part, level + 1, depth + 1)

    def _leaf(self, view: GpuSnapshot) -> str:
        return f"GPU{view.gpu.index} ({self._figures([view])})"

    def _figures(self, gpus: Sequence[GpuSnapshot]) -> str:
        """Return figures. Memory in bytes; used: by the driver, allocatable: not granted yet."""
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
