"""An agent's web page over looks that are made up, each said in a word."""

import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from gpumanager import view
from gpumanager.gpu.usage.nvml_pass import GpuStatus
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, topology
from gpumanager.http_server import BoundedServer
from gpumanager.monitor.events import Events
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.pages import Pages, routed
from gpumanager.monitor.ports import GpuFitness
from gpumanager.monitor.service import BOUNDS
from gpumanager.monitor.snapshot import ContainerSnapshot, DeviceView, GpuSnapshot, Snapshot
from gpumanager.units import GIB, MIB, Bytes
from tests.monitor.monitor_world import claimant, share, whole

SCHEMA = json.loads((Path(view.__file__).parent / "node.schema.json").read_text())
"""What every document of a node is: published with the package."""
BEGIN = 1_790_000_000.0
"""When the first look was, in seconds since the epoch."""
MODEL = "NVIDIA A100-SXM4-40GB"


def gpu(index: int) -> Gpu:
    uuid = GpuUUID(f"GPU-0000000{index}-1111-2222-3333-444444444444")
    return Gpu(index, index, uuid, f"00000000:0{index + 1}:00.0", MODEL, Bytes(40 * GIB))


def device(on: Gpu, promised: int = 30, **more: Any) -> DeviceView:
    given = {"used": 900 * MIB, "peak": 950 * MIB, "share": float(promised), "pids": (7,), **more}
    limit = given.pop("limit", GIB)
    ceiling = given.pop("ceiling", promised)
    return DeviceView(on, Bytes(limit), promised, ceiling, **given)


def container(
    pod: str, *devices: DeviceView, name: str = "main", full: bool = False, why: str = "fits"
) -> ContainerSnapshot:
    owner = claimant(pod, name)
    gpus = [one.gpu for one in devices]
    promise = (
        whole(owner, f"a-{pod}-{name}", gpus)
        if full
        else share(owner, f"a-{pod}-{name}", on=gpus[0], cores=devices[0].granted)
    )
    return ContainerSnapshot(owner, replace(promise, why=why), devices)


@dataclass
class Show:
    """Looks at a node, one after another. containers: change them as you like."""

    gpus: Sequence[Gpu] = field(default_factory=lambda: [gpu(n) for n in range(4)])
    containers: Sequence[ContainerSnapshot] = ()
    fitness: dict[GpuUUID, GpuFitness] = field(default_factory=dict)
    answered: bool = True
    reason: str = ""
    at: float = 1000.0
    port: int = 0

    def __post_init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.events = Events(clock=lambda: BEGIN + self.at)
        self.pages = Pages(
            self._page,
            self.events,
            lambda: self.reason,
            "2.0",
            history=300.0,
            clock=lambda: BEGIN + self.at,
        )
        self.server: BoundedServer | None = None

    def look(self, seconds: float = 1.0) -> None:
        """So much later."""
        self.at += seconds
        views = tuple(self._gpu(one) for one in self.gpus)
        node = "gpu-node-7"
        far = Bond(Level.SYS)
        links = [[None if a is b else far for a in self.gpus] for b in self.gpus]
        self.snapshot = Snapshot(
            self.at,
            node,
            self.answered,
            topology(self.gpus, links),
            gpus=views,
            containers=tuple(self.containers),
        )
        self.pages.saw(Page(self.snapshot, version="2.0"))

    async def start(self) -> None:
        """On the same port as before, if there was one."""
        self.server = BoundedServer(routed(self.pages.handlers()), BOUNDS)
        self.port = await self.server.start("127.0.0.1", self.port)

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def _page(self) -> Page | None:
        return Page(self.snapshot, version="2.0") if self.snapshot else None

    def _gpu(self, one: Gpu) -> GpuSnapshot:
        held = [d for view in self.containers for d in view.devices if d.gpu == one]
        used = sum(d.measured or d.used for d in held)
        busy = min(100, round(sum(d.percent or d.share for d in held)))
        status = GpuStatus(Bytes(used), busy, 34 + busy // 3, 60_000 + 3000 * busy)
        return GpuSnapshot(
            one,
            cores=min(100, sum(d.granted for d in held)),
            memory=Bytes(sum(d.limit for d in held)),
            containers=len(held),
            status=status if self.answered else None,
            fitness=self.fitness.get(one.uuid, GpuFitness()),
        )


def busy_node(minutes: float = 5.0, gpus: int = 4) -> Show:
    """Containers of all kinds, and so many minutes of looks at them.

    gpus: beyond four, one container has the next two, and the others are free.
    """
    show = Show([gpu(number) for number in range(gpus)])
    first, second, third, fourth, *more_gpus = show.gpus
    random = Random(7)
    charged: dict[str, float] = {}
    throttled: dict[str, float] = {}

    def now(
        pod: str, on: Gpu, promised: int, got: float, late: float = 0.0, **more: Any
    ) -> ContainerSnapshot:
        """late: percent of the second that its launches are throttled, while it has any."""
        got = max(0.0, got + random.gauss(0, 0.6))
        charged[pod] = charged.get(pod, 0.0) + got * 1e7
        throttled[pod] = throttled.get(pod, 0.0) + (late * 1e7 if got > 1 else 0.0)
        launches = {"launches": 1000, "throttled": 400, "throttled_ns": round(throttled[pod])}
        why = more.pop("why", "fits")
        one = device(on, promised, share=got, charged_ns=round(charged[pod]), **launches, **more)
        return container(pod, one, why=why)

    for number in range(round(60 * minutes)):
        wave = 24 + 18 * math.sin(number / 14)
        idle = 120 <= number < 190
        burst = 0.0 if idle else 60.0
        typing = 20.0 if number % 90 < 30 else 0.0
        others = [
            now("embed-queries", first, 30, wave if not idle else 4, ceiling=45),
            now("train-resnet", first, 40, 78.0 if idle else 66 - wave, ceiling=90),
            now("notebook-jana", first, 20, typing, 40, refused=number // 75),
            now("llm-serving", second, 60, burst, 21, limit=24 * GIB, used=21 * GIB, peak=23 * GIB),
            container("train-large", replace(device(third, 100, share=0.0), used=Bytes(0),
                      limit=third.memory, measured=Bytes(31 * GIB), percent=97), full=True),
        ]  # fmt: skip
        if number >= 200:
            why = "fullest GPU that still fits: 40 of 100 cores and 64 of 160 blocks were free"
            batch = {"limit": 8 * GIB, "used": 3 * GIB, "peak": 5 * GIB, "why": why}
            others.append(now("batch-score", second, 30, 29.5, 71, **batch))
        if more_gpus:
            whole_gpus = [
                replace(device(one, 100, share=0.0), used=Bytes(0), limit=one.memory,
                        measured=Bytes(22 * GIB), percent=round(91 + random.gauss(0, 2)))
                for one in more_gpus[:2]
            ]  # fmt: skip
            others.append(container("finetune-7b", *whole_gpus, full=True))
        show.containers = others
        if number == 230:
            show.fitness = {fourth.uuid: GpuFitness(healthy=False, xids={79: 1})}
        show.look()
    return show


@asynccontextmanager
async def served(show: Show) -> AsyncIterator[Show]:
    await show.start()
    try:
        yield show
    finally:
        await show.stop()
