"""A scrape of a node's agent: series, bytes, and milliseconds to render them.

    python benchmarks/scrape.py [--containers 256] [--gpus 16]

Each container has a share of one GPU and is at work, so that no series is left out for being zero.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Final

from gpumanager.gpu.usage.nvml_pass import GpuStatus
from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import Claimant, DevicePluginSource, Grant, Share, State
from gpumanager.ids import AllocationID, PodUID
from gpumanager.limits.pages.books import DEGRADATIONS
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.metrics.text import render, render_kept
from gpumanager.monitor.snapshot import ContainerSnapshot, DeviceView, GpuSnapshot, Snapshot
from gpumanager.units import GIB, Bytes

ROUNDS: Final = 31


def busy_node(containers: int, gpus: int) -> Snapshot:
    cards = [
        Gpu(n, n, GpuUUID(f"GPU-{n:08x}-4a5b-9c6d-1e2f-7a8b9c0d1e2f"), f"00000000:{n:02X}:00.0",
            "NVIDIA H100 80GB HBM3", Bytes(80 * GIB))
        for n in range(gpus)
    ]  # fmt: skip
    share = 100 * gpus // containers
    views = tuple(_container(n, cards[n % gpus], share) for n in range(containers))
    status = GpuStatus(Bytes(60 * GIB), percent=90, temperature_celsius=61, power_milliwatts=500000)
    return Snapshot(
        at=1.0,
        node="gpu-node-17",
        answered=True,
        gpus=tuple(GpuSnapshot(one, status=status) for one in cards),
        containers=views,
    )


def _container(number: int, gpu: Gpu, share: int) -> ContainerSnapshot:
    owner = Claimant(PodUID(f"uid-{number}"), f"team-{number % 9}", f"train-{number}", "main")
    source = DevicePluginSource("admission", ("core",), ("block",))
    grant = Grant(
        AllocationID(f"a{number}"), source, {gpu.uuid: Share(share, 16)}, why="fits",
        time=1.0, state=State.CONFIRMED, pod=owner,
    )  # fmt: skip
    used = Bytes(3 * GIB + 4096 * number)
    device = DeviceView(
        gpu, Bytes(4 * GIB), share, share, used=used, peak=used, measured=used, percent=share,
        share=share - 0.25, charged_ns=10**12 + 987654321 * number, throttled_ns=10**11 + number,
        launches=10**8 + number, throttled=10**6 + number, refused=3, pids=(number,),
    )  # fmt: skip
    sound = dict.fromkeys(DEGRADATIONS.values(), 0)
    return ContainerSnapshot(owner, grant, (device,), sound, users=(owner,))


def measure(page: Page, render: Callable[[Page], bytes]) -> tuple[int, int, float]:
    """Return series, bytes, and the median of milliseconds."""
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        text = render(page)
        took.append(1e3 * (time.perf_counter() - began))
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    return series, len(text), statistics.median(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--containers", type=int, default=256)
    parser.add_argument("--gpus", type=int, default=16)
    words = parser.parse_args()
    page = Page(busy_node(words.containers, words.gpus))
    for name, text in (("/metrics", render), ("/metric, gpu-manager's", render_kept)):
        series, size, milliseconds = measure(page, text)
        print(f"{name}: {series:,} series, {size / 1000:.1f} kB, {milliseconds:.1f} ms")


if __name__ == "__main__":
    main()
