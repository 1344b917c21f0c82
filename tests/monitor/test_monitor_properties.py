"""Whatever is promised, used and said: a page that Prometheus takes, and no GPU above 100 %."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parse

from gpumanager.gpu.values import bare
from gpumanager.grants.grant import Grant
from gpumanager.ids import AllocationID
from gpumanager.monitor.display import graph
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.metrics.text import render, render_kept
from gpumanager.monitor.snapshot import Snapshot
from gpumanager.units import CORES_PER_GPU, GIB, Bytes
from tests.monitor.monitor_world import FIRST, NODE, SECOND, claimant, resident, share, usage, whole
from tests.monitor.test_metrics_page import busy, snapshot

SECOND_NS = 1_000_000_000
NAMES = st.sampled_from(["a", "b", 'quoted"', "line\nbreak", "back\\slash", "ünïcode"])
SIZES = st.integers(0, 64 * GIB)


@st.composite
def promises(draw: st.DrawFn) -> list[Grant]:
    found = []
    for number in range(draw(st.integers(0, 5))):
        owner = draw(st.one_of(st.none(), st.builds(claimant, NAMES, NAMES)))
        time = float(draw(st.integers(0, 3)))
        if owner is not None and draw(st.booleans()):
            one = whole(owner, f"a{number}", draw(st.sampled_from([[FIRST], [FIRST, SECOND]])))
        else:
            on = draw(st.sampled_from(NODE.gpus))
            cores = draw(st.integers(0, 99))
            one = share(owner, f"a{number}", cores=cores, on=on, time=time)
        found.append(one)
    return found


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    found = draw(promises())
    shares = [one for one in found if not one.exclusive]
    usages = [
        usage(one, {1: draw(SIZES)}, charged_ns=draw(st.integers(0, 9 * SECOND_NS)))
        for one in shares
    ]
    before = {(one.id, bare(one.gpus[0])): draw(st.integers(0, SECOND_NS)) for one in shares}
    present = [
        resident(
            pid,
            draw(st.one_of(st.none(), SIZES)),
            on,
            allocation=AllocationID(f"a{draw(st.integers(0, 5))}"),
            booked=draw(st.one_of(st.none(), st.builds(Bytes, SIZES))),
        )
        for pid, on in enumerate(draw(st.lists(st.sampled_from(NODE.gpus), max_size=4)))
    ]
    samples = busy(*((pid, draw(st.integers(0, 100))) for pid in range(4)))
    seconds = draw(st.floats(0, 5))
    return snapshot(found, usages, present, busy=samples, charged=before, seconds=seconds)


@given(snapshots())
def test_a_page_names_every_series_once_and_no_gpu_is_busier_than_it_can_be(seen: Snapshot) -> None:
    text = (render(Page(seen)) + render_kept(Page(seen))).decode()
    samples = [one for family in parse(text) for one in family.samples]

    keys = [(one.name, *sorted(one.labels.items())) for one in samples]
    assert len(keys) == len(set(keys))
    for one in samples:
        assert one.value >= 0
        gpu = one.labels.get("gpu")
        if gpu != "total" and (one.name.endswith(("_percent", "_utilization")) and gpu):
            assert one.value <= 100


@given(snapshots())
def test_the_graph_has_every_gpu_once_and_gives_away_no_more_than_there_is(seen: Snapshot) -> None:
    lines = graph(replace(seen, topology=NODE))["graph"].splitlines()

    assert [line.count("GPU") for line in lines].count(1) == len(NODE.gpus)
    for view in seen.gpus:
        assert 0 <= view.cores <= CORES_PER_GPU
        assert 0 <= view.memory <= view.gpu.memory
