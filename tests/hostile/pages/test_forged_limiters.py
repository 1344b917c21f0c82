"""Who says again and again that all its GPU time is paid gets what it was granted all the same.

Before, a container of 30 % took half of the GPU, and its neighbour of 60 % had the other half.
"""

import asyncio
import time

import pytest

from tests.hostile.hostile_node import HostileNode, hostile, pod
from tests.hostile.kubelet_cgroups import in_cgroup
from tests.waiting import until

pytestmark = pytest.mark.namespaces

SECONDS = 600
MOST = 0.34
TRIES = 5
"""The clock is the real one: a busy machine may let the agent look too seldom for a while."""
LAUNCH = ("cuda-play", "launch", "--kernel", "2ms", "--seconds", str(SECONDS))


def busy_ns(node: HostileNode) -> int:
    """Of the container that began last."""
    account = node.node.gpus.tenants()[-1]
    return sum(one.busy_ns for one in account.devices.values())


async def test_it_is_paused_whenever_it_has_had_more() -> None:
    async with (
        HostileNode(**{"behind-the-shim": "pause"}) as node,
        node.beside(pod("good", LAUNCH, cores=60)),
        in_cgroup(hostile("evil", "write_meter.py", SECONDS, "clock")) as evil,
    ):
        await until(lambda: bool(node.node.gpus.tenants()))
        async with node.beside(evil):
            await node.agent_says("the agent pauses it")
            await asyncio.sleep(2)  # for what it took until then
            for _ in range(TRIES):
                began, before = time.monotonic_ns(), busy_ns(node)
                await asyncio.sleep(6)
                share = (busy_ns(node) - before) / (time.monotonic_ns() - began)
                if share < MOST:
                    return

    raise AssertionError(share)
