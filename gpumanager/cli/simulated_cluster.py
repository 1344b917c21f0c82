"""A small cluster in a box, for `simulate --serve --nodes N`: nodes, an API server, the extender.

API server and kube-scheduler are simulated; the extender and the agents are the real ones. A pod
that finds no node waits, and is tried again; one that has ended is started again.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from gpumanager import __version__
from gpumanager.errors import GpuManagerError
from gpumanager.ids import PodUID
from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.kube.pod import read_pod
from gpumanager.names import ANNOTATION_INVENTORY
from gpumanager.scheduler.extender.bind import BindRequest
from gpumanager.scheduler.extender.server import ExtenderServer
from gpumanager.scheduler.extender.service import Extender
from gpumanager.sim import events
from gpumanager.sim.cluster.objects import Key, StatusError
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.kubelet.pods import SimulatedPodStatus, pod_json
from gpumanager.sim.machine import Machine
from gpumanager.sim.manifest.pods import Pod
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.restarting import AGAIN_SECONDS, is_set_within, keep_running
from gpumanager.sim.results import ContainerResult

EXTENDER_PORT: Final = 3456
"""Where `explain` looks for it."""
JOINED_SECONDS: Final = 60.0


class SimulatedCluster:
    """Use as an async context manager. count: of nodes, all of one machine.

    port: of the first node's pages; those of the others follow. page_port: of the extender, for
    which 0 is any; afterwards the one that it has.
    """

    def __init__(
        self,
        machine: Machine,
        count: int,
        *,
        port: int,
        page_port: int = EXTENDER_PORT,
        seed: int = 0,
        on_event: events.OnEvent = lambda _: None,
    ) -> None:
        self._machine, self._seed, self._on_event = machine, seed, on_event
        self.page_port = page_port
        self._ports = {f"node-{index}": port + index for index in range(count)}
        self._server = SimulatedApiServer()
        self._stack = AsyncExitStack()
        self._nodes: dict[str, SimulatedNode] = {}
        self._scheduling = asyncio.Lock()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._server.start()
            stack.push_async_callback(self._server.stop)
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gm-")))
            (directory / "kubeconfig").write_text(self._server.kubeconfig)
            for name in self._ports:
                await self._server.create("nodes", {"metadata": {"name": name}})
            for name, port in self._ports.items():
                node = SimulatedNode(
                    self._machine,
                    seed=self._seed,
                    on_event=self._on_event,
                    agent_flags={
                        "kubeconfig": directory / "kubeconfig",
                        "hostname-override": name,
                        "query-port": port,
                        "page-history": 300,
                    },
                )
                self._nodes[name] = await stack.enter_async_context(node)
            objects = self._server.objects
            try:
                async with asyncio.timeout(JOINED_SECONDS):
                    while not all(  # until every agent has written its GPUs at its node
                        ANNOTATION_INVENTORY in (one["metadata"].get("annotations") or {})
                        for one in objects.list("nodes")
                    ):
                        await self._server.changed_since(objects.version)
            except TimeoutError:
                words = next(iter(self._nodes.values())).agent.last_words()
                cause = f"an agent did not join; its log ends with: {words}"
                raise GpuManagerError(cause) from None
            client = await stack.enter_async_context(KubeClient(Access(self._server.url)))
            self._extender = Extender(client)
            server = ExtenderServer(self._extender, version=__version__)
            try:
                self.page_port = await server.start("127.0.0.1", self.page_port)
            except OSError as error:
                raise GpuManagerError(
                    f"cannot listen on 127.0.0.1:{self.page_port}: {error.strerror}"
                ) from error
            stack.push_async_callback(server.stop)
            following = asyncio.create_task(self._extender.run())
            stack.push_async_callback(asyncio.wait, (following,))
            stack.callback(following.cancel)  # before it is awaited
            await self._extender.nodes.listed.wait()
            await self._extender.pods.listed.wait()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run(self, pods: Sequence[Pod], stop: asyncio.Event) -> tuple[ContainerResult, ...]:
        """Run pods until `stop` is set; return the results of each one's last run."""
        return await keep_running(pods, lambda pod: self._run(pod, stop), stop)

    async def _run(self, pod: Pod, stop: asyncio.Event) -> tuple[ContainerResult, ...]:
        """Run a pod on the node where the extender binds it."""
        key = Key("pods", pod.namespace, pod.name)
        with contextlib.suppress(StatusError):
            await self._server.remove(key)  # of its run before, kept till now for those who ask
        item = pod_json(SimulatedPodStatus(pod))
        made = await self._server.create("pods", {**item, "status": {"phase": "Pending"}})
        parsed, extender = read_pod(made), self._extender
        while True:  # turns of kube-scheduler: filter, prioritize and bind
            async with self._scheduling:
                fitting = list(extender.filter(parsed, list(self._ports)).fitting)
                if fitting:
                    scores = extender.prioritize(parsed, fitting)
                    best = [name for _, names in scores for name in names]
                    node = (best or fitting)[0]
                    request = BindRequest(parsed.namespace, parsed.name, PodUID(parsed.uid), node)
                    if not await extender.bind(request):
                        break
            if await is_set_within(stop, AGAIN_SECONDS):
                # It waits: the reason for most nodes, as the extender remembers it.
                refused = "no node had room for it"
                known = extender.memory.of(pod.namespace, pod.name)
                if known is not None and known.reasons:
                    most = known.reasons[0]
                    refused += ": {reason} ({example}: {detail})".format_map(most)
                return tuple(ContainerResult(pod, one, refused=refused) for one in pod.containers)
        bound = self._server.objects.get(key)
        annotations = bound["metadata"].get("annotations") or {}
        results = await self._nodes[node].run([replace(pod, annotations=annotations)], stop)
        phase = "Failed" if any(one.failed for one in results) else "Succeeded"
        await self._server.change(key, {"status": {"phase": phase}}, status=True)
        return results
