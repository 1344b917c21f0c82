"""The real agent on a simulated node, as Prometheus, probes and a cheating program see it."""

import asyncio
import contextlib
import json
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from gpu_faults import SimulatedFaults
from prometheus_client.parser import text_string_to_metric_families as parse

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim import events
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.results import ContainerResult
from gpumanager.units import GIB
from tests.waiting import until

pytestmark = pytest.mark.namespaces

OK = 200
CHEAT = (sys.executable, str(Path(__file__).with_name("behind_the_shim.py")))
HOLD = ("cuda-play", "hold", "--memory", "300MiB", "--seconds", "600")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def pod(*command: str, cores: int = 30, blocks: int = 4, name: str = "pod") -> Pod:
    asks = {key: value for key, value in ((VCORE, cores), (VMEMORY, blocks)) if value}
    return Pod("team", name, (ContainerManifest("main", ContainerKind.APP, command, asks=asks),))


class Watched:
    """A node whose agent serves on a port, and what its containers print."""

    def __init__(self, **flags: object) -> None:
        self.port = free_port()
        self.printed: list[str] = []
        self.running: list[asyncio.Task[tuple[ContainerResult, ...]]] = []
        given = {"query-port": self.port, "sample-period": "0.1", **flags}
        self.node = SimulatedNode(load_machine("t4x4"), on_event=self._heard, agent_flags=given)

    def _heard(self, event: events.Event) -> None:
        if isinstance(event, events.ContainerPrinted):
            self.printed.append(event.line)

    async def start(self, one: Pod) -> asyncio.Task[tuple[ContainerResult, ...]]:
        """Admitted, and running until it says that it holds something, or has ended."""
        said = len(self.printed)
        await self.node.admit(one)
        running = asyncio.create_task(self.node.runner.run(one))
        self.running.append(running)
        await until(
            lambda: running.done() or any("holding" in line for line in self.printed[said:])
        )
        return running

    def listens(self) -> bool:
        """It does so soon after the registration."""
        with socket.socket() as caller:
            return caller.connect_ex(("127.0.0.1", self.port)) == 0

    async def get(self, path: str) -> tuple[int, str]:
        return await asyncio.to_thread(self._get, path)

    def _get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://localhost:{self.port}{path}", timeout=600) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    async def metric(self, name: str, **labels: str) -> list[float]:
        """Nothing before the first look."""
        path = "/metrics" if name.startswith("gpumanager_") else "/metric"
        status, text = await self.get(path)
        return [
            one.value
            for family in parse(text if status == OK else "")
            for one in family.samples
            if one.name == name and labels.items() <= one.labels.items()
        ]

    async def tells(self, name: str, value: float, **labels: str) -> None:
        """Wait until there is one such series and it has this value; raises TimeoutError."""
        await self.comes(lambda values: values == [value], name, **labels)

    async def comes(
        self, condition: Callable[[list[float]], bool], name: str, **labels: str
    ) -> list[float]:
        """The values for which it holds; raises TimeoutError."""
        async with asyncio.timeout(120):
            while not condition(values := await self.metric(name, **labels)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return values


@contextlib.asynccontextmanager
async def node(**flags: object) -> AsyncIterator[Watched]:
    watched = Watched(**flags)
    async with watched.node:
        await until(watched.listens)
        await watched.tells("gpumanager_driver_up", 1)
        yield watched
        watched.node.kill_containers()
        await asyncio.gather(*watched.running, return_exceptions=True)


async def test_a_container_is_told_as_it_is_and_no_more_when_it_is_gone() -> None:
    async with node() as watched:
        assert await watched.get("/readyz") == (200, "ok\n")
        assert await watched.get("/healthz") == (200, "ok\n")
        assert "version" in json.loads((await watched.get("/version"))[1])
        assert (await watched.get("/nothing"))[0] == 404
        await watched.tells("gpumanager_kubelet_registered", 1, resource=VCORE)
        assert await watched.metric("gpumanager_gpu_healthy") == [1] * 4

        gone = await watched.start(pod(*HOLD))
        held = 404  # MiB, with a context
        await watched.tells("container_gpu_memory_total", held, gpu_memory="total")
        request = await watched.metric("container_request_gpu_utilization", pod_name="pod")
        assert request == [0.3]
        assert await watched.metric("gpumanager_container_memory_limit_bytes") == [GIB]
        assert max(await watched.metric("container_gpu_utilization")) <= 100
        usage = json.loads((await watched.get("/usage"))[1])["usage"]
        (stat,) = (one["stat"]["main"]["dev"][0] for one in usage.values())
        assert (stat["mem"], len(stat["pids"])) == (held, 1)
        for rpc in ("GetPreferredAllocation", "Allocate", "PreStartContainer"):
            count = "gpumanager_rpc_duration_seconds_count"
            await watched.tells(count, 1, rpc=rpc, resource=VCORE)
        assert sum(await watched.metric("gpumanager_rpc_answers_total", outcome="failed")) == 0
        assert (await watched.metric("gpumanager_journal_writes_total"))[0] > 0

        watched.node.kill_containers()
        await gone
        launch = ("cuda-play", "launch", "--kernel", "2ms", "--seconds", "600", "--memory", "10MiB")
        await watched.start(pod(*launch, name="next"))  # the kubelet gives it the same devices

        await watched.tells("container_request_gpu_memory", 1024, pod_name="next")
        assert await watched.metric("container_request_gpu_memory", pod_name="pod") == []
        assert await watched.metric("gpumanager_container_memory_limit_bytes", pod="pod") == []
        await watched.comes(any, "gpumanager_container_launches_throttled_total", pod="next")
        await watched.comes(any, "gpumanager_container_gpu_seconds_total", pod="next")


async def test_an_agent_without_a_driver_answers_and_says_what_it_waits_for() -> None:
    async with node() as watched:
        await watched.node.agent.stop()
        SimulatedFaults(watched.node.gpus).unload()

        await watched.node.agent.start(watched.node.kubelet.http.endpoint)
        await until(watched.listens)
        await watched.tells("gpumanager_driver_up", 0)
        assert await watched.get("/healthz") == (200, "ok\n")
        status, why = await watched.get("/readyz")
        assert (status, why.partition(":")[0]) == (503, "waiting for a GPU")
        await watched.tells("gpumanager_kubelet_registered", 0, resource=VCORE)
        assert await watched.metric("gpumanager_gpu_healthy") == []

        SimulatedFaults(watched.node.gpus).load()
        await watched.tells("gpumanager_kubelet_registered", 1, resource=VCORE)
        await watched.comes(lambda values: values == [1] * 4, "gpumanager_gpu_healthy")
        assert await watched.get("/readyz") == (200, "ok\n")


async def test_a_program_that_goes_round_the_shim_is_reported_and_lives() -> None:
    async with node() as watched:
        running = await watched.start(pod(*CHEAT, "500"))

        await watched.tells("gpumanager_audit_findings_total", 1, kind="stranger")

        log = watched.node.disk.agent_log.read_text()
        assert log.count("which is granted to others") == 1
        assert not running.done()
        assert await watched.metric("gpumanager_audit_killed_total") == [0]


async def test_a_program_that_takes_more_than_its_limit_round_the_shim_is_ended_by_policy() -> None:
    async with node(**{"on-bypass": "end"}) as watched:
        honest = await watched.start(pod(*HOLD, name="honest"))
        within = await watched.start(pod(*CHEAT, "500", "with-the-shim", name="within"))
        charged = "gpumanager_container_memory_used_bytes"
        await watched.comes(lambda values: sum(values) >= GIB // 2, charged, pod="within")
        cheat = await watched.start(pod(*CHEAT, "1500", "with-the-shim", name="cheat"))

        async with asyncio.timeout(120):
            (result,) = await cheat

        assert result.exit_code == 42  # it was asked to end
        assert not honest.done()
        assert not within.done()
        await watched.tells("gpumanager_audit_killed_total", 1)
        await watched.tells("gpumanager_audit_findings_total", 1, kind="over-limit")
        await watched.tells("gpumanager_audit_processes", 0, kind="over-limit")
        assert sum(await watched.metric("gpumanager_audit_findings_total")) == 1
