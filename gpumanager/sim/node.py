"""A node in a box: simulated GPUs, driver and kubelet, the real node agent, containers that run.

async with SimulatedNode(load_machine("t4x4")) as node:
    results = await node.run(read_manifest([Path("pod.yaml")]).pods)
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Final, Self, TypeVar

from gpumanager.errors import GpuManagerError
from gpumanager.names import CLAIM_DRIVER, VCORE, VMEMORY
from gpumanager.sim import events
from gpumanager.sim.agent import AgentDied, AgentProcess
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.container_runtime import CONTAINERD_2, ContainerdVersion, SimulatedRuntime
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.sim.host import NodeDisk, furnish, make_disk
from gpumanager.sim.kubelet.dra.api import NodeApi
from gpumanager.sim.kubelet.kubelet import DevicesNotReady, SimulatedKubelet
from gpumanager.sim.kubelet.pods import Rejection
from gpumanager.sim.kubelet.versions import KUBELET_1_37, KubeletVersion
from gpumanager.sim.machine import Machine
from gpumanager.sim.manifest.pods import Pod
from gpumanager.sim.results import ContainerResult
from gpumanager.sim.runner import PodRunner

STOPPED_SECONDS: Final = 0.01
"""Between two looks for programs that were stopped inside of the driver."""

REGISTERED_SECONDS: Final = 60.0
SYNC_SECONDS: Final = 1.0
"""A kubelet's syncFrequency; a simulated node lives shorter than a real one."""

T = TypeVar("T")


class SimulatedNode:
    """Use as an async context manager.

    seed: of every free choice the kubelet has. version: which kubelet. runtime: which container
    runtime. agent_flags: more flags of the agent. api: the API server, for a node that is to have
    claims.
    """

    disk: NodeDisk
    gpus: SimulatedGpus
    runtime: SimulatedRuntime
    kubelet: SimulatedKubelet
    runner: PodRunner
    agent: AgentProcess

    def __init__(
        self,
        machine: Machine,
        *,
        seed: int = 0,
        on_event: events.OnEvent = lambda _: None,
        version: KubeletVersion = KUBELET_1_37,
        agent_flags: Mapping[str, object] | None = None,
        runtime: ContainerdVersion = CONTAINERD_2,
        api: NodeApi | None = None,
    ) -> None:
        self._version = version
        self._runtime_version = runtime
        self._api = api
        self._agent_flags = dict(agent_flags or {})
        self.machine = machine
        self._random = Random(seed)  # noqa: S311 - repeatable on purpose
        self._on_event = on_event
        self._ending = contextlib.AsyncExitStack()
        """What ends what has begun, the latest first; one failing, still the rest."""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await _to_its_end(self._ending.aclose())
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every process, close every socket, remove every file."""
        await _to_its_end(self._ending.aclose())

    async def _start(self) -> None:
        """Start everything up to the agent's registration; raises GpuManagerError."""
        if missing := await asyncio.to_thread(namespaces_available):
            raise GpuManagerError(missing)
        self.disk = disk = make_disk()
        self._ending.callback(disk.remove)
        await _to_its_end(self._furnish())
        self.runtime = SimulatedRuntime(disk.runtime, kind=self._runtime_version, cdi=disk.cdi)
        self._ending.push_async_callback(self.runtime.stop)
        await self.runtime.start()
        self.kubelet = SimulatedKubelet(
            disk.kubelet,
            self._random,
            disk.pod_resources,
            self._version,
            api=self._api,
            sync_seconds=SYNC_SECONDS,
        )
        self._ending.push_async_callback(self.kubelet.stop)
        await self.kubelet.start()
        self.agent = AgentProcess(disk, self._agent_flags)
        self._ending.push_async_callback(self.agent.stop)
        self.runner = PodRunner(disk, self.gpus, self.kubelet, self.runtime, self._on_event)
        self._ending.push_async_callback(self.runner.close)
        await self.start_agent()
        self._on_event(events.NodeReady(len(self.machine.topology.gpus)))

    async def _furnish(self) -> None:
        """Furnish in a thread, which nobody can stop: it must not write after the removal."""
        self.gpus = await asyncio.to_thread(furnish, self.disk, self.machine)
        self._ending.callback(self.gpus.close)
        watch = asyncio.create_task(self._continue_stopped(self.gpus))
        self._ending.callback(watch.cancel)

    async def _continue_stopped(self, gpus: SimulatedGpus) -> None:
        """Act as a kernel, that stops nobody inside of a driver."""
        while True:
            gpus.continue_stopped()
            await asyncio.sleep(STOPPED_SECONDS)

    async def start_agent(self) -> None:
        """Start the agent, also after `kill_agent`, and wait until it has registered."""
        self.kubelet.forget_devices()
        await self.agent.start(self.kubelet.http.endpoint)
        if self._agent_flags.get("interface") in {"claims", "both"}:
            ready = self.kubelet.wait_for_driver(CLAIM_DRIVER, REGISTERED_SECONDS)
        else:
            ready = self.kubelet.wait_for_devices((VCORE, VMEMORY), REGISTERED_SECONDS)
        try:
            await self.unless_agent_dies(ready)
        except DevicesNotReady as error:
            raise AgentDied(
                f"{error}; the agent's log ends with: {self.agent.last_words()}"
            ) from error

    async def restart_agent(self, **flags: object) -> None:
        """Restart it as a rolling update does. flags: beside those it had, `interface="claims"`."""
        await self.agent.stop()
        self._agent_flags.update(flags)
        await self.start_agent()

    async def kill_agent(self) -> None:
        """Kill it, as a crash; containers keep running."""
        await self.agent.kill()

    def kill_containers(self) -> None:
        """Kill every container, as a node that is drained by force."""
        for container in self.runner.containers:
            container.kill()

    async def admit(self, pod: Pod) -> Rejection | None:
        """Admit one pod without running it; None where it may run."""
        rejection = await self.kubelet.admit(pod)
        if rejection is None:
            self._on_event(events.PodAdmitted(pod))
        else:
            self._on_event(events.PodRefused(pod, rejection))
        return rejection

    async def run(
        self, pods: Sequence[Pod], stop: asyncio.Event | None = None
    ) -> tuple[ContainerResult, ...]:
        """Admit the pods one after another, run each as soon as it is admitted, to the end of all.

        stop: once it is set they are to end. One result for each container, in the order of the
        pods. Raises AgentDied.
        """
        return await self.unless_agent_dies(self._run(pods, stop))

    async def _run(
        self, pods: Sequence[Pod], stop: asyncio.Event | None
    ) -> tuple[ContainerResult, ...]:
        running: list[asyncio.Task[tuple[ContainerResult, ...]]] = []
        async with asyncio.TaskGroup() as group:
            for pod in pods:
                work = self._run_pod(pod, await self.admit(pod), stop)
                running.append(group.create_task(work))
        return tuple(result for task in running for result in task.result())

    async def _run_pod(
        self, pod: Pod, rejection: Rejection | None, stop: asyncio.Event | None
    ) -> tuple[ContainerResult, ...]:
        if rejection is None:
            return await self.runner.run(pod, stop=stop)
        return tuple(ContainerResult(pod, one, refused=str(rejection)) for one in pod.containers)

    async def unless_agent_dies(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the outcome of `work`; raises AgentDied where the agent ends before it."""
        working = asyncio.create_task(work)
        dying = asyncio.create_task(self.agent.died())
        try:
            await asyncio.wait((working, dying), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise dying.result()
            return working.result()
        except BaseExceptionGroup as group:
            # Of errors raised together the first of ours, which the others followed from.
            ours, _ = group.split(GpuManagerError)
            while isinstance(ours, BaseExceptionGroup):
                ours = ours.exceptions[0]  # type: ignore[assignment]
            raise ours or group from group
        finally:
            for task in (working, dying):
                task.cancel()
            await asyncio.wait((working, dying))


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await it to the end; a cancellation takes effect afterwards."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
