"""The commands for people, asked about a real agent on a simulated node: they tell one story."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from gpumanager.cli.node_agents import list_nodes
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode

MISSING = namespaces_available()
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def pod(name: str, cores: int, blocks: int, *command: str) -> Pod:
    asks = {key: value for key, value in ((VCORE, cores), (VMEMORY, blocks)) if value}
    return Pod("team", name, (ContainerManifest("main", ContainerKind.APP, command, asks=asks),))


HOLD = ("cuda-play", "hold", "--memory", "300MiB", "--seconds", "600")


async def until(condition: Callable[[], object]) -> None:
    """Raises TimeoutError where it does not come true."""
    async with asyncio.timeout(300):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110  others change it
            await asyncio.sleep(0.2)


async def gpumanager(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpumanager", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, error = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, error.decode()
    return out.decode()


async def record(*words: str) -> Any:
    return json.loads(await gpumanager(*words, "--json"))


async def test_top_tree_and_explain_tell_the_same_of_a_node() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    machine = load_machine("v100x4-nvlink")
    async with SimulatedNode(machine, agent_flags={"query-port": port}) as node:
        small = pod("small", 30, 4, *HOLD)
        linked = pod("linked", 200, 0, "sleep", "120")
        assert await node.admit(small) is None
        assert await node.admit(linked) is None
        running = [asyncio.create_task(node.runner.run(one)) for one in (small, linked)]
        await until(lambda: _held(url))

        top = (await record("top", "--agent", url))["nodes"][0]
        tree = (await record("tree", "--agent", url))["nodes"][0]
        told = {
            name: await record("explain", f"team/{name}", "--agent", url)
            for name in ("small", "linked")
        }
        words = await gpumanager("explain", "team/small", "--agent", url)

        node.kill_containers()
        await asyncio.gather(*running, return_exceptions=True)

    sits = {(one["pod"], gpu["index"]) for one in top["containers"] for gpu in one["gpus"]}
    assert sits == {
        (one["pod"], leaf["index"]) for leaf in _leaves(tree["tree"]) for one in leaf["containers"]
    }
    assert sits == {
        (name, gpu["index"])
        for name, said in told.items()
        for one in said["admission"]["containers"]
        for gpu in one["gpus"]
    }
    assert len(sits) == 3
    assert "30 % and 1 GiB of GPU" in " ".join(words.split())


def _held(url: str) -> bool:
    """Both run, and the one holds its memory."""
    (seen,) = list_nodes([url])
    rows = [row for _, (_, row) in (seen.node.shares if seen.node else ())]
    return len(rows) == 3 and any(row.memory_used_bytes for row in rows)


def _leaves(branches: list[Any]) -> list[Any]:
    found = []
    for one in branches:
        found += [one["gpu"]] if "gpu" in one else _leaves(one["below"])
    return found


async def test_a_pod_that_was_refused_is_remembered_with_the_reason() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    flags = {"query-port": port}
    async with SimulatedNode(load_machine("t4x4"), agent_flags=flags) as node:
        refused = await node.admit(pod("no-memory", 30, 0, "true"))
        assert refused is not None
        await until(lambda: list_nodes([url])[0].node)
        events = (await record("top", "--agent", url))["nodes"][0]["events"]

    assert [one["subject"] for one in events] == ["team/no-memory/main"]
    assert events[0]["message"].removeprefix("refused: ")
