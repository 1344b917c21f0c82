"""A node in a cluster of its own: claims come from templates, are allocated, prepared and released.

    async with ClaimsNode(load_machine("t4x4")) as node:
        results = await node.run(read_manifest([Path("claims.yaml")]))

The agent runs as it does on a real node with `--interface=claims`, or with `both` where pods ask by
device plugins too; API server, scheduler and claim controller are simulated. A pod that finds no
room for its claim waits as long as another one runs.
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from gpumanager.errors import GpuManagerError
from gpumanager.kube.access import Access
from gpumanager.kube.claims import base, list_devices
from gpumanager.kube.client import KubeClient
from gpumanager.names import (
    CLAIM_DEVICE_CLASS,
    CLAIM_DRIVER,
    CLAIM_WHOLE_CLASS,
    VCORE,
    VMEMORY,
    WHOLE_GPU,
)
from gpumanager.sim import events
from gpumanager.sim.claims.control_plane import ClaimControlPlane
from gpumanager.sim.claims.controller import is_done
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.patch import MERGE
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.kubelet.dra.api import HttpNodeApi
from gpumanager.sim.machine import Machine
from gpumanager.sim.manifest.pods import (
    NO_DATA,
    NODE,
    ContainerManifest,
    Manifest,
    Pod,
    parse_pods,
)
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.results import ContainerResult, memory_limit

Object = Mapping[str, Any]
PUBLISHED_SECONDS: Final = 60.0
FAST_FLAGS: Final = {"gpu-move-delay": "0.2s", "allocation-check-period": "0.2s"}
"""Nobody uses a GPU while they are shared out."""
_OURS: Final = [{"cel": {"expression": f"device.driver == '{CLAIM_DRIVER}'"}}]
CLASSES: Final[tuple[Object, ...]] = (
    {"metadata": {"name": CLAIM_DEVICE_CLASS}, "spec": {"selectors": _OURS}},
    {
        "metadata": {"name": CLAIM_WHOLE_CLASS},
        "spec": {"selectors": _OURS, "extendedResourceName": WHOLE_GPU},
    },
)
"""As the chart installs them."""


class SliceNotPublished(GpuManagerError):
    """The agent did not offer its GPUs in time."""


class ClaimsNode:
    """Use as an async context manager. seed: of every free choice the kubelet has. claims_gpus:
    how many GPUs claims have; None: all. The others are for device plugins. agent_flags: more flags
    of the agent."""

    def __init__(
        self,
        machine: Machine,
        *,
        seed: int = 0,
        on_event: events.OnEvent = events.ignore,
        claims_gpus: int | None = None,
        agent_flags: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self._agent_flags = agent_flags
        self.server = SimulatedApiServer()
        self.plane = ClaimControlPlane(self.server)
        self._machine, self._seed, self._on_event = machine, seed, on_event
        self._claims_gpus = claims_gpus
        self._stack = AsyncExitStack()
        self._ends = 0
        self._ended = asyncio.Condition()
        self._node: SimulatedNode | None = None
        self._data = NO_DATA

    @property
    def node(self) -> SimulatedNode:
        if self._node is None:
            raise GpuManagerError("this simulated node is not running")
        return self._node

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self.server.start()
            stack.push_async_callback(self.server.stop)
            await self.server.create("nodes", {"metadata": {"name": NODE}})
            for one in CLASSES:
                await self.server.create("deviceclasses", one)
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="gm-"))
            kubeconfig = Path(directory) / "kubeconfig"
            kubeconfig.write_text(self.server.kubeconfig)
            client = await stack.enter_async_context(KubeClient(Access(self.server.url)))
            flags: dict[str, object] = {"kubeconfig": kubeconfig, "hostname-override": NODE}
            flags |= {"interface": "claims", **self._agent_flags}
            if self._claims_gpus is not None:
                flags |= {"interface": "both", "claims-gpus": self._claims_gpus, **FAST_FLAGS}
            node = SimulatedNode(
                self._machine,
                seed=self._seed,
                on_event=self._on_event,
                agent_flags=flags,
                api=HttpNodeApi(client, NODE),
            )
            self._node = await stack.enter_async_context(node)
            await node.unless_agent_dies(self._wait_until_published())
            if self._claims_gpus is not None:
                ready = node.kubelet.wait_for_devices((VCORE, VMEMORY), PUBLISHED_SECONDS)
                await node.unless_agent_dies(ready)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _wait_until_published(self) -> None:
        objects, wanted = self.server.objects, self._claims_gpus or 1
        try:
            async with asyncio.timeout(PUBLISHED_SECONDS):
                while wanted > sum(
                    len(one["spec"].get("devices") or ()) for one in objects.list("resourceslices")
                ):
                    await self.server.changed_since(objects.version)
        except TimeoutError:
            words = self.node.agent.last_words()
            raise SliceNotPublished(f"no slice; the agent's log ends with: {words}") from None

    async def run(
        self, manifest: Manifest, stop: asyncio.Event | None = None
    ) -> tuple[ContainerResult, ...]:
        """Run as `SimulatedNode.run`; the simulated scheduler binds pods with claims."""
        using = {}
        self._data = manifest.data
        for one in manifest.objects:
            if one.resource == "pods":
                using[one.item["metadata"]["uid"]] = one.item
            elif one.item["metadata"]["name"] not in {CLAIM_DEVICE_CLASS, CLAIM_WHOLE_CLASS}:
                await self.server.create(one.resource, one.item)
        return await self.node.unless_agent_dies(self._run(manifest.pods, using, stop))

    async def _run(
        self, pods: Sequence[Pod], using: Mapping[str, Object], stop: asyncio.Event | None
    ) -> tuple[ContainerResult, ...]:
        running: list[asyncio.Task[tuple[ContainerResult, ...]]] = []
        async with asyncio.TaskGroup() as group:
            for pod in pods:
                if pod.uid in using:
                    await self.server.create("pods", using[pod.uid])
                    await self.plane.settle()
                claiming = pod.uid in using
                work = self._run_claiming(pod, stop) if claiming else self.node.run([pod], stop)
                running.append(group.create_task(work))
        return tuple(result for task in running for result in task.result())

    async def _run_claiming(
        self, pod: Pod, stop: asyncio.Event | None
    ) -> tuple[ContainerResult, ...]:
        key = Key("pods", pod.namespace, pod.name)
        if refused := await self._wait_for_node(key):
            return tuple(ContainerResult(pod, one, refused=refused) for one in pod.containers)
        item = self.server.objects.get(key)
        (bound,) = parse_pods(json.dumps(item), pod.full_name, self._data)
        variables = {one.name: one.environment for one in pod.containers}
        found = [replace(one, environment=variables[one.name]) for one in bound.containers]
        bound = replace(bound, containers=tuple(found))
        asked = {one.name: self._with_amounts(bound, one) for one in bound.containers}
        results = await self.node.run([bound], stop)
        failed = any(one.exit_code != 0 for one in results)
        patch = {"status": {"phase": "Failed" if failed else "Succeeded"}}
        await self.server.change(key, MERGE, patch, status=True)
        await self.plane.settle()
        async with self._ended:
            self._ends += 1
            self._ended.notify_all()
        return tuple(
            replace(one, container=container, memory_limit=memory_limit(container, one.gpus))
            for one, container in ((one, asked[one.container.name]) for one in results)
        )

    async def _wait_for_node(self, key: Key) -> str:
        """Return why there is none, once no other pod could make room; empty when it is bound."""
        while not (item := self.server.objects.get(key))["spec"].get("nodeName"):
            pods = self.server.objects.list("pods")
            if not any(one["spec"].get("nodeName") and not is_done(one) for one in pods):
                conditions = item["status"]["conditions"]
                return next(str(one["message"]) for one in conditions)
            seen = self._ends
            async with self._ended:
                while self._ends == seen:
                    await self._ended.wait()
        return ""

    def _with_amounts(self, pod: Pod, container: ContainerManifest) -> ContainerManifest:
        """Return it with what its claims hold, as the two lines count; nothing by admin access."""
        asks: dict[str, int] = {}
        for used in pod.claims:
            # The devices of the requests that the container names; of all where it names none.
            rows = [one.request for one in container.claims if one.claim == used.name]
            key = Key("resourceclaims", pod.namespace, used.claim)
            for one in list_devices(self.server.objects.get(key)):
                if not one.admin and any(not row or base(one.request) == row for row in rows):
                    asks[VCORE] = asks.get(VCORE, 0) + (one.cores or 0)
                    asks[VMEMORY] = asks.get(VMEMORY, 0) + (one.blocks or 0)
        return replace(container, asks=asks) if asks else container
