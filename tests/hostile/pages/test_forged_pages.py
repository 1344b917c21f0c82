"""What a tenant writes into its own pages harms nobody else.

Before, the agent believed them: a tenant had a neighbour's process ended by naming it in a slot,
raised its own limit in the eyes of the auditor, and ended the sharing of the whole node by a number
that does not fit into 63 bits.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from gpumanager.limits.processes import Process, find
from gpumanager.monitor.unlimited.audit import LOOKS_BEFORE_VERDICT
from gpumanager.units import GIB
from tests.hostile.hostile_node import HostileNode, hostile, pod
from tests.waiting import until

pytestmark = pytest.mark.namespaces


PORT: Mapping[str, Any] = {"query-port": 25678}


def on_gpus(node: HostileNode) -> list[Process]:
    """The living processes that use a GPU of this node: what a pod with hostPID sees."""
    found = (find(one.pid) for one in node.node.gpus.processes() if one.pid)
    return [process for process in found if process is not None]


def log_of(node: HostileNode) -> str:
    return node.node.disk.agent_log.read_text()


async def test_a_slot_that_names_a_neighbour_s_process_does_not_have_it_ended() -> None:
    hold = ("cuda-play", "hold", "--memory", "2GiB", "--seconds", "600")
    async with (
        HostileNode(**{"on-bypass": "end"}) as node,
        node.beside(pod("victim", hold, cores=60, memory=16)) as victim,
    ):
        await until(lambda: bool(on_gpus(node)))
        (process,) = on_gpus(node)
        evil = hostile("evil", "frame.py", 600, process.pid, process.start_time, cores=10, memory=1)
        async with node.beside(evil):
            await until(lambda: node.said["evil"] == ["framed"])
            await asyncio.sleep(LOOKS_BEFORE_VERDICT + 2)  # the auditor looks once a second
            assert not victim.done()
            assert find(process.pid) == process
            assert "beyond its container" not in log_of(node)


async def test_who_raises_its_own_limit_is_judged_by_its_promise() -> None:
    """Root of a container may have found a way to write its configuration.

    Either the program is found, or the agent has written the page again before it allocates.
    """
    async with HostileNode(**PORT) as node:
        evil = hostile("evil", "rewrite_limits.py", 600)
        async with node.beside(evil):
            await until(lambda: bool(node.said["evil"]))
            text = await metrics(25678)
            (limit,) = [line for line in text if "container_memory_limit_bytes{" in line]
            assert float(limit.split()[-1]) == GIB
            if node.said["evil"][0] == "rewritten":
                await until(
                    lambda: (
                        "beyond its container's limit" in log_of(node)
                        or "OUT_OF_MEMORY" in node.said["evil"][-1]
                    )
                )


@pytest.mark.parametrize("how", ["overflow", "zero", "clock"])
async def test_a_forged_meter_does_not_end_the_sharing_of_the_node(how: str) -> None:
    good = pod("good", ("cuda-play", "launch", "--kernel", "2ms", "--seconds", "2"), cores=60)
    async with HostileNode() as node, node.beside(hostile("evil", "write_meter.py", 600, how)):
        await node.first_line("evil")
        (result,) = await node.run(good)
        assert "has stopped" not in log_of(node)
        assert "Traceback" not in log_of(node)
        assert result.exit_code == 0


async def metrics(port: int) -> list[str]:
    """Lines of the agent's page, as soon as it has one with containers."""
    async with asyncio.timeout(120), aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                    lines = (await response.text()).splitlines()
                if any("container_memory_limit_bytes{" in line for line in lines):
                    return lines
            await asyncio.sleep(0.1)
