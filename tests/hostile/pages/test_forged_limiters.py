"""A container that says that its GPU time is paid, or launches out of turn, gets its share.

Before, a container of 30 % took half of the GPU, and its neighbour of 60 % had the other half.
"""

import asyncio
import time

import pytest

from gpumanager.limits.pausing import PAUSED_FILE, Cgroup
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.freezer import CgroupFreezer
from tests.hostile.hostile_node import HostileNode, hostile, pod
from tests.hostile.kubelet_cgroups import in_cgroup
from tests.waiting import until

pytestmark = pytest.mark.namespaces

SECONDS = 600
MOST = 0.38
TRIES = 5
"""The clock is the real one: a busy machine may let the agent look too seldom for a while."""
LAUNCH = ("cuda-play", "launch", "--kernel", "2ms", "--seconds", str(SECONDS))
DRIVER = "/usr/local/nvidia/lib64/libvcuda-real.so.1"
BESIDE = f"{' '.join(LAUNCH)} & LD_PRELOAD={DRIVER} exec {' '.join(LAUNCH)}"
"""One program that takes its turns, and one that goes past the shim."""


GOOD = pod("good", LAUNCH, cores=60)


def busy_ns(node: HostileNode, number: int) -> int:
    """Of the container that began as that."""
    account = node.node.gpus.tenants()[number]
    return sum(one.busy_ns for one in account.devices.values())


async def test_a_clock_that_says_that_all_is_paid_brings_nothing() -> None:
    evil = hostile("evil", "write_meter.py", SECONDS, "clock")
    async with HostileNode() as node, node.beside(GOOD):
        await until(lambda: bool(node.node.gpus.tenants()))
        async with node.beside(evil):
            await node.first_line("evil")
            await asyncio.sleep(2)  # for what it took until then
            for _ in range(TRIES):
                began, before = time.monotonic_ns(), busy_ns(node, 1)
                await asyncio.sleep(6)
                share = (busy_ns(node, 1) - before) / (time.monotonic_ns() - began)
                if share < MOST:
                    return
    raise AssertionError(share)


def is_frozen(node: HostileNode) -> bool:
    """Whether the kernel says so of a container that the agent may freeze."""
    marks = (node.node.disk.virtual / "alloc").glob(f"*/{PAUSED_FILE}")
    freezer = CgroupFreezer(CgroupFiles.here(), lambda _: ())
    return any(
        freezer.is_frozen(Cgroup(line)) for mark in marks for line in mark.read_text().splitlines()
    )


async def test_a_container_that_launches_out_of_turn_is_paused_again_and_again() -> None:
    """For how long is told by a manual clock in tests/limits."""
    async with (
        HostileNode(**{"on-bypass": "pause"}) as node,
        in_cgroup(pod("evil", ("sh", "-c", BESIDE))) as evil,
        node.beside(GOOD),
    ):
        await until(lambda: bool(node.node.gpus.tenants()))
        async with node.beside(evil):
            for _ in range(2):
                await until(lambda: is_frozen(node))
                before = busy_ns(node, 0)
                await until(lambda before=before: busy_ns(node, 0) > before)  # type: ignore[misc]
                await until(lambda: not is_frozen(node))
