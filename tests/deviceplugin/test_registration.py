"""Staying registered: kubelets that come late, start again, refuse, forget; directories that go."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpumanager.deviceplugin import registration, wire
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.deviceplugin.registration import RegistrationFailed
from gpumanager.deviceplugin.server import CannotServe
from gpumanager.grpc_wire import PluginStanding
from gpumanager.names import VCORE, VMEMORY
from tests.deviceplugin.plugin_node import BOUND, Kubelet, RefusingKubelet, new_allocator

BOTH = {VCORE, VMEMORY}
NEVER = 3600.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet of these tests does not watch, and a busy machine may need long for one."""
    monkeypatch.setattr(registration, "NEVER_WATCHED", NEVER)
    monkeypatch.setattr(registration, "LOOK_SECONDS", 0.01)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "kubelet"
    path.mkdir()
    return path


@pytest.fixture
async def kubelet(directory: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(directory)
    yield kubelet
    await kubelet.stop()


@pytest.fixture
async def plugin(tmp_path: Path, directory: Path) -> AsyncIterator[DevicePlugin]:
    plugin = DevicePlugin(new_allocator(tmp_path), directory, deadline=BOUND)
    yield plugin
    await plugin.stop()


async def test_a_kubelet_that_comes_later_is_registered_with(
    kubelet: Kubelet, plugin: DevicePlugin
) -> None:
    await plugin.start()
    assert [one.registered for one in plugin.standings] == [False, False]

    await kubelet.start()

    assert set(await kubelet.registered()) == BOTH
    await plugin.registered(BOUND)
    assert [one.registered for one in plugin.standings] == [True, True]


async def test_a_directory_that_comes_later_is_waited_for(
    kubelet: Kubelet, plugin: DevicePlugin, directory: Path
) -> None:
    directory.rmdir()  # noqa: ASYNC240
    await plugin.start()
    with pytest.raises(RegistrationFailed, match="no kubelet within"):
        await plugin.registered(0.05)

    directory.mkdir()  # noqa: ASYNC240
    await kubelet.start()

    assert set(await kubelet.registered()) == BOTH


async def test_a_restarted_kubelet_is_registered_with_again(
    kubelet: Kubelet, plugin: DevicePlugin
) -> None:
    await kubelet.start()
    await plugin.start()
    before = await kubelet.registered()

    await kubelet.stop()
    await kubelet.start()

    after = await kubelet.registered()
    assert set(after) == BOTH
    assert not set(after.values()) & set(before.values())
    async with kubelet.dial("vcore.sock") as channel:
        devices = await anext(wire.DevicePluginClient(channel).list_and_watch())
    assert len(devices.devices) == 100


async def test_a_directory_made_anew_is_registered_in(
    kubelet: Kubelet, plugin: DevicePlugin, directory: Path
) -> None:
    await kubelet.start()
    await plugin.start()
    await kubelet.registered()

    await kubelet.stop()
    directory.rename(directory.with_name("old"))  # noqa: ASYNC240
    directory.mkdir()  # noqa: ASYNC240
    await kubelet.start()

    assert set(await kubelet.registered()) == BOTH


async def test_a_removed_socket_of_ours_is_made_again_and_the_other_left_alone(
    kubelet: Kubelet, plugin: DevicePlugin, directory: Path
) -> None:
    await kubelet.start()
    await plugin.start()
    endpoints = await kubelet.registered()
    await plugin.registered(BOUND)
    other = (directory / endpoints[VCORE]).stat()

    (directory / endpoints[VMEMORY]).unlink()

    async with asyncio.timeout(BOUND):
        again = await kubelet.requests.get()
    assert again.resource_name == VMEMORY
    assert again.endpoint != endpoints[VMEMORY]
    assert (directory / again.endpoint).is_socket()
    assert (directory / endpoints[VCORE]).stat() == other


async def test_asked_to_it_registers_again(kubelet: Kubelet, plugin: DevicePlugin) -> None:
    await kubelet.start()
    await plugin.start()
    before = await kubelet.registered()
    await plugin.registered(BOUND)

    plugin.register_anew()

    after = await kubelet.registered()
    assert set(after) == BOTH
    assert not set(after.values()) & set(before.values())


async def test_a_resource_that_is_refused_keeps_no_other_from_registering(
    directory: Path, plugin: DevicePlugin
) -> None:
    kubelet = RefusingKubelet(directory, {VCORE})
    await kubelet.start()
    try:
        await plugin.start()
        async with asyncio.timeout(BOUND):
            assert (await kubelet.requests.get()).resource_name == VMEMORY
        vcore = await refused(plugin, VCORE)
        assert (vcore.served, vcore.registered) == (True, False)
        with pytest.raises(RegistrationFailed):
            await plugin.registered(0.1)

        kubelet.refused.clear()

        async with asyncio.timeout(BOUND):
            assert (await kubelet.requests.get()).resource_name == VCORE
        assert len(set(kubelet.endpoints)) == len(kubelet.endpoints) > 2
        await plugin.registered(BOUND)
        assert [one.failure for one in plugin.standings] == [None, None]
    finally:
        await kubelet.stop()


async def refused(plugin: DevicePlugin, resource: str) -> PluginStanding:
    """As it stands between two attempts."""
    async with asyncio.timeout(BOUND):
        while True:
            (found,) = (one for one in plugin.standings if one.resource == resource)
            if f"{resource} is invalid" in (found.failure or ""):
                return found
            await asyncio.sleep(0.01)


async def test_a_kubelet_that_stops_watching_is_registered_with_again(
    kubelet: Kubelet, plugin: DevicePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so to a plugin whose former stream ends after it has registered again."""
    monkeypatch.setattr(registration, "UNWATCHED", 0.05)
    await kubelet.start()
    await plugin.start()
    await kubelet.registered()
    async with kubelet.dial("vmemory.sock") as channel:
        await anext(wire.DevicePluginClient(channel).list_and_watch())

    async with asyncio.timeout(BOUND):
        again = await kubelet.requests.get()

    assert again.resource_name == VMEMORY


async def test_a_kubelet_that_never_comes_to_watch_is_registered_with_again(
    kubelet: Kubelet, plugin: DevicePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubelets of 1.20 answer before they dial, and say nothing when they cannot."""
    monkeypatch.setattr(registration, "NEVER_WATCHED", 0.05)
    await kubelet.start()
    await plugin.start()

    times = Counter[str]()
    async with asyncio.timeout(BOUND):
        while any(times[resource] < 2 for resource in BOTH):
            times[(await kubelet.requests.get()).resource_name] += 1


async def test_a_socket_that_cannot_be_made_is_told_after_the_time_to_wait(
    plugin: DevicePlugin, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "0bad")
    (directory / "vcore-0bad.sock").mkdir()
    await plugin.start()

    with pytest.raises(CannotServe, match=r"vcore-0bad\.sock: cannot listen"):
        await plugin.served(0.2)


async def test_a_directory_that_is_not_there_is_no_reason_to_give_up(
    plugin: DevicePlugin, directory: Path
) -> None:
    directory.rmdir()  # noqa: ASYNC240
    await plugin.start()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await plugin.served(0.01)
