"""The DRA plugin on its sockets, as a kubelet finds and calls it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpumanager.dra import plugin as plugin_module
from gpumanager.dra import wire
from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.api import drahealth_v1_pb2 as health_pb
from gpumanager.dra.api import pluginregistration_v1_pb2 as registration_pb
from gpumanager.dra.health import HealthService
from gpumanager.dra.plugin import CannotListen, ClaimPlugin, NotRegistered, PluginSockets
from gpumanager.gpu.values import GpuUUID
from gpumanager.kube.claims import device_name
from tests.dra.claim_node import ClaimNode

LONG = 30.0
"""Seconds within which a machine that is busy gets round to anything."""


@pytest.fixture
async def node(tmp_path: Path) -> ClaimNode:
    found = ClaimNode(tmp_path)
    await found.restart()
    return found


def made(node: ClaimNode, tmp_path: Path, instance: str = "a") -> ClaimPlugin:
    health = HealthService(node.driver.node, "n1", lambda _: "Xid 79", clock=lambda: 1_000.0)
    sockets = PluginSockets.under(tmp_path / "p", tmp_path / "r", instance)
    return ClaimPlugin(node.driver, health, sockets)


@pytest.fixture
async def plugin(
    node: ClaimNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ClaimPlugin]:
    monkeypatch.setattr(plugin_module, "LOOK_SECONDS", 0.01)
    found = made(node, tmp_path)
    await found.start()
    await found.served(LONG)
    yield found
    await found.stop()


def request(*names: str) -> pb.NodePrepareResourcesRequest:
    return pb.NodePrepareResourcesRequest(
        claims=[pb.Claim(namespace="default", name=one, uid=f"uid-{one}") for one in names]
    )


async def test_a_kubelet_finds_the_plugin_and_is_told_every_version(plugin: ClaimPlugin) -> None:
    async with wire.dial(plugin.sockets.registration) as channel:
        info = await wire.DRAPluginClient(channel).get_info(LONG)

    assert (info.type, info.name) == ("DRAPlugin", "gpu.tencent.com")
    assert info.endpoint == str(plugin.sockets.service)
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]


async def test_it_is_registered_when_the_kubelet_says_so(plugin: ClaimPlugin) -> None:
    async with wire.dial(plugin.sockets.registration) as channel:
        client = wire.DRAPluginClient(channel)
        refusal = registration_pb.RegistrationStatus(error="no such version")
        await client.notify(refusal, LONG)
        with pytest.raises(NotRegistered, match="no such version"):
            await plugin.registered(0)
        await client.notify(registration_pb.RegistrationStatus(plugin_registered=True), LONG)

    await plugin.registered(LONG)
    (standing,) = plugin.standings
    assert (standing.resource, standing.registered) == ("gpu.tencent.com", True)


async def test_every_claim_of_a_call_has_its_own_answer(
    node: ClaimNode, plugin: ClaimPlugin
) -> None:
    node.claim("a", node.share(0, 70))
    node.claim("b", node.share(0, 70))

    async with wire.dial(plugin.sockets.service) as channel:
        client = wire.DRAPluginClient(channel)
        answer = await client.prepare(request("a", "b", "gone"), LONG)
        gone = pb.NodeUnprepareResourcesRequest(claims=request("a", "gone").claims)
        ended = [
            await wire.DRAPluginClient(channel, version).unprepare(gone, LONG)
            for version in wire.PLUGIN_SERVICES
        ]

    (device,) = answer.claims["uid-a"].devices
    assert list(device.request_names) == ["gpu"]
    assert device.share_id == f"share-{node.device(0)}-gpu"
    assert "70 cores" in answer.claims["uid-b"].error
    assert "is gone" in answer.claims["uid-gone"].error
    assert [{uid: one.error for uid, one in each.claims.items()} for each in ended] == [
        {"uid-a": "", "uid-gone": ""}
    ] * len(wire.PLUGIN_SERVICES)
    assert node.left() == (set(), set(), set())


async def test_an_error_without_a_text_is_an_error_too(
    node: ClaimNode, plugin: ClaimPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(node.api, "claim", late)

    async with wire.dial(plugin.sockets.service) as channel:
        answer = await wire.DRAPluginClient(channel).prepare(request("a"), LONG)

    assert answer.claims["uid-a"].error == "TimeoutError"


async def test_the_answer_is_the_same_to_the_byte(node: ClaimNode, plugin: ClaimPlugin) -> None:
    shares = (node.share(0, 30, request="one"), node.share(1, 60, request="two"))
    node.claim("a", *shares)

    async with wire.dial(plugin.sockets.service) as channel:
        answers = [
            await wire.DRAPluginClient(channel, version).prepare(request("a"), LONG)
            for version in (*wire.PLUGIN_SERVICES, *wire.PLUGIN_SERVICES)
        ]

    assert len({one.SerializeToString(deterministic=True) for one in answers}) == 1


@pytest.mark.parametrize("version", wire.HEALTH_SERVICES)
async def test_health_is_complete_and_told_again_when_it_changes(
    node: ClaimNode, plugin: ClaimPlugin, version: str
) -> None:
    async with wire.dial(plugin.sockets.service) as channel, asyncio.timeout(LONG):
        reports = wire.DRAPluginClient(channel, health=version).watch()
        first = await anext(reports)
        node.driver.node.mark_unhealthy([node.topology.gpus[1].uuid])
        await plugin.refresh()
        second = await anext(reports)

    assert [one.health for one in first.devices] == [health_pb.HEALTHY, health_pb.HEALTHY]
    assert [one.health for one in second.devices] == [health_pb.HEALTHY, health_pb.UNHEALTHY]
    assert second.devices[1].message == "Xid 79"
    assert second.devices[1].device.device_name == node.device(1)
    assert second.devices[1].last_updated_time == 1_000


async def test_a_gpu_that_is_missing_since_the_start_is_told_to_be_unhealthy(
    node: ClaimNode, plugin: ClaimPlugin
) -> None:
    """Containers hold it; the status of their pods would say Unknown, and not why."""
    missing = GpuUUID("GPU-gone")
    node.driver.node.mark_unhealthy([missing])

    async with wire.dial(plugin.sockets.service) as channel, asyncio.timeout(LONG):
        report = await anext(wire.DRAPluginClient(channel).watch())

    (told,) = (one for one in report.devices if one.device.device_name == device_name(missing))
    assert (told.health, told.message) == (health_pb.UNHEALTHY, "Xid 79")
    assert len(report.devices) == len(node.topology.gpus) + 1


async def test_two_instances_serve_beside_each_other(
    node: ClaimNode, plugin: ClaimPlugin, tmp_path: Path
) -> None:
    """The kubelet asks the newer one; the end of the older takes nothing of it away."""
    newer = made(node, tmp_path, "b")
    await newer.start()
    await newer.served(LONG)
    node.claim("a", node.share(0, 70))

    await plugin.stop()

    assert not plugin.sockets.exist()
    async with wire.dial(newer.sockets.service) as channel:
        answer = await wire.DRAPluginClient(channel).prepare(request("a"), LONG)
    assert answer.claims["uid-a"].error == ""
    await newer.stop()


async def test_sockets_of_a_dead_instance_are_removed_and_those_of_others_stay(
    node: ClaimNode, tmp_path: Path
) -> None:
    dead = PluginSockets.under(tmp_path / "p", tmp_path / "r", "dead")
    theirs = tmp_path / "r" / "csi.example.com-reg.sock"
    for path in (dead.service, dead.registration, theirs):
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
            listener.bind(str(path))
    plugin = made(node, tmp_path)

    await plugin.start()
    await plugin.served(LONG)

    assert not dead.service.exists()
    assert not dead.registration.exists()
    assert theirs.exists()
    await plugin.stop()


async def test_a_socket_that_somebody_removes_is_made_anew(plugin: ClaimPlugin) -> None:
    plugin.listening.clear()
    plugin.register_anew()

    await plugin.served(LONG)

    assert plugin.sockets.exist()


async def test_no_kubelet_finds_the_plugin_while_something_hinders_it(
    node: ClaimNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_module, "OBSTACLE_SECONDS", 0.001)
    obstacles = ["containerd 1.6.20 knows nothing of CDI devices"] * 3
    plugin = made(node, tmp_path)
    seen = []

    async def obstacle() -> str:
        seen.append((plugin.sockets.exist(), plugin.standings[0].failure))
        return obstacles.pop() if obstacles else ""

    plugin._obstacle = obstacle

    await plugin.start()
    await plugin.served(LONG)

    assert [there for there, _ in seen] == [False] * 4
    assert seen[-1][1] == "containerd 1.6.20 knows nothing of CDI devices"
    assert plugin.standings[0].failure is None
    await plugin.stop()


async def test_no_kubelet_finds_the_plugin_after_the_runtime_has_lost_cdi(
    node: ClaimNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_module, "OBSTACLE_SECONDS", 0.001)
    monkeypatch.setattr(plugin_module, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(plugin_module, "LOOKS_PER_OBSTACLE_CHECK", 2)
    lost = "containerd 2.1.9 does not inject CDI devices as it is configured"
    answers = iter(["", "the runtime does not answer", "", lost, lost, lost, ""])
    plugin, seen = made(node, tmp_path), []
    back, offered = asyncio.Event(), list[bool]()
    node.driver.node.subscribe(lambda: offered.append(not plugin.hindered))

    async def obstacle() -> str:
        seen.append((plugin.sockets.exist(), plugin.standings[0].failure))
        if (answer := next(answers, None)) is None:
            back.set()
        return answer or ""

    plugin._obstacle = obstacle

    await plugin.start()
    await asyncio.wait_for(back.wait(), LONG)

    assert [there for there, _ in seen] == [False, True, True, True, True, False, False, True]
    assert seen[6][1] == lost
    assert offered == [False, True]
    assert plugin.standings[0].failure is None
    await plugin.stop()


async def test_a_socket_that_no_system_has_is_said_at_the_start(
    node: ClaimNode, tmp_path: Path
) -> None:
    with pytest.raises(CannotListen, match="107 bytes"):
        await made(node, tmp_path / ("x" * 100)).start()
