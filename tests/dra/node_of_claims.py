"""A simulated node whose agent serves claims, with an API server, a scheduler and controllers."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.sim import events
from gpumanager.sim.claims.control_plane import ClaimControlPlane
from gpumanager.sim.cluster.objects import Key, Object
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.kubelet.dra.api import HttpNodeApi
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import Pod, parse_pods
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.results import ContainerResult
from tests.sim.claims.claim_objects import device_class
from tests.waiting import SECONDS, until

NODE = "n1"


class WaitingForNobody(SimulatedNode):
    """Its agent may never register."""

    async def start_agent(self) -> None:
        await self.agent.start(self.kubelet.http.endpoint)


class NodeOfClaims:
    """Use as an async context manager. root: for the agent's kubeconfig. flags: the agent's."""

    def __init__(
        self,
        root: Path,
        machine: str = "t4x4",
        *,
        waits: bool = True,
        flags: Mapping[str, object] = MappingProxyType({}),
        **more: Any,
    ) -> None:
        self.server = SimulatedApiServer()
        self.plane = ClaimControlPlane(self.server)
        self.printed: list[str] = []
        self._root = root
        self._machine = machine
        self._more = more
        self.flags = flags
        self._waits = waits

    async def __aenter__(self) -> Self:
        await self.server.start()
        await self.server.create("nodes", {"metadata": {"name": NODE}})
        await self.server.create("deviceclasses", device_class())
        self._client = KubeClient(Access(self.server.url))
        kubeconfig = self._root / "kubeconfig"
        kubeconfig.write_text(self.server.kubeconfig)
        flags = {
            "interface": "claims",
            "kubeconfig": kubeconfig,
            "hostname-override": NODE,
            "health-check-period": "0.1s",
            "health-recovery": "0.2s",
            "allocation-check-period": "0.2s",
            **self.flags,
        }
        make = SimulatedNode if self._waits else WaitingForNobody
        self.node = make(
            load_machine(self._machine),
            api=HttpNodeApi(self._client, NODE),
            agent_flags=flags,
            on_event=self._saw,
            **self._more,
        )
        await self.node.__aenter__()
        self._planning = asyncio.create_task(self.plane.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._planning.cancel()
        await asyncio.gather(self._planning, return_exceptions=True)
        await self.node.__aexit__()
        await self._client.close()
        await self.server.stop()

    def slice(self) -> Object | None:
        return next(iter(self.server.objects.list("resourceslices")), None)

    def attributes(self, device: str) -> Any:
        """Those of a device in the slice."""
        devices = (self.slice() or {})["spec"]["devices"]
        return next(one["attributes"] for one in devices if one["name"] == device)

    async def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """The node, as an operator does."""
        await self._client.patch(
            f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": annotations}}
        )

    async def claim(self, name: str, *requests: Mapping[str, Any], **more: Any) -> None:
        spec = {"devices": {"requests": list(requests), **more}}
        await self.server.create(
            "resourceclaims", {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        )

    def offered(self) -> int:
        """How many GPUs the slice has."""
        return len((self.slice() or {"spec": {}})["spec"].get("devices") or ())

    async def pod(
        self,
        name: str,
        containers: Mapping[str, Sequence[tuple[str, str]]],
        command: str,
        within: float = SECONDS,
        limits: Mapping[str, str] = MappingProxyType({}),
    ) -> Pod:
        """Scheduled. containers: by name, each a claim and a request of it, empty for all. limits:
        of each container."""
        claims = dict.fromkeys(claim for used in containers.values() for claim, _ in used)
        spec = {
            "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
            "containers": [
                {
                    "name": container,
                    "image": "none",
                    "command": ["sh", "-c", command],
                    "resources": {
                        "limits": dict(limits),
                        "claims": [
                            {"name": claim} | ({"request": request} if request else {})
                            for claim, request in used
                        ],
                    },
                }
                for container, used in containers.items()
            ],
        }
        await self.server.create(
            "pods", {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        )
        item = await until(lambda: self._scheduled(name), within)
        (pod,) = parse_pods(json.dumps(item), name)
        return pod

    async def run(self, pod: Pod) -> tuple[ContainerResult, ...]:
        """To its end, which the API server is told of."""
        results = await self.node.run([pod])
        patch = {"status": {"phase": "Succeeded"}}
        key = Key("pods", pod.namespace, pod.name)
        await self.server.change(key, "application/merge-patch+json", patch, status=True)
        return results

    def _scheduled(self, name: str) -> Object | None:
        pods = self.server.objects.list("pods")
        found = (one for one in pods if one["metadata"]["name"] == name)
        return next((one for one in found if one["spec"].get("nodeName")), None)

    def _saw(self, event: events.Event) -> None:
        if isinstance(event, events.ContainerPrinted):
            self.printed.append(event.line)
