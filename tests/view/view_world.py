"""A node for the commands that show one: as its agent's monitor has it, and as its document."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpumanager.gpu.usage.nvml_pass import GpuStatus
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.grants.grant import Claimant, DevicePluginSource, Grant, Share, State
from gpumanager.ids import AllocationID, PodUID
from gpumanager.monitor.events import Events
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.node_document import node_document
from gpumanager.monitor.ports import GpuFitness
from gpumanager.monitor.snapshot import ContainerSnapshot, DeviceView, GpuSnapshot, Snapshot
from gpumanager.monitor.unlimited.audit import Tally
from gpumanager.names import VCORE, VMEMORY
from gpumanager.placement.values import Evaluator
from gpumanager.units import GIB, Bytes
from gpumanager.view.node import NodeView, Seen, read_node

AGENT = "http://node-a:5678"


def gpu(index: int, model: str = "NVIDIA A100-SXM4-40GB") -> Gpu:
    uuid = GpuUUID(f"GPU-{index}0000000-0000-0000-0000-000000000000")
    return Gpu(index, index, uuid, f"00000000:0{index + 1}:00.0", model, Bytes(40 * GIB), 0)


def device(index: int = 0, *, limit: float = 4, used: float = 1, **more: Any) -> DeviceView:
    """limit, used: GiB."""
    given: dict[str, Any] = {"granted": 30, "ceiling": 30, "share": 29.8, "percent": 30, **more}
    size, held = Bytes(round(limit * GIB)), Bytes(round(used * GIB))
    return DeviceView(gpu(index), size, used=held, peak=held, measured=held, **given)


def container(
    name: str, *devices: DeviceView, whole: bool = False, **more: Any
) -> ContainerSnapshot:
    """name: `namespace/pod:container`."""
    namespace, _, rest = name.partition("/")
    pod, _, inner = rest.partition(":")
    owner = Claimant(PodUID(f"uid-{pod}"), namespace, pod, inner or "main")
    found = devices or (device(),)
    promise = Grant(
        AllocationID(f"a-{pod}"),
        DevicePluginSource(f"admission-{pod}", ("c-0",) * found[0].granted, ("m-0",)),
        {one.gpu.uuid: Share(100 if whole else one.granted, 1) for one in found},
        Evaluator.LINK if whole else Evaluator.SHARE,
        "the fullest GPU that still has room",
        1.0,
    )
    promise = replace(promise, state=State.CONFIRMED, pod=owner, **more)
    return ContainerSnapshot(owner, promise, found)


def snapshot(
    containers: Iterable[ContainerSnapshot] = (),
    gpus: int = 2,
    *,
    answered: bool = True,
    **more: Any,
) -> Snapshot:
    views = tuple(containers)
    return Snapshot(
        at=1.0,
        node="node-a",
        answered=answered,
        topology=machine(gpus),
        live=tuple((one.grant, one.users) for one in views),
        gpus=tuple(_gpu_view(index, views) for index in range(gpus)),
        containers=views,
        registered={VCORE: True, VMEMORY: True},
        **more,
    )


def _gpu_view(index: int, views: Sequence[ContainerSnapshot]) -> GpuSnapshot:
    on = [one for view in views for one in view.devices if one.gpu.index == index]
    busy = round(sum(one.share for one in on))
    used = sum(one.used for one in on)
    return GpuSnapshot(
        gpu(index),
        cores=sum(one.granted for one in on),
        memory=Bytes(sum(one.limit for one in on)),
        containers=len(on),
        status=GpuStatus(
            memory_used=Bytes(used), percent=busy, temperature_celsius=54, power_milliwatts=212_000
        ),
        fitness=GpuFitness(),
    )


def document(
    found: Snapshot,
    unlimited: Mapping[tuple[str, ...], int] | None = None,
    events: Events | None = None,
) -> dict[str, Any]:
    """What the agent answers for `/api/node`."""
    page = Page(found, tally=Tally(unlimited=Counter(unlimited or {})), version="1.2.3")
    newest = (events or Events()).newest()
    told = node_document(page, newest, time=10.0, not_ready="", period=1.0)
    return dict(json.loads(json.dumps(told)))


def node_of(
    *grants: Grant, users: Sequence[Claimant] = (), events: Events | None = None, **more: Any
) -> NodeView:
    """A machine of two GPUs with these grants, of which nothing is measured."""
    live = tuple((one, tuple(users)) for one in grants)
    return read_node(document(replace(snapshot(**more), live=live), events=events))


def seen(
    *containers: ContainerSnapshot,
    agent: str = AGENT,
    unlimited: Mapping[tuple[str, ...], int] | None = None,
    **more: Any,
) -> Seen:
    """unlimited: processes without limits, by namespace, pod, container and what they lack."""
    return Seen(agent, read_node(document(snapshot(containers, **more), unlimited)))


BUSY = (
    container("team/train-0", device(limit=4, used=3.9, refused=3, throttled_ns=12_300_000_000)),
    container("web/answers", device(limit=1, used=0.4, granted=20, ceiling=60, share=41.2)),
    container("lab/whole-one", device(1, limit=40, used=31, granted=100, ceiling=100), whole=True),
)


LINKED = Bond(Level.PIX, 12)


def machine(gpus: int) -> Topology:
    """Each is linked with each."""
    places = range(gpus)
    return topology(
        [gpu(one) for one in places], [[None if a == b else LINKED for a in places] for b in places]
    )


MACHINE = machine(2)


def promise(name: str = "team/train-0:main", **more: Any) -> Grant:
    return replace(container(name).grant, **more)


def told_gpu(index: int, **more: Any) -> dict[str, Any]:
    found = {"index": index, "uuid": f"GPU-{index}", "model": "T4", "healthy": True}
    return {**found, "containers": 1, "memory_bytes": 16 * GIB, "memory_granted_bytes": GIB,
            "cores_granted_percent": 60, **more}  # fmt: skip


def told_pod(name: str, *shares: tuple[int, int], claim: str | None = None) -> dict[str, Any]:
    """shares: index of the GPU and percent of its time."""
    gpus = [
        {"index": one, "uuid": f"GPU-{one}", "share_granted_percent": percent,
         "memory_limit_bytes": GIB}
        for one, percent in shares
    ]  # fmt: skip
    return {"namespace": "a", "pod": name, "claim": claim, "gpus": gpus or None}


CLUSTER_NODE = {
    "node": "node-a",
    "trouble": "",
    "gpus": [told_gpu(0), told_gpu(1, healthy=False)],
    "containers": [
        told_pod("one", (0, 60)), told_pod("two", (0, 100), (1, 100)),
        told_pod("mixed", (0, 30), (1, 60), claim="c"), told_pod("unknown"),
    ],
}  # fmt: skip
"""A node as the extender's document has it."""
