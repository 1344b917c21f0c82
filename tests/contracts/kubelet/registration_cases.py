"""Registration, and what becomes of devices whose plugin or kubelet goes."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from gpumanager.sim.kubelet.versions import EndpointKey
from tests.contracts.kubelet.fake_plugin import FakePlugin
from tests.contracts.kubelet.kubelet_stage import IDS, Stage, is_so, one
from tests.contracts.kubelet.kubelet_under_test import ALPHA


async def test_a_plugin_is_asked_for_its_options_before_register_returns_or_never(
    stage: Stage,
) -> None:
    await stage.alpha.stop()
    stage.alpha.calls.clear()
    await stage.alpha.start()

    await stage.alpha.register()

    assert [call for call, _ in stage.alpha.calls] == ["options"] * stage.version.dials_back


async def test_a_plugin_of_another_version_is_refused(stage: Stage) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="not supported by kubelet"):
        await stage.alpha.register(version="v1alpha")


async def test_a_resource_without_a_domain_is_refused(stage: Stage) -> None:
    wrong = FakePlugin(stage.kubelet.directory, "thing-gamma", ["x"])

    with pytest.raises(grpc.aio.AioRpcError, match="invalid"):
        await wrong.register()


async def test_unhealthy_devices_count_in_the_capacity_and_cannot_be_had(stage: Stage) -> None:
    stage.alpha.change({"a0", "a1"})

    await stage.offers(alpha=8)

    assert await stage.kubelet.capacity(ALPHA) == (10, 8)
    await stage.run(one("healthy", 8))
    assert set(stage.alpha.called("allocate")[0]) == set(IDS[ALPHA]) - {"a0", "a1"}


async def test_a_plugin_that_dies_leaves_capacity_and_nothing_to_be_had(stage: Stage) -> None:
    await stage.alpha.stop()

    await stage.offers(alpha=0)

    assert await stage.kubelet.capacity(ALPHA) == (10, 0)
    (outcome,) = await stage.run(one("late", 2))
    assert outcome.reason == "UnexpectedAdmissionError"
    assert ALPHA in outcome.message


async def test_a_restart_deletes_sockets_keeps_the_checkpoint_and_leaves_pods_alone(
    stage: Stage,
) -> None:
    (before,) = await stage.run(one("steady", 2))
    held = stage.checkpoint(before.uid)
    other = stage.kubelet.directory / "other-file"
    other.touch()
    calls = list(stage.alpha.calls)

    await stage.kubelet.restart()

    assert not (stage.kubelet.directory / "alpha.sock").exists()
    assert other.exists() != stage.version.clears_files
    other.unlink(missing_ok=True)
    assert stage.checkpoint(before.uid) == held
    await stage.register(stage.alpha, stage.beta)
    (after,) = await stage.run(one("next", 8))
    assert after.reason == ""
    new = stage.alpha.calls[len(calls) :]
    assert [set(ids) for call, ids in new if call == "allocate"] == [set(IDS[ALPHA]) - held[0].ids]


async def test_a_stream_that_ends_late_takes_with_it_who_registered_since_or_not(
    stage: Stage,
) -> None:
    taken = stage.version.endpoint_key is EndpointKey.RESOURCE
    async with another(stage) as later:
        await stage.alpha.stop()

        await stage.offers(alpha=0 if taken else 10)
        await stage.soon(lambda: is_so(later.watchers == (not taken)))
        if not taken:
            await stage.run(one("later", 2))
            assert len(later.called("allocate")) == 1


async def test_another_plugin_takes_the_place_of_one_that_ends_or_not(stage: Stage) -> None:
    """Only where each socket path is an endpoint of its own."""
    promoted = stage.version.endpoint_key is EndpointKey.PATH
    numbers = itertools.count()

    async def admitted() -> bool:
        (outcome,) = await stage.run(one(f"first-{next(numbers)}", 2))
        return outcome.reason == ""

    async with another(stage) as later:
        await later.stop()

        if promoted:
            await stage.soon(admitted)
        else:
            await stage.offers(alpha=0)
            assert not await admitted()
        assert len(stage.alpha.called("allocate")) == promoted


async def test_a_connected_path_is_refused_for_ever_or_taken_anew(stage: Stage) -> None:
    """Where it is refused, not even the end of the plugin is noticed any more.

    A resource of its own: no other case could register it again with this kubelet.
    """
    name = "contract.example/thing-gamma"
    gamma = FakePlugin(stage.kubelet.directory, name, ["g0", "g1"])
    await gamma.start()
    try:
        await gamma.register()
        await stage.soon(lambda: is_so(gamma.watchers == 1))
        if stage.version.endpoint_key is not EndpointKey.PATH:
            await gamma.register()
            return
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match="already connected"):
                await gamma.register()
        await gamma.stop()
        await gamma.start()
        with pytest.raises(grpc.aio.AioRpcError, match="already connected"):
            await gamma.register()

        async def looks_healthy() -> bool:
            return await stage.kubelet.capacity(name) == (2, 2)

        await stage.soon(looks_healthy)
    finally:
        await gamma.stop()


@asynccontextmanager
async def another(stage: Stage) -> AsyncIterator[FakePlugin]:
    """A second plugin of the first's resource, on a path of its own, registered and watched."""
    later = FakePlugin(stage.kubelet.directory, ALPHA, IDS[ALPHA])
    later.endpoint = "later.sock"
    await later.start()
    try:
        await later.register()
        await stage.soon(lambda: is_so(later.watchers == 1))
        yield later
    finally:
        await later.stop()
