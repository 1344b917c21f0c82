"""The behaviour `h100` is what the GPU check measured: against the committed facts of that run."""

import json
from typing import Any

import pytest
from harness import Tenant, play

from gpumanager.sim.machine import H100, UtilizationSamples
from tests import ROOT

FOLDER = ROOT / "docs/gpu/nvidia-h100-80gb-hbm3-580.159.04"
Row = dict[str, Any]


def rows(file: str) -> list[Row]:
    return [json.loads(line) for line in (FOLDER / file).read_text().splitlines()]


@pytest.fixture(scope="module")
def facts() -> dict[str, Row]:
    return {row["fact"]: row for row in rows("facts.jsonl")}


@pytest.fixture(scope="module")
def figures() -> dict[str, Row]:
    return {row["check"]: row["figures"] for row in rows("checks.jsonl")}


def test_slices_and_switches_last_as_long_as_measured(figures: dict[str, Row]) -> None:
    seen = figures["time slices of two processes"]

    assert H100.slice_ns == pytest.approx(seen["slice_ms"]["p50"] * 1e6)
    assert H100.switch_ns == pytest.approx(seen["switch_us"]["p50"] * 1e3)


@pytest.mark.namespaces
async def test_a_short_kernel_waits_for_the_rest_of_a_full_process_s_slice() -> None:
    """As measured with pauses of 0.2 to 4.2 ms between two of them; here they come at random."""
    (seen,) = [
        row
        for row in rows("facts.jsonl")
        if row.get("of") == "ping beside a full one" and row.get("n")
    ]
    tenants = [
        Tenant("full", 50, "kernel=1ms blocks=264 threads=1024 for=90s"),
        Tenant("short", 50, "kernel=1us pattern=poisson every=200ms seed=3 for=90s"),
    ]

    played = await play(tenants, 90, limiter="none", driver=H100)

    waited = played.reports["short"]
    for part in ("p50", "p90", "p99"):
        assert waited[f"delay_{part}_us"] == pytest.approx(seen[part], rel=0.25), part


@pytest.mark.parametrize(("stream", "most"), [("busy", 0.2), ("idle", 0.5)], ids=str)
def test_a_pair_of_events_shows_as_much_more_than_its_kernel(
    facts: dict[str, Row], stream: str, most: float
) -> None:
    """By the kernels of 0, 5 and 50 us: their length is calibrated to 2 us in 500."""
    kernels = {"empty kernel": 0, "kernel of 5 us": 5, "kernel of 50 us": 50}
    more = H100.event_floor_ns + (H100.event_idle_ns if stream == "idle" else 0)

    for kernel, length in kernels.items():
        seen = facts[f"event pair, {kernel}, {stream} stream"]["p50"]
        assert more / 1000 == pytest.approx(seen - length, abs=most), kernel


def test_as_many_launches_are_queued_as_measured(facts: dict[str, Row]) -> None:
    queued = facts["launches queued before the host waits"]["value"]

    assert H100.queue_depth == queued + 1  # that one runs


def test_allocations_take_pages_as_measured(facts: dict[str, Row]) -> None:
    """64 of each size: of 512 bytes all lie in one page."""
    for size, each in (
        (512, H100.page_bytes // 64),
        (H100.slab_most_bytes, H100.slab_most_bytes),
        (H100.slab_most_bytes + 1, H100.page_bytes),
        (H100.page_bytes + 1, 2 * H100.page_bytes),
    ):
        assert facts[f"cuMemAlloc, {size} B"]["each_process"] == each


def test_nvml_counts_and_names_as_measured(facts: dict[str, Row], figures: dict[str, Row]) -> None:
    managed = facts["memory, 256 MiB managed, touched by the GPU"]
    assert H100.hides_managed == (managed["process_more_mib"] == 0 < managed["gpu_more_mib"])

    assert H100.samples is UtilizationSamples.ONE_PROCESS
    assert figures["utilisation of two at 100 %"]["shared"] == 0

    assert H100.hmm == (figures["device attributes"]["pageable"] == 1)
