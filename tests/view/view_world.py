"""A node for the commands that show one, as its agent's monitor has it and as its page tells it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpumanager.gpu.usage.status import GpuStatus
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, topology
from gpumanager.grants.grant import Claimant, DevicePluginSource, Grant, Share, State
from gpumanager.grants.journal import Journal
from gpumanager.grants.ledger import Ledger
from gpumanager.ids import AllocationID, PodUID
from gpumanager.monitor.admissions import Admissions
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.metrics.text import render
from gpumanager.monitor.ports import GpuFitness, Sources
from gpumanager.monitor.snapshot import ContainerSnapshot, DeviceView, GpuSnapshot, Snapshot
from gpumanager.monitor.unlimited.audit import Tally
from gpumanager.monitor.web_pages.placement_page import document
from gpumanager.names import VCORE, VMEMORY
from gpumanager.placement.values import Evaluator
from gpumanager.units import GIB, Bytes
from gpumanager.view.metrics import read_metrics
from gpumanager.view.values import Seen

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


def page(found: Snapshot, unlimited: Mapping[tuple[str, ...], int] | None = None) -> str:
    tally = Tally(unlimited=Counter(unlimited or {}))
    return render(Page(found, tally=tally, version="1.2.3")).decode()


def seen(
    *containers: ContainerSnapshot,
    agent: str = AGENT,
    unlimited: Mapping[tuple[str, ...], int] | None = None,
    **more: Any,
) -> Seen:
    """unlimited: processes without limits, by namespace, pod, container and what they lack."""
    return Seen(agent, read_metrics(page(snapshot(containers, **more), unlimited)))


BUSY = (
    container("team/train-0", device(limit=4, used=3.9, refused=3, throttled_ns=12_300_000_000)),
    container("web/answers", device(limit=1, used=0.4, granted=20, ceiling=60, share=41.2)),
    container("lab/whole-one", device(1, limit=40, used=31, granted=100, ceiling=100), whole=True),
)


GPUS = [gpu(0), gpu(1)]
LINKED = Bond(Level.PIX, 12)
MACHINE = topology(GPUS, [[None, LINKED], [LINKED, None]])


def promise(name: str = "team/train-0:main", **more: Any) -> Grant:
    return replace(container(name).grant, **more)


def placement_page(
    *promises: Grant, admissions: Admissions | None = None, **more: Any
) -> dict[str, Any]:
    """What the agent of a machine of two GPUs answers for `/api/placement`."""
    sources = Sources(
        node="node-a",
        topology=lambda: MACHINE,
        ledger=lambda: Ledger(MACHINE),
        journal=lambda: Journal({one.id: one for one in promises}),
        journal_bytes=lambda: 0,
        books=None,  # type: ignore[arg-type]
        residents=None,  # type: ignore[arg-type]
        registered=dict,
        **more,
    )
    return document(sources, admissions or Admissions(clock=lambda: 7.0), 10.0)
