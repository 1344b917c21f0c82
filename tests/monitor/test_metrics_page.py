"""The page of metrics: gpu-manager's four, ours, from the start, and never more than there is."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families as parse
from scrape import busy_node

from gpumanager.gpu.usage.nvml_pass import GpuStatus, NvmlReading
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample
from gpumanager.gpu.values import GpuUUID
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


def test_a_container_that_is_gone_has_no_series() -> None:
    assert metric(snapshot([ONE]), "container_gpu_utilization", "pod_name")

    assert not metric(snapshot([]), "container_gpu_utilization", "pod_name")


def test_a_promise_that_is_not_settled_has_no_name_to_be_shown_by() -> None:
    seen = snapshot([share(None, candidate=claimant())])

    assert not metric(seen, "container_request_gpu_utilization", "pod_name")
    assert metric(seen, "gpumanager_gpu_cores_granted_ratio", "gpu")[("gpu0",)] == 0.3


def test_utilisation_is_never_above_a_hundred_percent() -> None:
    several = [resident(pid, allocation=ONE.id, booked=Bytes(0)) for pid in (7, 8, 9)]
    seen = snapshot([ONE], [usage(ONE)], several, busy=busy((7, 60), (8, 70), (9, 100)))

    assert metric(seen, "container_gpu_utilization", "gpu")[("gpu0",)] == 100
    assert seen.containers[0].devices[0].percent == 100


def test_a_share_paid_in_advance_is_never_above_a_hundred_percent() -> None:
    charged = {(ONE.id, GpuUUID(FIRST.uuid.partition("-")[2])): 0}
    seen = snapshot([ONE], [usage(ONE, charged_ns=5 * SECOND_NS)], charged=charged, seconds=1.0)

    assert seen.containers[0].devices[0].share == 100


def test_the_share_is_what_was_paid_since_the_last_look() -> None:
    charged = {(ONE.id, GpuUUID(FIRST.uuid.partition("-")[2])): SECOND_NS}
    seen = snapshot(
        [ONE], [usage(ONE, charged_ns=SECOND_NS * 8 // 5)], charged=charged, seconds=2.0
    )

    assert seen.containers[0].devices[0].share == 30
    assert metric(seen, "gpumanager_container_gpu_seconds_total", "gpu")[("gpu0",)] == 1.6


def test_books_that_begin_anew_do_not_make_a_share_negative() -> None:
    charged = {(ONE.id, GpuUUID(FIRST.uuid.partition("-")[2])): 9 * SECOND_NS}
    seen = snapshot([ONE], [usage(ONE, charged_ns=5)], charged=charged, seconds=1.0)

    assert seen.containers[0].devices[0].share == 0


def test_where_the_driver_tells_nothing_the_books_and_meters_do() -> None:
    charged = {(ONE.id, GpuUUID(FIRST.uuid.partition("-")[2])): 0}
    silent = resident(7, None, allocation=ONE.id, booked=Bytes(300 * MIB))
    seen = snapshot(
        [ONE],
        [usage(ONE, {7: 300 * MIB}, charged_ns=SECOND_NS // 4)],
        [silent],
        charged=charged,
        seconds=1.0,
    )

    assert metric(seen, "container_gpu_utilization", "gpu")[("gpu0",)] == 25
    assert metric(seen, "container_gpu_memory_total", "gpu_memory")[("gpu0",)] == 300
    assert not metric(seen, "gpumanager_container_memory_measured_bytes", "gpu")
    assert not metric(seen, "gpumanager_container_utilization_ratio", "gpu")


def test_an_old_sample_of_an_idle_process_is_not_told_for_ever() -> None:
    first = busy((7, 80))

    later = first.after({FIRST.uuid: GpuUtilization(0, ())}, 3 * SECOND_NS)

    assert first.percent(FIRST.uuid, [7]) == 80
    assert later.percent(FIRST.uuid, [7]) == 0


def test_a_process_whose_shim_lacks_something_is_counted_by_what_it_lacks() -> None:
    used = usage(ONE, {7: MIB, 8: MIB, 9: MIB})
    bits = (0, lib.VCUDA_DEGRADED_LOCK, lib.VCUDA_DEGRADED_LOCK | lib.VCUDA_DEGRADED_ENTRY)
    marked = [replace(one, degraded=bit) for one, bit in zip(used.processes, bits, strict=True)]
    seen = snapshot([ONE], [replace(used, processes=tuple(marked))])

    assert metric(seen, "gpumanager_container_degraded_processes", "reason") == {
        ("lock",): 2,
        ("entry",): 1,
    }


def test_processes_without_limits_are_counted_by_what_they_lack() -> None:
    tally = Tally()
    tally.unlimited["team", "pod", "main", "session"] = 2
    tally.unlimited["team", "pod", "", "session"] = 1
    page = Page(snapshot([ONE]), tally=tally)

    labels = ("namespace", "pod", "container", "reason")
    assert metric(page, "gpumanager_container_unlimited_processes", *labels) == tally.unlimited


def test_every_bit_of_a_degradation_has_a_name() -> None:
    names = [name for name in dir(lib) if name.startswith("VCUDA_DEGRADED_")]

    assert {getattr(lib, name) for name in names} - {lib.VCUDA_DEGRADED_MASK} == set(DEGRADATIONS)


def test_a_whole_gpu_has_no_books_and_no_series_of_them() -> None:
    both = whole(claimant("big"), gpus=(FIRST, SECOND))
    there = resident(7, GIB, SECOND, allocation=both.id)
    status = {FIRST.uuid: GpuStatus(Bytes(0)), SECOND.uuid: GpuStatus(Bytes(GIB))}
    seen = snapshot([both], residents=[there], told=NvmlReading(status, {}, {}))

    assert metric(seen, "container_request_gpu_utilization", "pod_name")[("big",)] == 2
    assert metric(seen, "container_request_gpu_memory", "pod_name")[("big",)] == 2 * 16 * 1024
    memory = metric(seen, "container_gpu_memory_total", "gpu_memory")
    assert memory == {("gpu0",): 0, ("gpu1",): 1024, ("total",): 1024}
    assert not metric(seen, "gpumanager_container_memory_used_bytes", "pod")
    assert metric(seen, "gpumanager_container_memory_limit_bytes", "gpu")[("gpu1",)] == 16 * GIB


def test_a_pod_made_anew_under_its_old_name_is_told_once() -> None:
    old = share(claimant(uid="old"), "a1", time=1.0)
    new = share(claimant(uid="new"), "a2", time=2.0, cores=50, first=30)

    seen = snapshot([new, old])

    assert metric(seen, "container_request_gpu_utilization", "pod_name") == {("pod",): 0.5}
    names = [
        line.partition(" ")[0]
        for line in everything(Page(seen)).splitlines()
        if not line.startswith("#")
    ]
    assert len(names) == len(set(names))


def test_two_grants_of_a_claim_that_are_shown_for_one_container_are_both_told() -> None:
    """An init container uses two whole GPUs, of which each app container has one later."""
    init = claimant(container="init")
    claim = ClaimSource("u", "team", "two", (ClaimedDevice("gpu-1", "one"),))
    both = [
        replace(whole(init, name, gpus=(gpu,)), source=claim)
        for name, gpu in (("w1", FIRST), ("w2", SECOND))
    ]

    seen = snapshot(both)

    limits = metric(seen, "gpumanager_container_memory_limit_bytes", "gpu")
    assert limits == {("gpu0",): 16 * GIB, ("gpu1",): 16 * GIB}
    assert metric(seen, "container_request_gpu_utilization", "pod_name") == {("pod",): 2}
    memory = metric(seen, "container_gpu_memory_total", "gpu_memory")
    assert memory.keys() == {("gpu0",), ("gpu1",), ("total",)}


def test_containers_whose_pods_are_not_known_by_name_are_told_apart_by_uid() -> None:
    nameless = [replace(claimant(uid=uid), namespace="", name="") for uid in ("one", "two")]
    seen = snapshot([share(nameless[0], "a1"), share(nameless[1], "a2", first=30)])

    assert {pod for (pod,) in metric(seen, "container_request_gpu_utilization", "pod_name")} == {
        "one",
        "two",
    }


def test_a_gpu_tells_what_is_granted_used_and_free_of_harm() -> None:
    status = GpuStatus(Bytes(2 * GIB), percent=55, temperature_celsius=40, power_milliwatts=70_500)
    told = NvmlReading({FIRST.uuid: status}, {}, {})
    seen = snapshot(
        [ONE, whole(claimant("big"))],
        told=told,
        fitness={SECOND.uuid: GpuFitness(healthy=False, xids={79: 2})},
    )

    def of(name: str) -> Values:
        return metric(seen, f"gpumanager_gpu_{name}", "gpu")

    assert of("memory_granted_bytes") == {("gpu0",): GIB, ("gpu1",): 16 * GIB}
    assert of("cores_granted_ratio") == {("gpu0",): 0.3, ("gpu1",): 1}
    assert of("containers") == {("gpu0",): 1, ("gpu1",): 1}
    assert of("memory_used_bytes") == {("gpu0",): 2 * GIB}
    assert of("utilization_ratio") == {("gpu0",): 0.55}
    assert of("temperature_celsius") == {("gpu0",): 40}
    assert of("power_watts") == {("gpu0",): 70.5}
    assert of("healthy") == {("gpu0",): 1, ("gpu1",): 0}
    xids = metric(seen, "gpumanager_gpu_xid_errors_total", "gpu", "xid")
    assert xids == {("gpu1", "79"): 2}


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


def test_names_of_labels_are_those_that_prometheus_takes() -> None:
    for row in (*FAMILIES, *KEPT_FAMILIES, RPC_SECONDS):
        assert re.fullmatch(r"[a-z_][a-z0-9_]*", row.name)
        assert row.name.startswith(("gpumanager_", "container_"))
        assert len(set(row.labels)) == len(row.labels)


def test_a_node_with_256_containers_is_a_page_of_less_than_250_kilobytes() -> None:
    assert len(render(Page(busy_node(256, 16)))) < 250_000


def test_of_a_claim_with_a_whole_gpu_and_a_share_each_has_its_own_series() -> None:
    both = replace(ONE, shares={FIRST.uuid: Share(100, 0), SECOND.uuid: Share(50, 16)})
    told = NvmlReading({FIRST.uuid: GpuStatus(Bytes(7 * GIB), percent=93)}, {}, {})

    seen = snapshot([both], [usage(both)], told=told)

    name = "gpumanager_container_{}".format
    assert metric(seen, name("utilization_ratio"), "gpu") == {("gpu0",): 0.93}
    assert metric(seen, name("memory_measured_bytes"), "gpu") == {("gpu0",): 7 * GIB}
    assert metric(seen, name("gpu_seconds_total"), "gpu").keys() == {("gpu1",)}
    assert metric(seen, name("memory_used_bytes"), "gpu").keys() == {("gpu1",)}
