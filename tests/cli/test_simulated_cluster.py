"""A cluster in a box: real extender and agents, among simulated nodes."""

import asyncio
import socket
from collections import Counter

import pytest

from gpumanager.cli.explain import get_record
from gpumanager.cli.simulated_cluster import SimulatedCluster
from gpumanager.errors import GpuManagerError
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE
from gpumanager.sim import events
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from tests.waiting import until

pytestmark = pytest.mark.namespaces


def pod(name: str, cores: int, *command: str) -> Pod:
    main = ContainerManifest("main", ContainerKind.APP, command, asks={VCORE: cores})
    return Pod("default", name, (main,))


def free_ports() -> int:
    """The first of two."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                other.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


async def test_pods_run_where_the_extender_binds_them_and_one_without_room_waits() -> None:
    seen: list[events.Event] = []
    stop = asyncio.Event()
    pods = [pod("a", 100, "sleep", "600"), pod("b", 100, "true"), pod("huge", 200, "true")]
    cluster = SimulatedCluster(
        load_machine("single"), 2, port=free_ports(), page_port=0, on_event=seen.append
    )
    async with cluster:
        running = asyncio.create_task(cluster.run(pods, stop))
        await until(lambda: _started(seen)["b"] > 1)  # it was started again
        url = f"http://127.0.0.1:{cluster.page_port}"
        waits = await asyncio.to_thread(get_record, url, "/explain/default/huge", None)
        runs = await asyncio.to_thread(get_record, url, "/explain/default/a", None)
        stop.set()
        results = {one.pod.name: one for one in await running}

    assert not isinstance(waits, GpuManagerError)
    assert not isinstance(runs, GpuManagerError)
    assert (waits["nodes"], waits["fitting"], waits["bound"]) == (2, 0, "")
    assert runs["bound"] in {"node-0", "node-1"}
    assert results["a"].stopped
    refused = results["huge"].refused or ""
    assert refused.startswith("no node had room for it: node(s) didn't have enough GPUs (node-")
    assert _started(seen)["a"] == 1


def _started(seen: list[events.Event]) -> Counter[str]:
    return Counter(one.pod.name for one in seen if isinstance(one, events.ContainerStarted))
