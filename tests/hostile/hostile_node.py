"""A simulated node with the real agent, and tenants that mean harm.

A tenant is a program of `tenants/`, run in a container of a pod that was admitted: it has the
mounts, the environment and the socket that any container has. What it prints is kept by pod.
"""

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

from gpumanager.kube.pod import ContainerKind
from gpumanager.limits.pages.books import BOOKS
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim import events
from gpumanager.sim.agent import AgentDied
from gpumanager.sim.kubelet.versions import KUBELET_1_37, KubeletVersion
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.results import ContainerResult
from tests.waiting import until
from vcuda_shim._shim import ffi, lib

TENANTS: Final = Path(__file__).parent / "tenants"
LAYOUT_VARIABLE: Final = "HOSTILE_LAYOUT"


def layout() -> Mapping[str, int]:
    """Where things are in the pages, in bytes, of native/include/vcuda_region.h."""
    names = [name for name, _ in ffi.typeof("struct vcuda_books").fields]
    fields = {name: ffi.offsetof("struct vcuda_books", name) for name in names}
    meter = {
        f"meter.{name}": ffi.offsetof("struct vcuda_meter", name)
        for name, _ in ffi.typeof("struct vcuda_meter").fields
    }
    return {
        "books": BOOKS.file_size,
        "config": ffi.sizeof("struct vcuda_config"),
        "slots.count": lib.VCUDA_SLOTS,
        **fields,
        **meter,
    }


def pod(
    name: str,
    command: tuple[str, ...],
    *,
    cores: int = 30,
    memory: int = 4,
    environment: tuple[tuple[str, str], ...] = (),
    annotations: Mapping[str, str] | None = None,
    namespace: str = "default",
) -> Pod:
    """memory: blocks of 256 MiB. cores: 0 for a pod that asks for no GPU at all."""
    wanted = {VCORE: cores, VMEMORY: memory} if cores else {}
    asks = {resource: count for resource, count in wanted.items() if count}
    main = ContainerManifest("main", ContainerKind.APP, command, environment, None, asks)
    return Pod(namespace, name, (main,), dict(annotations or {}))


def hostile(name: str, program: str, *words: object, **asks: Any) -> Pod:
    """A pod that runs a program of `tenants/`."""
    command = (sys.executable, str(TENANTS / program), *map(str, words))
    return pod(name, command, environment=((LAYOUT_VARIABLE, json.dumps(layout())),), **asks)


class HostileNode:
    """node: the simulated one. said: what the containers of each pod printed, in order.
    port: of the agent, 0 if none was asked for."""

    def __init__(
        self, machine: str = "t4x4", version: KubeletVersion = KUBELET_1_37, /, **flags: object
    ) -> None:
        self.said: defaultdict[str, list[str]] = defaultdict(list)
        self.port = int(str(flags.get("query-port", 0)))
        self.node = SimulatedNode(
            load_machine(machine), on_event=self._hear, version=version, agent_flags=flags
        )

    def _hear(self, event: events.Event) -> None:
        if isinstance(event, events.ContainerPrinted):
            self.said[event.pod.name].append(event.line)

    async def first_line(self, name: str) -> str:
        """The first that a pod prints."""
        return (await until(lambda: self.said[name]))[0]

    async def agent_says(self, words: str, times: int = 1) -> None:
        """Waits until the agents of this node have logged it so often."""
        await until(lambda: self.node.disk.agent_log.read_text().count(words) >= times)

    async def __aenter__(self) -> Self:
        await self.node.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        """What containers and agents said is printed where a test fails: pytest shows it then."""
        if error[0] is not None:
            print(dict(self.said))
            print(self.node.disk.agent_log.read_text())
        await self.node.__aexit__(*error)

    async def run(self, one: Pod) -> tuple[ContainerResult, ...]:
        """To its end; it must be admitted. Raises AgentDied if it ends the agent meanwhile."""
        async with self.beside(one) as running:
            return await running

    @asynccontextmanager
    async def beside(self, one: Pod) -> AsyncIterator["asyncio.Task[tuple[ContainerResult, ...]]"]:
        """While it runs; what is left of it is ended. The body fails if the agent dies."""
        refused = await self.node.admit(one)
        assert refused is None, refused
        running = asyncio.create_task(self.node.runner.run(one))
        died = asyncio.create_task(self.node.agent.died())
        try:
            yield running
            assert not died.done(), died.result()
        finally:
            for task in (running, died):
                task.cancel()
            await asyncio.gather(running, died, return_exceptions=True)

    async def agent_lives(self, seconds: float) -> None:
        """For so long; fails with the agent's last words."""
        try:
            ended: AgentDied = await asyncio.wait_for(self.node.agent.died(), seconds)
        except TimeoutError:
            return
        raise AssertionError(str(ended))
