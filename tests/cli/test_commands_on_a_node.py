"""The commands for people, asked about a real agent on a simulated node: they tell one story."""

import asyncio
import json
import socket
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gpumanager.cli.node_agents import list_nodes
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import NODE, ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from tests.cli.commands import doctor_of, gpumanager
from tests.dra.node_of_claims import NodeOfClaims
from tests.sim.claims.claim_objects import request
from tests.waiting import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.namespaces,
]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def pod(name: str, cores: int, blocks: int, *command: str) -> Pod:
    asks = {key: value for key, value in ((VCORE, cores), (VMEMORY, blocks)) if value}
    return Pod("team", name, (ContainerManifest("main", ContainerKind.APP, command, asks=asks),))


HOLD = "cuda-play hold --memory 300MiB --seconds 600"


async def record(*words: str) -> Any:
    status, out = await gpumanager(*words, "--json")
    assert status == 0
    return json.loads(out)


async def test_top_tree_and_explain_tell_one_story_of_pods_and_of_a_refused_one() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    machine = load_machine("v100x4-nvlink")
    async with SimulatedNode(machine, agent_flags={"query-port": port}) as node:
        refused = await node.admit(pod("no-memory", 30, 0, "true"))
        small = pod("small", 30, 4, *HOLD.split())
        linked = pod("linked", 200, 0, "sleep", "120")
        assert await node.admit(small) is None
        assert await node.admit(linked) is None
        running = [asyncio.create_task(node.runner.run(one)) for one in (small, linked)]
        await both_are_shown(url)

        top = (await record("top", "--agent", url))["nodes"][0]
        tree = (await record("tree", "--agent", url))["nodes"][0]
        told = {
            name: await record("explain", f"team/{name}", "--agent", url)
            for name in ("small", "linked")
        }
        _, words = await gpumanager("explain", "team/small", "--agent", url)

        node.kill_containers()
        await asyncio.gather(*running, return_exceptions=True)

    assert refused is not None
    (event,) = (one for one in top["events"] if one["subject"] == "team/no-memory/main")
    assert event["message"].startswith("refused: ")
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


async def both_are_shown(url: str) -> None:
    """Until both run, and the one holds its memory."""
    async with asyncio.timeout(300):
        rows: list[Any] = []
        while len(rows) != 3 or not any(row.memory_used_bytes for row in rows):
            (seen,) = await asyncio.to_thread(list_nodes, [url])
            rows = [row for _, (_, row) in (seen.node.shares if seen.node else ())]
            await asyncio.sleep(0.05)


def _leaves(branches: list[Any]) -> list[Any]:
    found = []
    for one in branches:
        found += [one["gpu"]] if "gpu" in one else _leaves(one["below"])
    return found


# Claims.

BOTH = [("one", "main"), ("two", "main")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node() -> AsyncIterator[NodeOfClaims]:
    """Two pods share a claim, a third waits for more than there is."""
    async with NodeOfClaims(flags={"query-port": free_port()}) as found:
        await until(found.slice)
        await found.claim("budget", request("gpu", 40, "2Gi"))
        await found.claim("large", request("gpu", 30, "1000Gi"))
        pods = [await found.pod(name, {"main": [("budget", "gpu")]}, HOLD)
                for name in ("one", "two")]  # fmt: skip
        spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "large"}],
                "containers": [{"name": "main", "image": "none"}]}  # fmt: skip
        metadata = {"name": "waits", "namespace": "default"}
        await found.server.create("pods", {"metadata": metadata, "spec": spec})
        running = [asyncio.create_task(found.node.run([one])) for one in pods]
        await both_hold(url_of(found))
        yield found
        found.node.kill_containers()
        await asyncio.gather(*running, return_exceptions=True)


def url_of(node: NodeOfClaims) -> str:
    return f"http://127.0.0.1:{node.flags['query-port']}"


async def both_hold(url: str) -> None:
    """Until the agent has seen the memory of both."""
    async with asyncio.timeout(300):
        while True:
            (seen,) = await asyncio.to_thread(list_nodes, [url])
            rows = [row for _, (_, row) in (seen.node.shares if seen.node else ())]
            if any((row.memory_used_bytes or 0) >= 600 << 20 for row in rows):
                return
            await asyncio.sleep(0.2)


async def test_top_tree_and_explain_tell_of_a_claim_that_two_pods_share(node: NodeOfClaims) -> None:
    url, kubeconfig = url_of(node), str(node.kubeconfig)
    top = (await record("top", "--agent", url))["nodes"][0]
    tree = json.dumps(await record("tree", "--agent", url))
    words = ("--agent", url, "--kubeconfig", kubeconfig)
    claim = await record("explain", "claim", "budget", *words)
    second = " ".join((await gpumanager("explain", "two", *words))[1].split())
    waiting = " ".join((await gpumanager("explain", "waits", *words))[1].split())

    (row,) = top["containers"]
    users = [(one["pod"], one["container"]) for one in row["users"]]
    assert (row["pod"], row["claim"], users) == ("one", "budget", BOTH)
    assert sum(gpu["cores_granted_percent"] for gpu in top["gpus"]) == 40
    assert tree.count('"claim": "budget"') == 1
    assert claim["node"] == NODE
    assert f"It is prepared on node {NODE}." in claim["sentences"]
    assert any("one:main two:main" in one for one in claim["admission"])
    assert "The same limits hold for one:main too" in second
    assert "The extender does not say" not in second
    assert "request gpu: no GPU that is large enough simulated: its largest has 15 GiB" in waiting


async def test_the_doctor_and_its_bundle_tell_of_claims(node: NodeOfClaims, tmp_path: Path) -> None:
    _, said = await doctor_of(node.node)
    found = {one["part"]: one["verdict"] for one in said["findings"]}
    assert {found[part] for part in ("DRA plugin", "CDI support", "claims API", "ResourceSlice",
                                     "claims", "CDI files", "agent", "DeviceClass")
            } == {"well"}  # fmt: skip

    (path,) = node.node.disk.cdi[1].iterdir()
    bundle = tmp_path / "bundle.tar.gz"
    await doctor_of(node.node, "--bundle", str(bundle))
    with tarfile.open(bundle) as packed:
        names = {Path(one).name for one in packed.getnames()}
    assert {"resourceslices.json", "resourceclaims.json", path.name, "cdi.txt"} <= names


async def test_the_doctor_misses_no_gpu_that_device_plugins_offer() -> None:
    flags = {"interface": "both", "claims-gpus": 1, "gpu-move-delay": "0.2s"}
    async with NodeOfClaims(flags={**flags, "query-port": free_port()}) as node:
        await until(lambda: node.offered() == 1)

        _, said = await doctor_of(node.node)

    (row,) = (one for one in said["findings"] if one["part"] == "ResourceSlice")

    assert row["verdict"] == "well", row
