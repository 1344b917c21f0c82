"""The agent as a process on a simulated node, where another manager of its GPUs comes and goes."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumanager.cli.support.inputs import find_managers
from gpumanager.doctor.question import Unseen
from gpumanager.names import VCORE
from gpumanager.settings import AgentSettings
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import NODE
from tests.dra.node_of_claims import NodeOfClaims, WaitingForNobody
from tests.kube.api_world import ApiWorld, until
from tests.node_status.test_agent_in_a_cluster import kubeconfig, made, start

pytest_plugins = ["tests.kube.api_fixtures"]

pytestmark = pytest.mark.namespaces
NVIDIA = "nvidia.com/gpu"
CORES = 400


class Shared:
    """A node of four GPUs whose agent has just started, and what is said of it."""

    def __init__(self, world: ApiWorld, node: WaitingForNobody, socket: Path) -> None:
        self.world, self.node, self._socket = world, node, socket

    async def plugin(self, count: int) -> None:
        """Of NVIDIA: what the kubelet makes of it in the node's status."""
        await plugin_of_nvidia(self.world, count)

    @property
    def cores(self) -> int:
        """Allocatable."""
        return self.node.kubelet.books.capacity(VCORE)

    @property
    def registered(self) -> int:
        return len(self.node.kubelet.books.registered.get(VCORE, ()))

    async def offers(self, cores: int) -> None:
        async def there() -> bool:
            return self.cores == cores and VCORE in self.node.kubelet.books.registered

        await until(there)

    async def condition(self, status: str) -> Any:
        async def found() -> Any:
            node = await self.world.api.get(self.world.node_path)
            conditions = (node.get("status") or {}).get("conditions") or ()
            ours = (one for one in conditions if one["type"] == "OtherGpuManager")
            return next((one for one in ours if one["status"] == status), None)

        return await until(found)

    async def event(self, reason: str) -> Any:
        async def found() -> Any:
            listed = (await self.world.api.get("/api/v1/namespaces/default/events"))["items"]
            return next((one for one in listed if one["reason"] == reason), None)

        return await until(found)

    async def says(self, text: str) -> None:
        """Readiness does."""
        words = ("-m", "gpumanager", "probe", "readyz", "--socket", str(self._socket))

        async def said() -> bool:
            asked = await asyncio.create_subprocess_exec(
                sys.executable,
                *words,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            out, _ = await asked.communicate()
            return text in out.decode()

        await until(said)


async def plugin_of_nvidia(world: ApiWorld, count: int) -> None:
    amounts = {"capacity": {NVIDIA: str(count)}, "allocatable": {NVIDIA: str(count)}}
    await world.api.patch(f"{world.node_path}/status", {"status": amounts})


@asynccontextmanager
async def shared(world: ApiWorld, tmp_path: Path, **more: object) -> AsyncIterator[Shared]:
    probe = tmp_path / "probe.sock"
    flags = {
        "kubeconfig": kubeconfig(tmp_path, world),
        "hostname-override": world.node,
        "probe-socket": probe,
        "other-managers-timeout": "0.5s",
        **more,
    }
    async with WaitingForNobody(load_machine("t4x4"), agent_flags=flags) as node:
        yield Shared(world, node, probe)


async def test_nothing_is_offered_where_another_plugin_was_first_until_it_is_gone(
    simulated: ApiWorld, tmp_path: Path
) -> None:
    await plugin_of_nvidia(simulated, 4)

    async with shared(simulated, tmp_path) as both:
        message = (await both.condition("True"))["message"]
        assert f"{NVIDIA}: 4" in message
        await both.offers(0)
        assert both.registered == 0
        await both.says("another manager has this node's GPUs")
        assert (await both.event("OtherGpuManager"))["type"] == "Warning"

        await both.plugin(0)
        await both.offers(CORES)
        await both.condition("False")
        await both.event("OtherGpuManagerGone")
        await both.says("ok")


async def test_all_free_gpus_are_withdrawn_when_another_plugin_comes_and_pods_keep_theirs(
    simulated: ApiWorld, tmp_path: Path
) -> None:
    async with shared(simulated, tmp_path) as both:
        await both.offers(CORES)
        pod = await made(simulated, "a")
        await start(both.node.kubelet, pod)

        await both.plugin(4)
        await both.offers(0)
        assert both.registered == 30  # those that the pod holds: a kubelet must not forget them
        (directory,) = (both.node.disk.virtual / "alloc").glob("[!.]*")
        assert (directory / "vcuda.sock").is_socket()
        await both.says("another manager")

        await both.plugin(0)
        await both.offers(CORES)


async def test_a_plugin_that_went_while_the_agent_was_away_is_waited_for(
    simulated: ApiWorld, tmp_path: Path
) -> None:
    await plugin_of_nvidia(simulated, 4)
    more = {"other-managers-timeout": "1h"}
    async with shared(simulated, tmp_path, **more) as both:
        await both.condition("True")
        await both.node.agent.stop()
        await both.plugin(0)  # the kubelet restarts, and the plugin will register again

        await both.node.start_agent()
        await both.says("no sign of it now")
        assert both.cores == 0


async def test_a_pod_that_another_plugin_left_keeps_its_gpu(
    simulated: ApiWorld, tmp_path: Path
) -> None:
    limits = {"limits": {NVIDIA: "1"}}
    container = {"name": "main", "image": "none", "resources": limits}
    left = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "left", "namespace": "default"},
        "spec": {"nodeName": simulated.node, "containers": [container]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main"}]},
    }
    await plugin_of_nvidia(simulated, 0)
    await simulated.api.create("/api/v1/namespaces/default/pods", left)
    path = "/api/v1/namespaces/default/pods/left"

    async with shared(simulated, tmp_path) as both:
        assert "pod default/left has nvidia.com/gpu" in (await both.condition("True"))["message"]
        await both.offers(0)

        await simulated.api.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
        await both.offers(CORES)


async def test_gpus_are_offered_beside_another_plugin_if_the_operator_says_so(
    simulated: ApiWorld, tmp_path: Path
) -> None:
    await plugin_of_nvidia(simulated, 4)

    async with shared(simulated, tmp_path, **{"allow-other-managers": "true"}) as both:
        await both.offers(CORES)


async def test_the_doctor_sees_what_the_agent_sees(simulated: ApiWorld, tmp_path: Path) -> None:
    access = kubeconfig(tmp_path, simulated)
    settings = AgentSettings(kubeconfig=access, hostname_override=simulated.node)
    topology = load_machine("t4x4").topology
    assert await find_managers(settings, topology) == ()

    await plugin_of_nvidia(simulated, 4)
    assert await find_managers(settings, topology) == (
        f"NVIDIA's device plugin or HAMi's (the node has {NVIDIA}: 4)",
    )
    await simulated.delete(simulated.node_path)
    assert isinstance(await find_managers(settings, topology), Unseen)
    assert await find_managers(replace(settings, standalone=True), topology) is None


async def test_the_slice_has_no_device_while_another_driver_has_the_gpus() -> None:
    async with NodeOfClaims(flags={"other-managers-timeout": "0.5s"}) as claims:
        await offered_by_us(claims, 4)
        uuid = claims.slice()["spec"]["devices"][0]["attributes"]["uuid"]  # type: ignore[index]
        other = {
            "metadata": {"name": "n1-gpu.nvidia.com"},
            "spec": {
                "driver": "gpu.nvidia.com",
                "nodeName": NODE,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0", "attributes": {"uuid": uuid}}],
            },
        }
        made = await claims.server.create("resourceslices", other)
        await offered_by_us(claims, 0)

        await claims.server.remove(Key("resourceslices", "", made["metadata"]["name"]))
        await offered_by_us(claims, 4)


async def offered_by_us(claims: NodeOfClaims, count: int) -> None:
    async def there() -> bool:
        slices = claims.server.objects.list("resourceslices")
        ours = (one for one in slices if one["spec"]["driver"] == "gpu.tencent.com")
        return sum(len(one["spec"].get("devices") or ()) for one in ours) == count

    await until(there)
