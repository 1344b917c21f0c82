"""Nodes and pods as the API server has them, in short."""

import json
from collections.abc import Sequence
from typing import Any

from gpumanager.gpu.inventory import inventory
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.kube.pod import PodView, read_pod
from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.scoring.pod_shape import PodShape, pod_shape_of
from gpumanager.units import GIB, Bytes

Ask = tuple[int, int]
"""Cores and blocks."""


def machine(name: str, gpus: int = 4, memory: int = 16 * GIB, model: str = "Tesla T4") -> Topology:
    """Pairs of GPUs on one switch; minors run the other way, so that nobody takes them for
    indices."""

    def bond(a: int, b: int) -> Bond | None:
        return None if a == b else Bond(Level.PIX if a // 2 == b // 2 else Level.SYS)

    cards = [
        Gpu(n, gpus - 1 - n, GpuUUID(f"GPU-{name}-{n}"), f"{n:02x}", model, Bytes(memory), 0)
        for n in range(gpus)
    ]
    return topology(cards, [[bond(a, b) for b in range(gpus)] for a in range(gpus)])


def node_object(
    name: str, gpus: int = 4, unhealthy: Sequence[str] = (), cpus: int = 0, **more: str
) -> dict[str, Any]:
    """cpus: and as many times 4 GiB; 0: the node does not say."""
    said = inventory(machine(name, gpus), [GpuUUID(uuid) for uuid in unhealthy])
    status = {"allocatable": {"cpu": str(cpus), "memory": f"{4 * cpus}Gi"}} if cpus else {}
    return {"metadata": {"name": name, "annotations": {**said, **_ours(more)}}, "status": status}


def container(name: str, ask: Ask, **fields: Any) -> dict[str, Any]:
    limits = {VCORE: str(ask[0]), VMEMORY: str(ask[1])}
    return {
        "name": name,
        "image": "none",
        "resources": {"limits": limits, "requests": limits},
        **fields,
    }


def pod_object(
    name: str,
    *apps: Ask,
    inits: Sequence[Ask] = (),
    sidecars: Sequence[Ask] = (),
    node: str = "",
    uid: str = "",
    cpus: int = 0,
    **annotations: str,
) -> dict[str, Any]:
    """Sidecars come before inits. cpus: of the pod, and as many times 4 GiB."""
    always = {"restartPolicy": "Always"}
    before = [container(f"side-{n}", ask, **always) for n, ask in enumerate(sidecars)]
    before += [container(f"init-{n}", ask) for n, ask in enumerate(inits)]
    spec: dict[str, Any] = {
        "containers": [container(f"app-{n}", ask) for n, ask in enumerate(apps)],
        "initContainers": before,
    }
    if cpus:
        asked = {"cpu": str(cpus), "memory": f"{4 * cpus}Gi"}
        if not apps:
            spec["containers"] = [{"name": "plain", "resources": {"requests": {}}}]
        resources = spec["containers"][-1]["resources"]
        resources["requests"] = resources["requests"] | asked
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": "default", "annotations": _ours(annotations)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **({"uid": uid} if uid else {})},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def view(item: dict[str, Any]) -> PodView:
    name = item["metadata"]["name"]
    return read_pod({**item, "metadata": {"uid": f"uid-{name}", **item["metadata"]}})


def pod(name: str, *apps: Ask, **more: Any) -> PodView:
    return view(pod_object(name, *apps, **more))


def ask(*apps: Ask, **more: Any) -> PodShape:
    found = pod_shape_of(pod("any", *apps, **more))
    assert isinstance(found, PodShape)
    return found


def plan(**containers: Sequence[str]) -> str:
    said = {name.replace("_", "-"): {"gpus": list(uuids)} for name, uuids in containers.items()}
    return json.dumps({"version": 1, "containers": said})


def _ours(annotations: dict[str, str]) -> dict[str, str]:
    return {f"tencent.com/{key.replace('_', '-')}": text for key, text in annotations.items()}
