"""The page of metrics: gpu-manager's four, ours, from the start, and never more than there is."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse
from scrape import busy_node

from gpumanager.gpu.usage.nvml_pass import GpuStatus, NvmlReading
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample
from gpumanager.gpu.values import Gpu, GpuUUID, bare
from gpumanager.grants.grant import ClaimedDevice, ClaimSource, Grant, Share
from gpumanager.grants.ledger import Ledger
from gpumanager.limits.pages.books import DEGRADATIONS
from gpumanager.limits.values import AllocationUsage
from gpumanager.monitor.look import Busy, MeterTotals, container_view, gpu_views, latest
from gpumanager.monitor.metrics.families import FAMILIES, KEPT_FAMILIES, RPC_SECONDS
from gpumanager.monitor.metrics.journal_timing import JournalWrites
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.metrics.text import render, render_kept
from gpumanager.monitor.ports import GpuFitness
from gpumanager.monitor.snapshot import Resident, Snapshot
from gpumanager.monitor.unlimited.audit import Tally
from gpumanager.monitor.unlimited.residents import by_holder
from gpumanager.names import VCORE
from gpumanager.units import GIB, MIB, Bytes
from tests.monitor.monitor_world import FIRST, NODE, SECOND, claimant, resident, share, usage, whole
from vcuda_shim._shim import lib

DOCS = Path(__file__).parents[2] / "docs/metrics.md"
SECOND_NS = 1_000_000_000

Values = Mapping[tuple[str, ...], float]


def snapshot(
    promises: Sequence[Grant] = (),
    usages: Sequence[AllocationUsage] = (),
    residents: Sequence[Resident] = (),
    *,
    told: NvmlReading | None = None,
    fitness: Mapping[GpuUUID, GpuFitness] | None = None,
    **meters: Any,
) -> Snapshot:
    indexed = {one.allocation: one for one in usages}
    status = told.status or {} if told else {}
    given = {"busy": Busy(), "status": status, **meters}
    seen = MeterTotals(indexed, by_holder(residents), **given)
    return Snapshot(
        at=1.0,
        node="node-1",
        answered=told is not None,
        gpus=tuple(gpu_views(Ledger(NODE), promises, status, fitness or {})),
        containers=latest(filter(None, (container_view(NODE, one, seen) for one in promises))),
        residents=tuple(residents),
        registered={VCORE: True},
        journal={"settled": len(promises)},
        disagreements={"doubled": 0},
    )


def everything(page: Page) -> str:
    """Both pages: ours, and gpu-manager's."""
    return (render(page) + render_kept(page)).decode()


def metric(page: Page | Snapshot, name: str, *labels: str) -> Values:
    """Samples of one name by the values of these labels."""
    page = page if isinstance(page, Page) else Page(page, version="1.0")
    samples = (one for family in parse(everything(page)) for one in family.samples)
    return {
        tuple(one.labels.get(label, "") for label in labels): one.value
        for one in samples
        if one.name == name
    }


def busy(*samples: tuple[int, int], ended: int = SECOND_NS) -> Busy:
    """pid and percent, on the first GPU."""
    told = tuple(ProcessSample(pid, ended, percent) for pid, percent in samples)
    return Busy().after({FIRST.uuid: GpuUtilization(ended, told)}, ended)


ONE = share(claimant())


def test_the_originals_gauges_have_their_names_labels_and_units() -> None:
    seen = snapshot(
        [ONE],
        [usage(ONE, {7: 300 * MIB})],
        [resident(7, 310 * MIB, allocation=ONE.id, booked=Bytes(300 * MIB))],
        busy=busy((7, 28)),
    )

    text = render_kept(Page(seen)).decode()

    pod = 'container_name="main",{0}="{1}",namespace="team",node="node-1",pod_name="pod"'
    last = 'container_name="main",namespace="team",node="node-1",pod_name="pod",{0}="{1}"'
    rows = [
        "container_gpu_utilization{" + pod.format("gpu", "gpu0") + "} 28.0",
        "container_gpu_utilization{" + pod.format("gpu", "total") + "} 28.0",
        "container_gpu_memory_total{" + pod.format("gpu_memory", "gpu0") + "} 310.0",
        "container_gpu_memory_total{" + pod.format("gpu_memory", "total") + "} 310.0",
        "container_request_gpu_utilization{" + last.format("req_of_gpu", "total") + "} 0.3",
        "container_request_gpu_memory{" + last.format("req_of_gpu_memory", "total") + "} 1024.0",
    ]
    assert [row for row in text.splitlines() if row.startswith("container_")] == rows


def of_containers(page: Page, *texts: Callable[[Page], bytes]) -> Mapping[str, float]:
    return {
        one.name: one.value
        for text in texts or (render, render_kept)
        for family in parse(text(page).decode())
        for one in family.samples
        if "pod" in one.labels or "pod_name" in one.labels
    }


def test_a_container_that_has_done_nothing_yet_has_all_its_series() -> None:
    page = Page(snapshot([ONE], [usage(ONE)], busy=busy()))

    names = of_containers(page)

    kept = {one.name for one in KEPT_FAMILIES}
    assert {name for name in names if name.startswith("container_")} == kept
    assert names["gpumanager_container_memory_used_bytes"] == 0
    assert names["container_gpu_memory_total"] == 0


def test_prometheus_gets_seven_series_of_a_share_and_four_of_a_whole_gpu() -> None:
    idle = Page(snapshot([ONE], [usage(ONE)], busy=busy()))
    bursts = replace(ONE, ceiling=80)
    both = whole(claimant("big"), gpus=(SECOND,))
    told = NvmlReading({SECOND.uuid: GpuStatus(Bytes(GIB), percent=9)}, {}, {})

    share_names = of_containers(idle, render).keys()

    assert {one.removeprefix("gpumanager_container_") for one in share_names} == {
        "memory_limit_bytes",
        "memory_used_bytes",
        "memory_refusals_total",
        "share_granted_ratio",
        "gpu_seconds_total",
        "launches_total",
        "launches_throttled_total",
    }
    assert of_containers(
        Page(snapshot([bursts], [usage(bursts)])), render
    ).keys() - share_names == {"gpumanager_container_share_ceiling_ratio"}
    assert of_containers(Page(snapshot([both], told=told)), render) == {
        "gpumanager_container_memory_limit_bytes": 16 * GIB,
        "gpumanager_container_memory_measured_bytes": GIB,
        "gpumanager_container_share_granted_ratio": 1,
        "gpumanager_container_utilization_ratio": 0.09,
    }


FIRST_OF_ONE = (ONE.id, bare(FIRST.uuid))
BIG = whole(claimant("big"))
BOTH = whole(claimant("big"), gpus=(FIRST, SECOND))
MIXED = replace(ONE, shares={FIRST.uuid: Share(100, 0), SECOND.uuid: Share(50, 16)})
LIMIT = "gpumanager_container_memory_limit_bytes"


def charged(now: int, before: int, seconds: float, *, held: int | None = None) -> Snapshot:
    """Nanoseconds of GPU time that ONE has paid, and had paid so many seconds before.

    held: bytes by its books, where the driver does not tell.
    """
    pids = {} if held is None else {7: held}
    silent = [
        resident(pid, None, allocation=ONE.id, booked=Bytes(size)) for pid, size in pids.items()
    ]
    used = usage(ONE, pids, charged_ns=now)
    return snapshot([ONE], [used], silent, charged={FIRST_OF_ONE: before}, seconds=seconds)


def told(*on: tuple[Gpu, GpuStatus]) -> NvmlReading:
    return NvmlReading({gpu.uuid: status for gpu, status in on}, {}, {})


@pytest.mark.parametrize(
    ("seen", "percent"),
    [
        pytest.param(charged(SECOND_NS * 8 // 5, SECOND_NS, 2.0), 30,
                     id="the share is what was paid since the last look"),
        pytest.param(charged(5 * SECOND_NS, 0, 1.0), 100,
                     id="a share paid in advance is never above a hundred percent"),
        pytest.param(charged(5, 9 * SECOND_NS, 1.0), 0,
                     id="books that begin anew do not make a share negative"),
    ],
)  # fmt: skip
def test_a_share_is_of_the_time_between_two_looks(seen: Snapshot, percent: int) -> None:
    assert seen.containers[0].devices[0].share == percent


SILENT = charged(SECOND_NS // 4, 0, 1.0, held=300 * MIB)
SEVERAL = snapshot(
    [ONE],
    [usage(ONE)],
    [resident(pid, allocation=ONE.id, booked=Bytes(0)) for pid in (7, 8, 9)],
    busy=busy((7, 60), (8, 70), (9, 100)),
)
LOCK, ENTRY = lib.VCUDA_DEGRADED_LOCK, lib.VCUDA_DEGRADED_ENTRY
LACKING = usage(ONE, {7: MIB, 8: MIB, 9: MIB})
DEGRADED = snapshot(
    [ONE],
    [
        replace(
            LACKING,
            processes=tuple(
                replace(one, degraded=bits)
                for one, bits in zip(LACKING.processes, (0, LOCK, LOCK | ENTRY), strict=True)
            ),
        )
    ],
)
WHOLE = snapshot(
    [BOTH],
    residents=[resident(7, GIB, SECOND, allocation=BOTH.id)],
    told=told((FIRST, GpuStatus(Bytes(0))), (SECOND, GpuStatus(Bytes(GIB)))),
)
ANEW = snapshot(
    [
        share(claimant(uid="new"), "a2", time=2.0, cores=50, first=30),
        share(claimant(uid="old"), "a1", time=1.0),
    ]
)
NAMELESS = snapshot(
    [
        share(replace(claimant(uid=uid), namespace="", name=""), f"a-{uid}", first=first)
        for uid, first in (("one", 0), ("two", 30))
    ]
)
TWO_GRANTS = snapshot(
    [
        replace(
            whole(claimant(container="init"), name, gpus=(gpu,)),
            source=ClaimSource("u", "team", "two", (ClaimedDevice(f"gpu-{name}", name),)),
        )
        for name, gpu in (("w1", FIRST), ("w2", SECOND))
    ]
)
"""Each GPU is later that of an app container, and both are the init container's."""
MIXED_CLAIM = snapshot(
    [MIXED], [usage(MIXED)], told=told((FIRST, GpuStatus(Bytes(7 * GIB), percent=93)))
)
UNSETTLED = snapshot([share(None, candidate=claimant())])
STATUS = GpuStatus(Bytes(2 * GIB), percent=55, temperature_celsius=40, power_milliwatts=70_500)
GPUS = snapshot(
    [ONE, BIG],
    told=told((FIRST, STATUS)),
    fitness={SECOND.uuid: GpuFitness(healthy=False, xids={79: 2})},
)
TALLY = Tally(
    unlimited=Counter({("team", "pod", "main", "session"): 2, ("team", "pod", "", "session"): 1})
)


def of_gpus(*values: float) -> Values:
    return {(f"gpu{index}",): value for index, value in enumerate(values)}


@pytest.mark.parametrize(
    ("seen", "name", "labels", "values"),
    [
        pytest.param(UNSETTLED, "container_request_gpu_utilization", "pod_name", {},
                     id="a promise that is not settled has no name to be shown by"),
        pytest.param(UNSETTLED, "gpumanager_gpu_cores_granted_ratio", "gpu", of_gpus(0.3, 0),
                     id="but it is granted"),
        pytest.param(SEVERAL, "container_gpu_utilization", "gpu",
                     {**of_gpus(100), ("total",): 100}, id="utilisation is at most 100 percent"),
        pytest.param(charged(SECOND_NS * 8 // 5, SECOND_NS, 2.0),
                     "gpumanager_container_gpu_seconds_total", "gpu", of_gpus(1.6),
                     id="GPU time is counted in seconds"),
        pytest.param(SILENT, "container_gpu_utilization", "gpu", {**of_gpus(25), ("total",): 25},
                     id="where the driver does not tell how busy it is the meter does"),
        pytest.param(SILENT, "container_gpu_memory_total", "gpu_memory",
                     {**of_gpus(300), ("total",): 300}, id="and the books what is held"),
        pytest.param(SILENT, "gpumanager_container_memory_measured_bytes", "gpu", {},
                     id="nothing is measured"),
        pytest.param(SILENT, "gpumanager_container_utilization_ratio", "gpu", {},
                     id="nor is utilisation"),
        pytest.param(DEGRADED, "gpumanager_container_degraded_processes", "reason",
                     {("lock",): 2, ("entry",): 1}, id="processes are counted by what they lack"),
        pytest.param(Page(snapshot([ONE]), tally=TALLY), "gpumanager_container_unlimited_processes",
                     "namespace pod container reason", TALLY.unlimited,
                     id="processes without limits are counted by why"),
        pytest.param(WHOLE, "container_request_gpu_utilization", "pod_name", {("big",): 2},
                     id="whole GPUs"),
        pytest.param(WHOLE, "container_request_gpu_memory", "pod_name", {("big",): 2 * 16 * 1024},
                     id="have all their memory"),
        pytest.param(WHOLE, "container_gpu_memory_total", "gpu_memory",
                     {**of_gpus(0, 1024), ("total",): 1024}, id="of which some is used"),
        pytest.param(WHOLE, "gpumanager_container_memory_used_bytes", "pod", {},
                     id="and have no books"),
        pytest.param(WHOLE, LIMIT, "gpu", of_gpus(16 * GIB, 16 * GIB), id="nor a lower limit"),
        pytest.param(ANEW, "container_request_gpu_utilization", "pod_name", {("pod",): 0.5},
                     id="a pod made anew under its old name is told once"),
        pytest.param(NAMELESS, "container_request_gpu_utilization", "pod_name",
                     {("one",): 0.3, ("two",): 0.3}, id="pods without names are told apart by uid"),
        pytest.param(TWO_GRANTS, LIMIT, "gpu", of_gpus(16 * GIB, 16 * GIB),
                     id="two grants of a claim that are shown for one container are both told"),
        pytest.param(TWO_GRANTS, "container_request_gpu_utilization", "pod_name", {("pod",): 2},
                     id="as two GPUs"),
        pytest.param(MIXED_CLAIM, "gpumanager_container_utilization_ratio", "gpu", of_gpus(0.93),
                     id="of a claim with a whole GPU and a share the whole one is measured"),
        pytest.param(MIXED_CLAIM, "gpumanager_container_memory_measured_bytes", "gpu",
                     of_gpus(7 * GIB), id="so is its memory"),
        pytest.param(MIXED_CLAIM, "gpumanager_container_gpu_seconds_total", "gpu", {("gpu1",): 0},
                     id="and the share has a meter"),
        pytest.param(MIXED_CLAIM, "gpumanager_container_memory_used_bytes", "gpu", {("gpu1",): 0},
                     id="and books"),
        *(
            pytest.param(GPUS, f"gpumanager_gpu_{name}", "gpu", of_gpus(*values), id=f"GPU {name}")
            for name, values in (
                ("memory_granted_bytes", (GIB, 16 * GIB)), ("cores_granted_ratio", (0.3, 1)),
                ("containers", (1, 1)), ("memory_used_bytes", (2 * GIB,)),
                ("utilization_ratio", (0.55,)), ("temperature_celsius", (40,)),
                ("power_watts", (70.5,)), ("healthy", (1, 0)),
            )
        ),
        pytest.param(GPUS, "gpumanager_gpu_xid_errors_total", "gpu xid", {("gpu1", "79"): 2},
                     id="Xids are counted by their code"),
    ],
)  # fmt: skip
def test_a_metric_has_these_series(
    seen: Snapshot | Page, name: str, labels: str, values: Values
) -> None:
    assert metric(seen, name, *labels.split()) == values


def test_no_series_is_there_twice() -> None:
    for seen in (ANEW, TWO_GRANTS):
        lines = everything(Page(seen)).splitlines()
        names = [line.partition(" ")[0] for line in lines if not line.startswith("#")]
        assert len(names) == len(set(names))


def test_an_old_sample_of_an_idle_process_is_not_told_for_ever() -> None:
    first = busy((7, 80))

    later = first.after({FIRST.uuid: GpuUtilization(0, ())}, 3 * SECOND_NS)

    assert first.percent(FIRST.uuid, [7]) == 80
    assert later.percent(FIRST.uuid, [7]) == 0


def test_every_bit_of_a_degradation_has_a_name() -> None:
    names = [name for name in dir(lib) if name.startswith("VCUDA_DEGRADED_")]

    assert {getattr(lib, name) for name in names} - {lib.VCUDA_DEGRADED_MASK} == set(DEGRADATIONS)


def test_every_counter_is_there_before_anything_happened() -> None:
    page = Page(snapshot(), version="1.0")

    for name in ("journal_writes", "journal_write_errors", "identity_mismatches", "audit_killed"):
        assert metric(page, f"gpumanager_{name}_total") == {(): 0}
    assert set(metric(page, "gpumanager_audit_findings_total", "kind").values()) == {0}
    assert set(metric(page, "gpumanager_rpc_answers_total", "rpc", "outcome").values()) == {0}
    buckets = metric(page, "gpumanager_rpc_duration_seconds_bucket", "rpc", "resource", "le")
    assert buckets["Allocate", VCORE, "+Inf"] == 0
    assert metric(page, "gpumanager_build_info", "version") == {("1.0",): 1}


def test_the_journal_s_writes_and_size_are_told() -> None:
    page = Page(snapshot([ONE]), writes=JournalWrites(writes=4, errors=1, seconds=0.5))

    assert metric(page, "gpumanager_journal_writes_total") == {(): 4}
    assert metric(page, "gpumanager_journal_write_errors_total") == {(): 1}
    assert metric(page, "gpumanager_journal_write_seconds_total") == {(): 0.5}
    assert metric(page, "gpumanager_journal_allocations", "state") == {("settled",): 1}


def test_every_metric_is_documented_with_its_labels_and_no_other_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", DOCS.read_text(), re.MULTILINE)
    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows
    }

    assert documented == {
        row.name + ("_total" if row.kind == "counter" else ""): (row.kind, row.labels)
        for row in (*FAMILIES, *KEPT_FAMILIES, RPC_SECONDS)
    }


def test_a_node_with_256_containers_is_a_page_of_less_than_250_kilobytes() -> None:
    assert len(render(Page(busy_node(256, 16)))) < 250_000
