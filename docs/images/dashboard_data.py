"""Three hours of a made-up cluster, as its programs export it: always the same, and true to itself.

Two nodes of four GPUs. Names, labels and arithmetic are those of our programs, which render each
page; what containers do is made up here. Prometheus' own tools turn it into its storage, and
evaluate the chart's rules on it.
"""

import math
import random
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families as parse

from gpumanager.gpu.usage.nvml_pass import GpuStatus
from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import Claimant, ClaimedDevice, ClaimSource
from gpumanager.monitor.look import SOUND
from gpumanager.monitor.metrics.latency import CALLS, RESOURCES, Latencies
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.metrics.text import render
from gpumanager.monitor.ports import GpuFitness
from gpumanager.monitor.snapshot import ContainerSnapshot, DeviceView, GpuSnapshot, Snapshot
from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.metrics import Metrics, WebhookMetrics
from gpumanager.scheduler.quota.limits import NodeClass, Usage, read_quotas
from gpumanager.scheduler.quota.rules import Known, QuotaCollector
from gpumanager.units import CORES_PER_GPU, GIB, Bytes
from tests.monitor.monitor_world import share, whole

END: Final = 1_790_000_040
"""Seconds since the epoch, a multiple of STEP."""
STEP: Final = 30
SECONDS: Final = 3 * 3600
ILL_AFTER: Final = 150
"""Minutes, until a GPU falls off the bus."""

NODES: Final = {"gpu-node-1": "Tesla T4", "gpu-node-2": "Tesla V100-SXM2-16GB"}
QUOTAS: Final = (
    '{"research": {"quota": {"T4": 3, "V100": 2}}, "serving": {"quota": {"T4": 2, "V100": 1}}, '
    '"vision": {"quota": {"T4": 1}}}'
)


@dataclass
class Tenant:
    """A container. gpus: indices. use: percent of the time at a minute; memory: GiB held.

    claim: name of its claim; others: pods that share it. since: minutes from the beginning.
    """

    node: str
    namespace: str
    pod: str
    gpus: tuple[int, ...]
    cores: int
    limit: float
    memory: float
    use: Any
    ceiling: int = 0
    claim: str = ""
    others: tuple[str, ...] = ()
    since: int = 0
    refused: float = 0.0
    charged: dict[int, float] = field(default_factory=dict)
    throttled: float = 0.0
    launches: float = 0.0
    late: float = 0.0


def wave(mean: float, by: float, minutes: float) -> Any:
    return lambda at: mean + by * math.sin(at / minutes)


def every(period: int, on: int, busy: float, idle: float = 0.0) -> Any:
    return lambda at: busy if at % period < on else idle


TENANTS: Final = (
    Tenant("gpu-node-1", "research", "train-bert", (0,), 60, 6, 4.2, lambda _at: 59.5),
    Tenant("gpu-node-1", "serving", "answers", (0,), 30, 3, 2.4, wave(18, 9, 11)),
    Tenant("gpu-node-1", "vision", "augment", (1,), 25, 4, 2.5, wave(45, 20, 17), ceiling=100),
    Tenant("gpu-node-1", "vision", "labels", (1,), 45, 4, 3.1, every(40, 30, 30), since=20,
           claim="vision-gpu", others=("labels-eval", "labels-export")),
    Tenant("gpu-node-1", "research", "notebook", (2,), 40, 5, 3.0, lambda _at: 0.0),
    Tenant("gpu-node-1", "teaching", "greedy", (2,), 25, 2, 1.95, every(9, 6, 24), refused=0.05),
    Tenant("gpu-node-1", "research", "finetune", (3,), 100, 15, 9.4, wave(93, 3, 5), since=45),
    Tenant("gpu-node-2", "research", "pretrain", (0, 1), 100, 16, 12.6, wave(96, 2, 7)),
    Tenant("gpu-node-2", "serving", "embed", (2,), 50, 5, 3.7, wave(38, 8, 13)),
    Tenant("gpu-node-2", "teaching", "lab", (2,), 30, 2.5, 1.1, lambda _at: 0.4, since=60),
)  # fmt: skip


def gpus(node: str) -> tuple[Gpu, ...]:
    number = list(NODES).index(node)
    return tuple(
        Gpu(index, index, GpuUUID(f"GPU-{number}000000{index}-1111-2222-3333-444444444444"),
            f"00000000:0{index + 1}:00.0", NODES[node], Bytes(15 * GIB + number * GIB))
        for index in range(4)
    )  # fmt: skip


def pages() -> Iterator[tuple[int, Mapping[str, str], str]]:
    """When, what Prometheus adds, and what a program exported then."""
    chance = random.Random(7)  # noqa: S311 - the same again
    latencies = {node: Latencies() for node in NODES}
    extender = Metrics(lambda: {"nodes": 2, "pods": len(TENANTS), "assumed": 0}, lambda: True)
    usage = Usage()
    for one in TENANTS:
        model = "T4" if NODES[one.node].endswith("T4") else "V100"
        usage.add(one.namespace, NodeClass(frozenset({model})), one.cores * len(one.gpus))
    quotas = read_quotas(QUOTAS)
    extender.add(QuotaCollector(lambda: Known(quotas, read=True), usage))
    expiry = END + 55 * 86400.0
    gauges = {
        "certificate_expiry_timestamp_seconds": expiry,
        "node_kinds": 2,
        "quota_understood": 1,
    }
    webhook = WebhookMetrics(lambda: gauges)
    for at in range(0, SECONDS + 1, STEP):
        now = END - SECONDS + at
        for node in NODES:
            calls(latencies[node], chance)
            seen = snapshot(node, at, chance)
            text = render(Page(seen, latencies[node], version="2.0")).decode()
            pod = f"gpu-manager-agent-{node[-1]}x7kq"
            yield now, {"job": "gpu-manager-agent", "node": node, "pod": pod}, text
        requests(extender, webhook, chance)
        for part, program in (("extender", extender), ("webhook", webhook)):
            added = {"job": f"gpu-manager-{part}", "pod": f"gpu-manager-{part}-6d9f8-bq2lz"}
            yield now, added, program.text().decode()


def calls(latencies: Latencies, chance: random.Random) -> None:
    for call in CALLS:
        for resource in RESOURCES:
            for _ in range(chance.randrange(3)):
                seconds = chance.lognormvariate(-5.2, 0.5)
                latencies.seconds.labels(call, resource).observe(seconds)
                latencies.outcomes[call, resource, "answered"] += 1


def requests(extender: Metrics, webhook: WebhookMetrics, chance: random.Random) -> None:
    for verb, scale in (("filter", -6.2), ("prioritize", -6.6), ("bind", -4.4)):
        for _ in range(20):
            extender.took(verb, "answered", chance.lognormvariate(scale, 0.4))
    for _ in range(chance.randrange(20, 30)):
        webhook.took("mutate", chance.choice(("changed", "changed", "allowed")), 0.0009)
        webhook.took("validate", chance.choice(("refused", *["allowed"] * 49)), 0.0006)


def snapshot(node: str, at: int, chance: random.Random) -> Snapshot:
    """at: seconds from the beginning."""
    minute = at / 60
    here = [one for one in TENANTS if one.node == node and minute >= one.since]
    views = tuple(container(one, gpus(node), minute, chance) for one in here)
    ill = node == "gpu-node-2" and minute > ILL_AFTER
    return Snapshot(
        at=float(at),
        node=node,
        answered=True,
        gpus=tuple(gpu(one, views, ill=ill and one == gpus(node)[-1]) for one in gpus(node)),
        containers=views,
        registered={VCORE: True, VMEMORY: True},
        journal={"settled": len(views), "released": 0},
        journal_bytes=900 * len(views),
        disagreements={"lingering": 0, "doubled": 0},
    )


def gpu(one: Gpu, views: tuple[ContainerSnapshot, ...], *, ill: bool) -> GpuSnapshot:
    held = [device for view in views for device in view.devices if device.gpu == one]
    busy = min(100, round(sum(device.percent or 0 for device in held)))
    used = Bytes(sum(device.measured or 0 for device in held))
    return GpuSnapshot(
        one,
        cores=sum(device.granted for device in held),
        memory=Bytes(sum(device.limit for device in held)),
        containers=len(held),
        status=GpuStatus(used, busy, 34 + busy // 3, 30_000 + 400 * busy),
        fitness=GpuFitness(healthy=not ill, xids={79: 1} if ill else {}),
    )


def container(
    one: Tenant, every_gpu: tuple[Gpu, ...], minute: float, chance: random.Random
) -> ContainerSnapshot:
    mine = [every_gpu[index] for index in one.gpus]
    used = max(0.0, one.use(minute) + chance.gauss(0, 0.5))
    full = one.cores == CORES_PER_GPU
    if not full and used > one.cores - 2 and not one.ceiling:
        one.throttled += STEP * 0.4
        one.late += STEP * 300
    one.launches += STEP * (600 if used else 0)
    one.refused += 1 if one.refused and used > 1 else 0
    devices = []
    for on in mine:
        one.charged[on.index] = one.charged.get(on.index, 0.0) + used / 100 * STEP
        devices.append(device(one, on, used))
    owner = Claimant(f"uid-{one.pod}", one.namespace, one.pod, "main")
    part = share(owner, one.pod, cores=one.cores, on=mine[0])
    grant = whole(owner, one.pod, mine) if full else part
    users = (owner, *(replace(owner, name=name, uid=f"uid-{name}") for name in one.others))
    if one.claim:
        claimed = (ClaimedDevice("gpu-1", "gpu"),)
        source = ClaimSource(f"uid-{one.claim}", one.namespace, one.claim, claimed)
        grant = replace(grant, source=source)
    return ContainerSnapshot(owner, grant, tuple(devices), SOUND, users=users)


def device(one: Tenant, on: Gpu, used: float) -> DeviceView:
    held = Bytes(round(one.memory * GIB))
    return DeviceView(
        on,
        Bytes(round(one.limit * GIB)),
        one.cores,
        max(one.cores, one.ceiling),
        used=held,
        peak=held,
        measured=held,
        percent=round(used),
        share=used,
        charged_ns=round(one.charged[on.index] * 1e9),
        throttled_ns=round(one.throttled * 1e9),
        launches=round(one.launches),
        throttled=round(one.late),
        refused=int(one.refused),
        pids=(7,) if used > 1 else (),
    )


def write(folder: Path, promtool: Path) -> None:
    """Prometheus' storage with all of it, in folder/data."""
    text = folder / "recorded.txt"
    with text.open("w") as file:
        for line in sorted(_lines()):
            file.write(line[1])
        file.write("# EOF\n")
    data = folder / "data"
    subprocess.run([promtool, "tsdb", "create-blocks-from", "openmetrics", text, data], check=True)


def _lines() -> Iterator[tuple[tuple[str, int], str]]:
    """Each sample, with what it is sorted by: its series, then its time."""
    for now, added, page in pages():
        for name, labels, value in (*_samples(page), ("up", {}, 1.0)):
            every_label = {**added, "namespace": "kube-system", "pod": added["pod"], **labels}
            words = ",".join(f'{key}="{text}"' for key, text in sorted(every_label.items()) if text)
            series = f"{name}{{{words}}}"
            yield (series, now), f"{series} {value} {now}\n"


def _samples(page: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for family in parse(page):
        for one in family.samples:
            if not one.name.endswith("_created"):
                yield one.name, one.labels, one.value
