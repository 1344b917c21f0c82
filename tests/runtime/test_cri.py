"""The client of the container runtime: on the simulated one and, where there is one, containerd."""

import asyncio
import contextlib
import os
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from gpumanager.ids import ContainerID, PodUID
from gpumanager.runtime import wire
from gpumanager.runtime.api import runtime_v1_pb2 as pb
from gpumanager.runtime.cgroup import CgroupFiles, identify, read_places
from gpumanager.runtime.cri import ContainerRuntime, RuntimeUnavailable
from gpumanager.runtime.status import Bind, Container, LiveContainer
from gpumanager.sim.container_runtime import SimulatedRuntime
from tests.runtime import containerd_world
from tests.runtime import runtime_contract as contract
from tests.runtime.containerd_world import ContainerdWorld

MOUNTS = (Bind("/etc", "/etc/vcuda"),)
BOUND = 120.0
"""Seconds after which a call is stuck."""


@dataclass(frozen=True, slots=True)
class World:
    """A container runtime, a client of it, and how containers are started and ended there."""

    runtime: ContainerRuntime
    start: Callable[[], Awaitable[LiveContainer]]
    end: Callable[[ContainerID], Awaitable[None]]


async def start_simulated(simulated: SimulatedRuntime) -> LiveContainer:
    """One run in a pod of its own, with this process in it."""
    live = simulated.started(
        LiveContainer(
            Container(ContainerID(""), PodUID(str(uuid.uuid4())), "lab", "trainer", "main"),
            os.getpid(),
            mounts=MOUNTS,
            devices=(Bind("/dev/null", "/dev/nvidia0"),),
            envs={"VCUDA_ALLOCATION": "n0nce"},
            annotations={"tencent.com/vcuda-core": "30"},
        )
    )
    return replace(live, pid=0)


@contextlib.asynccontextmanager
async def simulated_world(directory: Path) -> AsyncIterator[World]:
    simulated = SimulatedRuntime(directory / "cri.sock")

    async def end(name: ContainerID) -> None:
        simulated.ended(name)

    async with serving(simulated), asking(simulated.socket) as runtime:
        yield World(runtime, lambda: start_simulated(simulated), end)


@contextlib.asynccontextmanager
async def containerd_in_a_box(_: Path) -> AsyncIterator[World]:
    if reason := containerd_world.missing():
        pytest.skip(reason)
    async with ContainerdWorld() as box, asking(box.socket) as runtime:
        start = lambda: box.run("/kubepods/burstable/pod{uid}", mounts=MOUNTS)  # noqa: E731
        yield World(runtime, start, box.end)


@contextlib.asynccontextmanager
async def serving(simulated: SimulatedRuntime) -> AsyncIterator[None]:
    await simulated.start()
    try:
        yield
    finally:
        await simulated.stop()


@contextlib.asynccontextmanager
async def asking(*sockets: Path, deadline: float = BOUND) -> AsyncIterator[ContainerRuntime]:
    runtime = ContainerRuntime(sockets, deadline)
    try:
        yield runtime
    finally:
        await runtime.close()


@pytest.fixture(
    params=[
        pytest.param(simulated_world, id="simulated"),
        pytest.param(containerd_in_a_box, id="containerd", marks=pytest.mark.containerd),
    ]
)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with request.param(tmp_path) as made:
        yield made


async def test_a_runtime_tells_of_its_containers_what_recovery_needs(world: World) -> None:
    await contract.it_says_who_it_is(world.runtime)
    await contract.it_knows_nothing_of_an_unknown_one(world.runtime)
    first, second = await world.start(), await world.start()

    await contract.it_tells_what_a_container_was_started_with(world.runtime, first)
    await contract.it_tells_what_a_container_was_started_with(world.runtime, second)
    await contract.its_pid_is_a_process_that_lives(world.runtime, first.container.container_id)

    await world.end(first.container.container_id)
    await contract.it_does_not_list_one_that_has_ended(world.runtime, first.container.container_id)
    assert await world.runtime.containers() == (second.container,)


@pytest.mark.containerd
async def test_a_real_container_s_cgroup_names_its_pod_and_its_id(tmp_path: Path) -> None:
    files = CgroupFiles.here()
    async with containerd_in_a_box(tmp_path) as world:
        container = (await world.start()).container
        live = await world.runtime.status(container.container_id)
        assert live is not None

        found = identify(read_places(live.pid), files.around)
        assert found is not None
        assert (found.pod_uid, found.container_id) == (container.pod_uid, container.container_id)
        assert live.pid in files.processes(found)


# Versions of CRI, restarts, sockets without a runtime behind them.


@pytest.mark.parametrize(
    ("services", "asked"),
    [([wire.V1ALPHA2], "v1alpha2"), ([wire.V1ALPHA2, wire.V1], "v1")],
    ids=["before v1", "both"],
)
async def test_a_runtime_is_asked_in_the_latest_version_that_it_speaks(
    tmp_path: Path, services: list[str], asked: str
) -> None:
    simulated = SimulatedRuntime(tmp_path / "s", services=services)
    async with serving(simulated), asking(simulated.socket) as runtime:
        expected = await start_simulated(simulated)

        assert (await runtime.version()).cri == asked
        await contract.it_tells_what_a_container_was_started_with(runtime, expected)


async def test_a_runtime_may_be_upgraded_while_the_agent_runs(tmp_path: Path) -> None:
    async with asking(tmp_path / "s") as runtime:
        async with serving(SimulatedRuntime(tmp_path / "s", services=[wire.V1ALPHA2])):
            assert (await runtime.version()).cri == "v1alpha2"
        with pytest.raises(RuntimeUnavailable):
            await runtime.version()
        async with serving(SimulatedRuntime(tmp_path / "s", services=[wire.V1])):
            assert (await answered(runtime)) == "v1"


async def answered(runtime: ContainerRuntime) -> str:
    """The version of CRI, once the runtime that has come back is noticed."""
    async with asyncio.timeout(BOUND):
        while True:
            with contextlib.suppress(RuntimeUnavailable):
                return (await runtime.version()).cri
            await asyncio.sleep(0.05)


async def test_what_a_dead_runtime_left_behind_is_passed_over(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "stale"))
    simulated = SimulatedRuntime(tmp_path / "s")
    sockets = (tmp_path / "absent", tmp_path / "stale", simulated.socket)
    async with serving(simulated), asking(*sockets) as runtime:
        assert (await runtime.version()).socket == simulated.socket


async def test_docker_s_own_socket_is_passed_over(tmp_path: Path) -> None:
    async def http_only(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    docker = await asyncio.start_unix_server(http_only, tmp_path / "docker.sock")
    simulated = SimulatedRuntime(tmp_path / "s")
    sockets = (tmp_path / "docker.sock", simulated.socket)
    async with docker, serving(simulated), asking(*sockets) as runtime:
        assert (await runtime.version()).socket == simulated.socket


async def test_the_runtime_that_has_answered_is_not_replaced_by_another_of_the_node(
    tmp_path: Path,
) -> None:
    """An empty list from a runtime that has no pods would look as if all had ended."""
    ours, other = SimulatedRuntime(tmp_path / "a"), SimulatedRuntime(tmp_path / "b")
    async with serving(other), asking(ours.socket, other.socket) as runtime:
        async with serving(ours):
            await runtime.version()
        ours.socket.touch()  # the server removes it; a killed one does not

        with pytest.raises(RuntimeUnavailable, match=str(ours.socket)):
            await runtime.containers()


async def test_nobody_there_is_said_with_where_was_looked(tmp_path: Path) -> None:
    async with asking(tmp_path / "none.sock") as runtime:
        with pytest.raises(RuntimeUnavailable) as error:
            await runtime.list()

    assert f"{tmp_path}/none.sock: no such socket" in str(error.value)
    assert "--container-runtime-endpoint" in str(error.value)


class Odd(SimulatedRuntime):
    """Answers Version after a while, or with an error."""

    def __init__(self, path: Path, *, hangs: bool = False) -> None:
        super().__init__(path)
        self._hangs = hangs

    async def version(self, request: pb.VersionRequest, context: Any) -> pb.VersionResponse:
        if self._hangs:
            await asyncio.Event().wait()
        await context.abort(grpc.StatusCode.INTERNAL, "the disk is gone")
        raise AssertionError("abort raises")


async def test_a_runtime_that_hangs_is_left_at_the_deadline(tmp_path: Path) -> None:
    odd = Odd(tmp_path / "s", hangs=True)
    async with serving(odd), asking(odd.socket, deadline=0.1) as runtime:
        with pytest.raises(RuntimeUnavailable, match=r"no answer within 0\.1 s"):
            await runtime.version()


async def test_a_runtime_s_own_error_is_passed_on(tmp_path: Path) -> None:
    odd = Odd(tmp_path / "s")
    async with serving(odd), asking(odd.socket) as runtime:
        with pytest.raises(RuntimeUnavailable, match="the disk is gone"):
            await runtime.version()


async def test_a_socket_of_another_service_speaks_no_cri(tmp_path: Path) -> None:
    other = SimulatedRuntime(tmp_path / "s", services=["v1.PodResourcesLister"])
    async with serving(other), asking(other.socket) as runtime:
        with pytest.raises(RuntimeUnavailable, match="neither CRI v1 nor v1alpha2"):
            await runtime.version()


async def test_at_the_start_one_line_says_who_answers_or_that_nobody_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    simulated = SimulatedRuntime(tmp_path / "s")
    async with asking(simulated.socket) as runtime:
        await runtime.log_version()
        async with serving(simulated):
            await runtime.log_version()

    first, second = [row.getMessage() for row in caplog.records if row.name.startswith("gpum")]
    assert first.startswith("no container runtime answers")
    assert second == f"container runtime: containerd 2.1.9 (CRI v1) at {simulated.socket}"
