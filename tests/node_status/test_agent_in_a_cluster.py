"""The agent as a process on a simulated node, beside an API server that is there or not."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_INVENTORY,
    ANNOTATION_PREDICATE_GPU_INDEX,
    VCORE,
    VMEMORY,
)
from gpumanager.sim.kubelet.kubelet import SimulatedKubelet
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from tests.kube.api_world import ApiWorld, until

pytest_plugins = ["tests.kube.api_fixtures"]

pytestmark = pytest.mark.namespaces

MAIN = ContainerManifest("main", ContainerKind.APP, ("sleep", "60"), asks={VCORE: 30, VMEMORY: 8})


@asynccontextmanager
async def joined(world: ApiWorld, tmp_path: Path) -> AsyncIterator[SimulatedNode]:
    flags = {"kubeconfig": kubeconfig(tmp_path, world), "hostname-override": world.node}
    async with SimulatedNode(load_machine("t4x4"), agent_flags=flags) as node:
        yield node


def kubeconfig(folder: Path, world: ApiWorld) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": str(world.api.access)}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


async def start(kubelet: SimulatedKubelet, pod: Pod) -> None:
    """As far as a container's start."""
    assert await kubelet.admit(pod) is None
    for container in pod.containers:
        await kubelet.prepare(pod, container)


async def made(world: ApiWorld, name: str) -> Pod:
    """A pod that the API server and the kubelet have alike."""
    item = await world.pod(name)
    return Pod("default", world.full(name), (MAIN,), uid=item["metadata"]["uid"])


async def test_the_node_and_its_pod_say_what_was_granted(
    simulated: ApiWorld, tmp_path: Path
) -> None:
    async with joined(simulated, tmp_path) as node:
        await start(node.kubelet, await made(simulated, "a"))

        async def assigned() -> Any:
            metadata = (await simulated.api.get(simulated.pod_path("a")))["metadata"]
            return metadata.get("annotations")

        found = await until(assigned)
        metadata = (await simulated.api.get(simulated.node_path))["metadata"]

    assert found[ANNOTATION_GPU_ASSIGNED] == "true"
    assert found[ANNOTATION_PREDICATE_GPU_INDEX + "0"] in {"0", "1", "2", "3"}
    assert metadata["labels"]["tencent.com/gpu-product"] == "Tesla-T4"
    assert metadata["labels"]["tencent.com/gpu-cuda-version"]
    assert ANNOTATION_INVENTORY in metadata["annotations"]


@pytest.mark.parametrize("how", ["away", "silent"])
async def test_without_an_answer_of_the_api_server_pods_are_admitted_and_started(
    simulated: ApiWorld, tmp_path: Path, how: str
) -> None:
    assert simulated.simulated
    pod = await made(simulated, "a")
    if how == "away":
        await simulated.simulated.stop()
    else:
        simulated.simulated.answering.clear()

    async with joined(simulated, tmp_path) as node:
        await start(node.kubelet, pod)
        (alloc,) = (node.disk.virtual / "alloc").glob("[!.]*")  # those made ahead are nobody's

        assert (alloc / "vcuda.sock").is_socket()
        simulated.simulated.answering.set()
