"""A process for which no limit holds, as an operator meets it: metric, event, log, commands."""

import asyncio
import json
import os
import re
import shutil
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from tests.kube.api_world import ApiWorld, until
from tests.node_status.test_agent_in_a_cluster import kubeconfig
from vcuda_shim import SIMULATED_DRIVER
from vcuda_shim.build import Target, build_shims_for, compiler

pytest_plugins = ["tests.kube.api_fixtures", "tests.limits.virtual_fixtures"]

pytestmark = pytest.mark.namespaces

PROGRAM = Path(__file__).with_name("unlimited_program.py")
UNHOOKED = "VCUDA_UNHOOKED"
METRIC = "gpumanager_container_unlimited_processes"


class Agent:
    """An agent in a cluster, and one pod on its node."""

    def __init__(self, world: ApiWorld, node: SimulatedNode, port: int, pod: Pod) -> None:
        self.world, self.node, self.pod = world, node, pod
        self.url = f"http://127.0.0.1:{port}"

    async def says_unlimited(self, reason: str) -> dict[str, str] | None:
        """The labels of the series that is not 0, once there is one."""
        try:
            page = await asyncio.to_thread(urllib.request.urlopen, f"{self.url}/metrics")
        except OSError:
            return None
        samples = [one for family in parse(page.read().decode()) for one in family.samples]
        found = [one for one in samples if one.name == METRIC and one.value]
        assert all(one.labels["reason"] == reason for one in found)
        return found[0].labels if found else None

    async def event(self, reason: str) -> Any:
        """The pod's, once it is written."""
        path = "/api/v1/namespaces/default/events"
        asked = f"involvedObject.uid={self.pod.uid}"
        items = (await self.world.api.get(path, fieldSelector=asked))["items"] or []
        return next((one for one in items if one["reason"] == reason), None)

    async def command(self, *words: str) -> str:
        """What `gpumanager WORDS` prints, as one line."""
        environment = {**os.environ, "COLUMNS": "160"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gpumanager", *words, "--agent", self.url),
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        return " ".join((await process.communicate())[0].decode().split())


@asynccontextmanager
async def running(
    world: ApiWorld, folder: Path, *command: object, shim: Path | None = None, **env: str
) -> AsyncIterator[Agent]:
    """shim: in the place of the product's."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    flags = {
        "kubeconfig": kubeconfig(folder, world),
        "hostname-override": world.node,
        "query-port": port,
        "sample-period": "0.1",
    }
    item = await world.pod("train")
    words = tuple(map(str, command))
    main = ContainerManifest("main", ContainerKind.APP, words, tuple(env.items()),
                     asks={VCORE: 30, VMEMORY: 8})  # fmt: skip
    pod = Pod("default", world.full("train"), (main,), uid=item["metadata"]["uid"])
    async with SimulatedNode(load_machine("t4x4"), agent_flags=flags) as node:
        if shim is not None:
            replace_shim(node.disk.volumes, shim)
        assert await node.admit(pod) is None
        task = asyncio.create_task(node.runner.run(pod))
        yield Agent(world, node, port, pod)
        node.kill_containers()
        await asyncio.gather(task, return_exceptions=True)


def replace_shim(volumes: Path, shim: Path) -> None:
    mirrored = {one.resolve() for one in volumes.rglob("libcuda.so.1")}
    ours = [one for one in mirrored if one.name.startswith("libvcuda-shim")]
    assert len(ours) == 2  # with graphics and without
    for one in ours:
        one.unlink()
        shutil.copy2(shim, one)


@pytest.fixture(scope="module")
def shim_with_gaps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test build of the shim: it leaves what its environment names to the driver."""
    folder = tmp_path_factory.mktemp("unhooked")
    (folder / "work").mkdir()
    define = f'-D{UNHOOKED}="{UNHOOKED}"'
    build_shims_for(Target("shim", (*compiler(), define)), folder, folder / "work")
    return folder / "lib" / "shim" / "libcuda.so.1"


async def test_functions_that_the_shim_cannot_place_are_told_everywhere(
    simulated: ApiWorld, tmp_path: Path, shim_with_gaps: Path
) -> None:
    command = (sys.executable, PROGRAM, 100)
    async with running(
        simulated, tmp_path, *command, shim=shim_with_gaps, **{UNHOOKED: "alloc"}
    ) as agent:
        labels = await until(lambda: agent.says_unlimited("entry"))
        event = await until(lambda: agent.event("GpuUnlimited"))
        top = await agent.command("top", "--once")
        (seen,) = json.loads(await agent.command("top", "--once", "--json"))["nodes"]
        tree = await agent.command("tree")
        explained = await agent.command("explain", agent.pod.full_name)
        log = agent.node.disk.agent_log.read_text()

    assert (labels["namespace"], labels["pod"]) == ("default", agent.pod.name)
    assert labels["container"] == "main"
    assert re.fullmatch(
        rf"process \d+ \(python\S*\) of {agent.pod.full_name} \(main\) uses GPU\d without limits: "
        "the shim does not know its driver's functions",
        event["message"],
    )
    assert event["type"] == "Warning"
    assert log.count("uses GPU") == 1
    assert "NO LIMIT" in top
    assert [row["unlimited_processes"] for row in seen["containers"]] == [{"entry": 1}]
    assert "NO LIMIT holds for 1 of its processes" in tree
    assert (
        "No limit holds for 1 process. It got functions from the driver that the shim does not "
        "know. What to do: runbook GpuManagerContainerUnlimited, 'entry'." in explained
    )


@pytest.mark.cgroups
async def test_a_process_without_a_session_is_told_by_the_name_of_its_container(
    simulated: ApiWorld, tmp_path: Path, cgroup: Path
) -> None:
    """As with an image whose entry point puts a libcuda of its own first."""
    compat = tmp_path / "compat"
    compat.mkdir()
    (driver,) = SIMULATED_DRIVER.glob("libcuda.so.*")
    shutil.copy2(driver, compat / "libcuda.so.1")
    uid = tmp_path / "uid"
    entry_point = (
        f"while ! [ -s {uid} ]; do sleep 0.05; done; "
        f"place={cgroup}/kubepods/pod$(cat {uid})/{'a' * 64}; "
        'mkdir -p "$place" && echo $$$$ > "$place/cgroup.procs" && '  # a cluster reads $$ as $
        f"LD_LIBRARY_PATH={compat}:$LD_LIBRARY_PATH "
        "exec cuda-play hold --memory 300MiB --seconds 600"
    )
    async with running(simulated, tmp_path, "sh", "-c", entry_point) as agent:
        uid.write_text(agent.pod.uid)
        labels = await until(lambda: agent.says_unlimited("session"))
        event = await until(lambda: agent.event("GpuMemoryBehindTheShim"))
        explained = await agent.command("explain", agent.pod.full_name)
        log = agent.node.disk.agent_log.read_text()

    assert (labels["namespace"], labels["pod"]) == ("default", agent.pod.name)
    assert labels["container"] == "main"
    assert re.fullmatch(
        rf"process \d+ \(cuda-play\) of {agent.pod.full_name} \(main\) holds \S+ MiB of GPU\d that "
        "it did not ask the shim for: it found a driver library without the shim, and no limit "
        "holds for it",
        event["message"],
    )
    assert log.count("did not ask the shim for") == 1
    assert "No limit holds for 1 process. It found another driver library" in explained
    assert re.search(r"By the driver, its processes hold \d+ MiB", explained)
