"""The commands for people, asked about claims on a simulated node with a real agent."""

import asyncio
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gpumanager.cli.node_agents import list_nodes
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.manifest.pods import NODE
from tests.cli.test_terminal_on_a_node import free_port, gpumanager, record
from tests.dra.node_of_claims import NodeOfClaims
from tests.sim.claims.claim_objects import request
from tests.waiting import until

MISSING = namespaces_available()
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]
HOLD = "cuda-play hold --memory 300MiB --seconds 600"
BOTH = [("one", "main"), ("two", "main")]


@pytest.fixture
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
    await both_hold(url)

    top = (await record("top", "--agent", url))["nodes"][0]
    tree = json.dumps(await record("tree", "--agent", url))
    words = ("--agent", url, "--kubeconfig", kubeconfig)
    claim = await record("explain", "claim", "budget", *words)
    second = " ".join((await gpumanager("explain", "two", *words)).split())
    waiting = " ".join((await gpumanager("explain", "waits", *words)).split())

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
    await both_hold(url_of(node))

    found = {one["part"]: one["verdict"] for one in (await doctor(node))["findings"]}
    assert {found[part] for part in ("DRA plugin", "CDI support", "claims API", "ResourceSlice",
                                     "claims", "CDI files", "agent", "DeviceClass")
            } == {"well"}  # fmt: skip

    (path,) = node.node.disk.cdi[1].iterdir()
    bundle = tmp_path / "bundle.tar.gz"
    await printed(node, "--bundle", str(bundle))
    with tarfile.open(bundle) as packed:
        names = {Path(one).name for one in packed.getnames()}
    assert {"resourceslices.json", "resourceclaims.json", path.name, "cdi.txt"} <= names


async def test_the_doctor_misses_no_gpu_that_device_plugins_offer() -> None:
    flags = {"interface": "both", "claims-gpus": 1, "gpu-move-delay": "0.2s"}
    async with NodeOfClaims(flags={**flags, "query-port": free_port()}) as node:
        await until(lambda: node.offered() == 1)

        (row,) = (one for one in (await doctor(node))["findings"] if one["part"] == "ResourceSlice")

    assert row["verdict"] == "well", row


async def doctor(node: NodeOfClaims) -> Any:
    return json.loads(await printed(node, "--json"))


async def printed(node: NodeOfClaims, *more: str) -> bytes:
    """What the doctor prints, with the agent's own flags."""
    words = node.node.agent.command(node.node.kubelet.http.endpoint)
    asked = await asyncio.create_subprocess_exec(
        *("doctor" if word == "agent" else word for word in words),
        *more,
        env=node.node.agent.environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await asyncio.wait_for(asked.communicate(), 300)
    return out
