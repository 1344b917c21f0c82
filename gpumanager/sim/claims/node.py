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
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from gpumanager.kube.access import Access
from gpumanager.kube.claims import base, list_devices
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import Object
from gpumanager.names import (
    CLAIM_DEVICE_CLASS,
    CLAIM_DRIVER,
    CLAIM_WHOLE_CLASS,
    VCORE,
    VMEMORY,
    WHOLE_GPU,
)
from gpumanager.sim.claims.control_plane import ClaimControlPlane, is_done
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.kubelet.dra.api import NodeApi
from gpumanager.sim.kubelet.kubelet import DevicesNotReady
from gpumanager.sim.machine import Machine
from gpumanager.sim.manifest.pods import (
    NODE,
    ContainerManifest,
    Manifest,
    Pod,
    parse_pods,
)
from gpumanager.sim.manifest.volumes import ConfigData
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.results import ContainerResult, memory_limit

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


class ClaimsNode:
    """Use as an async context manager. claims_gpus: how many GPUs claims have; None: all. The
    others are for device plugins. agent_flags: more flags of the agent. options: of SimulatedNode.
    """

    node: SimulatedNode
    client: KubeClient
    kubeconfig: Path

    def __init__(
        self,
        machine: Machine,
        *,
        claims_gpus: int | None = None,
        agent_flags: Mapping[str, object] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        self.server = SimulatedApiServer()
        self.plane = ClaimControlPlane(self.server)
        self.flags = {"interface": "claims", "hostname-override": NODE, **agent_flags}
        if claims_gpus is not None:
            self.flags |= {"interface": "both", "claims-gpus": claims_gpus, **FAST_FLAGS}
        self._machine, self._options = machine, options
        self._claims_gpus = claims_gpus
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self.server.start()
            stack.push_async_callback(self.server.stop)
            await self.server.create("nodes", {"metadata": {"name": NODE}})
            for one in CLASSES:
                await self.server.create("deviceclasses", one)
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="gm-"))
            self.kubeconfig = Path(directory) / "kubeconfig"
            self.kubeconfig.write_text(self.server.kubeconfig)
            self.client = await stack.enter_async_context(KubeClient(Access(self.server.url)))
            self.node = SimulatedNode(
                self._machine,
                agent_flags={"kubeconfig": self.kubeconfig, **self.flags},
                api=NodeApi(self.client, NODE),
                **self._options,
            )
            await stack.enter_async_context(self.node)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run(
        self, manifest: Manifest, stop: asyncio.Event | None = None
    ) -> tuple[ContainerResult, ...]:
        """Run as `SimulatedNode.run`, once the GPUs are offered; the simulated scheduler binds pods
        with claims."""
        return await self.node.unless_agent_dies(self._run(manifest, stop))

    async def _run(
        self, manifest: Manifest, stop: asyncio.Event | None
    ) -> tuple[ContainerResult, ...]:
        await self._wait_until_published()
        claiming = dict[str, Object]()
        for one in manifest.objects:
            if one.resource == "pods":
                claiming[one.item["metadata"]["uid"]] = one.item
            elif one.item["metadata"]["name"] not in {CLAIM_DEVICE_CLASS, CLAIM_WHOLE_CLASS}:
                await self.server.create(one.resource, one.item)
        running: list[asyncio.Task[tuple[ContainerResult, ...]]] = []
        async with asyncio.TaskGroup() as group:
            for pod in manifest.pods:
                if pod.uid in claiming:
                    await self.server.create("pods", claiming[pod.uid])
                    await self.plane.settle()
                    work = self._run_claiming(pod, manifest.data, stop)
                else:
                    work = self.node.run([pod], stop)
                running.append(group.create_task(work))
        return tuple(result for task in running for result in task.result())

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
            raise DevicesNotReady(f"no slice; the agent's log ends with: {words}") from None
        if self._claims_gpus is not None:
            await self.node.kubelet.wait_for_devices((VCORE, VMEMORY), PUBLISHED_SECONDS)

    async def _run_claiming(
        self, pod: Pod, data: ConfigData, stop: asyncio.Event | None
    ) -> tuple[ContainerResult, ...]:
        key = Key("pods", pod.namespace, pod.name)
        if refused := await self._wait_for_node(key):
            return tuple(ContainerResult(pod, one, refused=refused) for one in pod.containers)
        (bound,) = parse_pods(json.dumps(self.server.objects.get(key)), pod.full_name, data)
        variables = {one.name: one.environment for one in pod.containers}
        found = [replace(one, environment=variables[one.name]) for one in bound.containers]
        bound = replace(bound, containers=tuple(found))
        asked = {one.name: self._with_amounts(bound, one) for one in bound.containers}
        results = await self.node.run([bound], stop)
        failed = any(one.exit_code != 0 for one in results)
        patch = {"status": {"phase": "Failed" if failed else "Succeeded"}}
        await self.server.change(key, patch, status=True)
        await self.plane.settle()
        return tuple(
            replace(one, container=container, memory_limit=memory_limit(container, one.gpus))
            for one, container in ((one, asked[one.container.name]) for one in results)
        )

    async def _wait_for_node(self, key: Key) -> str:
        """Return why there is none, once no other pod could make room; empty when it is bound."""
        objects = self.server.objects
        while True:
            await self.plane.settle()
            item, version = objects.get(key), objects.version
            if item["spec"].get("nodeName"):
                return ""
            if not any(
                one["spec"].get("nodeName") and not is_done(one) for one in objects.list("pods")
            ):
                return next(str(one["message"]) for one in item["status"]["conditions"])
            await self.server.changed_since(version)

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
