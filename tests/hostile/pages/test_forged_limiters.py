"""A container that says that its GPU time is paid, or launches out of turn, gets its share.

Before, a container of 30 % took half of the GPU, and its neighbour of 60 % had the other half.
"""

import asyncio
import time

import pytest

from gpumanager.sim.manifest.pods import Pod
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


def busy_ns(node: HostileNode) -> int:
    """Of the container that began last."""
    account = node.node.gpus.tenants()[-1]
    return sum(one.busy_ns for one in account.devices.values())


async def has_its_share(node: HostileNode, evil: Pod, said: str) -> None:
    """Beside a neighbour, once the agent has said this."""
    async with node.beside(pod("good", LAUNCH, cores=60)):
        await until(lambda: bool(node.node.gpus.tenants()))
        async with node.beside(evil):
            await until(lambda: len(node.node.gpus.tenants()) > 1)
            await node.agent_says(said)
            await asyncio.sleep(2)  # for what it took until then
            for _ in range(TRIES):
                began, before = time.monotonic_ns(), busy_ns(node)
                await asyncio.sleep(6)
                share = (busy_ns(node) - before) / (time.monotonic_ns() - began)
                if share < MOST:
                    return
    raise AssertionError(share)


async def test_a_clock_that_says_that_all_is_paid_brings_nothing() -> None:
    async with HostileNode() as node:
        await has_its_share(node, hostile("evil", "write_meter.py", SECONDS, "clock"), "")


async def test_a_container_that_launches_out_of_turn_is_paused() -> None:
    async with (
        HostileNode(**{"on-bypass": "pause"}) as node,
        in_cgroup(pod("evil", ("sh", "-c", BESIDE))) as evil,
    ):
        await has_its_share(node, evil, "bypasses its shim")
