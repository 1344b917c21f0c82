"""A node in a box, with the real agent: what its containers get, and crashes."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from gpumanager.gpu.values import Gpu
from gpumanager.grants.journal_file import FILE_NAME, JournalFile
from gpumanager.kube.pod import ContainerKind
from gpumanager.limits.pages.books import read_usage
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim import events
from gpumanager.sim.agent import AgentDied
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.results import ContainerResult
from gpumanager.units import GIB, MIB
from tests.sim.host_watch import HostWatch
from tests.waiting import until

pytestmark = pytest.mark.namespaces


CONTEXT = 104 * MIB
"""What the driver takes for one on these GPUs."""


class Watched:
    """A node, and everything that happened on it."""

    def __init__(self) -> None:
        self.seen: list[events.Event] = []
        self.node = SimulatedNode(load_machine("t4x4"), on_event=self.seen.append)

    @property
    def lines(self) -> list[str]:
        return [one.line for one in self.seen if isinstance(one, events.ContainerPrinted)]

    def printed(self, words: str) -> bool:
        return any(words in line for line in self.lines)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    watched = Watched()
    async with watched.node:
        yield watched


@pytest.fixture
def node(watched: Watched) -> SimulatedNode:
    return watched.node


def container(
    *command: str, cores: int = 30, blocks: int = 4, name: str = "main"
) -> ContainerManifest:
    asks = {key: value for key, value in ((VCORE, cores), (VMEMORY, blocks)) if value}
    return ContainerManifest(name, ContainerKind.APP, command, asks=asks)


def pod(*containers: ContainerManifest, name: str = "pod") -> Pod:
    return Pod("default", name, containers)


class Ran(NamedTuple):
    """Several pods that ran on one node: their containers by name, and what they printed."""

    results: Mapping[str, ContainerResult]
    printed: Sequence[str]


@pytest.fixture(scope="module")
def ran() -> Ran:
    script = "trap 'echo told; exit 0' TERM; echo beside; sleep 60 & wait"
    compat = (("LD_LIBRARY_PATH", "/usr/local/cuda/compat"),)
    fill = ("cuda-play", "allocate", "--block", "100MiB", "--until-refused")
    fetch = ContainerManifest("fetch", ContainerKind.INIT, ("sh", "-c", "exit 3"))
    sidecar = ContainerManifest("log", ContainerKind.SIDECAR, ("sh", "-c", script))
    pods = [
        pod(container(*fill, name="fill"), name="first"),
        pod(container("sh", "-c", "ls /dev/nvidia* || exit 7", cores=0, blocks=0, name="plain")),
        pod(container("cuda-play", "query", cores=200, blocks=0, name="whole"), name="whole"),
        pod(replace(container("cuda-play", "query", name="own"), environment=compat), name="own"),
        pod(fetch, container("true", cores=0, blocks=0, name="later"), name="failing"),
        pod(sidecar, container("sleep", "0.5", cores=0, blocks=0, name="app"), name="beside"),
    ]

    async def run() -> Ran:
        watched = Watched()
        async with watched.node as node:
            results = {one.container.name: one for one in await node.run(pods)}
        return Ran(results, watched.lines)

    return asyncio.run(run())


def test_a_pod_gets_what_it_asked_for_and_no_byte_more(ran: Ran) -> None:
    result = ran.results["fill"]

    assert (result.exit_code, result.refused) == (0, None)
    assert result.memory_limit == GIB
    assert result.measured.memory_peak == CONTEXT + 900 * MIB
    assert result.measured.memory_denied > 0
    assert len(result.gpus) == 1
    assert result.why == "a free GPU, since no GPU in use had room"


def test_a_container_without_gpus_sees_none(ran: Ran) -> None:
    result = ran.results["plain"]

    assert (result.exit_code, result.gpus, result.share_target) == (7, (), None)


def test_a_container_sees_only_its_gpus(ran: Ran) -> None:
    assert any("2 devices" in line for line in ran.printed)


def test_where_an_image_has_its_own_libcuda_there_is_the_shim(ran: Ran) -> None:
    assert ran.results["own"].exit_code == 0
    assert any("MiB free of 1 GiB" in line for line in ran.printed)


def test_an_init_container_that_fails_keeps_the_others_from_running(ran: Ran) -> None:
    fetch, later = ran.results["fetch"], ran.results["later"]

    assert fetch.exit_code == 3
    assert (later.exit_code, later.refused) == (None, "init container fetch failed: exit 3")


def test_a_sidecar_runs_beside_the_apps_and_ends_after_them(ran: Ran) -> None:
    assert (ran.results["log"].exit_code, ran.results["app"].exit_code) == (0, 0)
    assert {"beside", "told"} <= {*ran.printed}


async def test_the_simulated_gpus_own_books_agree_with_the_shims(watched: Watched) -> None:
    hold = container("cuda-play", "hold", "--memory", "300MiB", "--seconds", "600")
    one = pod(hold)
    await watched.node.admit(one)
    running = asyncio.create_task(watched.node.runner.run(one))
    await until(lambda: watched.printed("holding"))

    (directory,) = (watched.node.disk.virtual / "alloc").glob("[!.]*")
    (device,) = read_usage(directory).devices
    (account,) = watched.node.gpus.tenants()

    assert device.held == CONTEXT + 300 * MIB
    assert sum(row.bytes_now for row in account.devices.values()) == device.held
    await _end(watched, running)


async def test_memory_of_a_killed_process_is_there_again_within_a_second(
    watched: Watched,
) -> None:
    script = "cuda-play hold --memory 900MiB --seconds 600 & echo child $!; wait; sleep 600"
    one = pod(container("sh", "-c", script))
    await watched.node.admit(one)
    running = asyncio.create_task(watched.node.runner.run(one))
    await until(lambda: watched.printed("holding"))
    (occupant,) = watched.node.gpus.processes()
    (directory,) = (watched.node.disk.virtual / "alloc").glob("[!.]*")

    os.kill(occupant.pid, signal.SIGKILL)

    await until(lambda: read_usage(directory).devices[0].held == 0, seconds=1)
    await until(lambda: watched.node.gpus.device_bytes(occupant.gpu) == 0, seconds=1)
    await _end(watched, running)


async def test_a_restarted_agent_finds_every_grant_and_containers_stay_limited(
    watched: Watched,
) -> None:
    node = watched.node
    one = pod(container("cuda-play", "allocate", "--block", "230MiB", "--until-refused"))
    await node.admit(one)
    options = await node.kubelet.prepare(one, one.containers[0])
    before = JournalFile(node.disk.checkpoint / FILE_NAME).load()

    await node.kill_agent()
    await node.start_agent()

    after = JournalFile(node.disk.checkpoint / FILE_NAME).load()
    assert after.live() == before.live()
    assert options.environment["VCUDA_ALLOCATION"] in {row.id for row in after.live()}
    held = [row for row in node.kubelet.books.holdings if row.resource == VCORE]
    await node.admit(other := pod(container("true"), name="other"))
    mine = [row for row in node.kubelet.books.holdings if row.pod_uid == other.uid]
    assert not mine[0].ids & held[0].ids
    (result,) = await node.runner.run(one)
    assert result.exit_code == 0
    assert result.measured.memory_peak == GIB == CONTEXT + 4 * 230 * MIB


async def test_a_container_stays_limited_while_the_agent_is_gone(watched: Watched) -> None:
    node = watched.node
    command = ("cuda-play", "launch", "--kernel", "2ms", "--seconds", "2", "--memory", "900MiB")
    one = pod(container(*command))
    await node.admit(one)
    running = asyncio.create_task(node.runner.run(one))
    await until(lambda: watched.printed("holding"))

    with HostWatch() as host:
        await node.kill_agent()
        (result,) = await running

    assert result.exit_code == 0
    assert result.measured.share is not None
    # 100 without a limit. A quiet machine shows some 37: 150 ms were saved, in 2 s. The exact
    # figures are the virtual clock's (tests/sim/harness/test_shares.py).
    assert result.measured.share < 50
    host.expect(result.measured, holds=result.measured.share > 30 - 5)
    await node.start_agent()


async def test_an_agent_that_dies_ends_the_simulation_with_its_last_words(
    watched: Watched,
) -> None:
    node = watched.node
    working = asyncio.create_task(node.run([pod(container("sleep", "600"))]))
    await until(lambda: any(isinstance(one, events.ContainerStarted) for one in watched.seen))
    agent = node.agent.pid

    os.kill(agent, signal.SIGKILL)

    with pytest.raises(AgentDied, match=r"ended with status -9.*registered"):
        await asyncio.wait_for(working, 120)


async def test_many_pods_at_once_never_get_more_than_there_is(node: SimulatedNode) -> None:
    pods = [
        pod(container("cuda-play", "query", cores=45, blocks=8), name=f"p{number}")
        for number in range(11)
    ]
    rejections = [await node.admit(one) for one in pods]

    refused = [one for one in rejections if one is not None]
    assert len(refused) == 3
    live = JournalFile(node.disk.checkpoint / FILE_NAME).load().live()
    per_gpu = [sum(row.cores for row in live if gpu.uuid in row.gpus) for gpu in _gpus(node)]
    assert all(cores <= 100 for cores in per_gpu)


async def test_the_seed_decides_what_the_kubelet_may_choose_freely() -> None:
    first = await _names_of_devices(seed=3)

    assert await _names_of_devices(seed=3) == first


async def _names_of_devices(seed: int) -> list[frozenset[str]]:
    async with SimulatedNode(load_machine("single"), seed=seed) as node:
        await node.admit(pod(container("true")))
        return [row.ids for row in node.kubelet.books.holdings]


async def _end(watched: Watched, running: asyncio.Task[tuple[ContainerResult, ...]]) -> None:
    """End what runs on the node; its pod ends with it."""
    for occupant in watched.node.gpus.processes():
        os.kill(occupant.pid, signal.SIGKILL)
    watched.node.kill_containers()
    await asyncio.wait((running,), timeout=600)


def _gpus(node: SimulatedNode) -> tuple[Gpu, ...]:
    return node.machine.topology.gpus
