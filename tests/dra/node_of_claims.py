"""A simulated node whose agent serves claims, with an API server, a scheduler and controllers."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from gpumanager.kube.errors import Object
from gpumanager.sim import events
from gpumanager.sim.claims.node import ClaimsNode
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import NODE, Pod, parse_pods
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.results import ContainerResult
from tests.sim.claims.claim_objects import device_class
from tests.waiting import SECONDS, until

SOON = {
    "health-check-period": "0.1s",
    "health-recovery": "0.2s",
    "allocation-check-period": "0.2s",
}


class WaitingForNobody(SimulatedNode):
    """Its agent may never register."""

    async def start_agent(self) -> None:
        await self.agent.start(self.kubelet.http.endpoint)


class NodeOfClaims(ClaimsNode):
    """Schedules all the time; tests make claims and pods one by one. flags: the agent's."""

    def __init__(
        self, *, flags: Mapping[str, object] = MappingProxyType({}), **options: Any
    ) -> None:
        self.printed: list[str] = []
        flags = {**SOON, **flags}
        super().__init__(load_machine("t4x4"), agent_flags=flags, on_event=self._saw, **options)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.server.create("deviceclasses", device_class())
        planning = asyncio.create_task(self.plane.run())
        self._stack.callback(planning.cancel)
        return self

    def slice(self) -> Object | None:
        return next(iter(self.server.objects.list("resourceslices")), None)

    def attributes(self, device: str) -> Any:
        """Those of a device in the slice."""
        devices = (self.slice() or {})["spec"]["devices"]
        return next(one["attributes"] for one in devices if one["name"] == device)

    async def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """The node, as an operator does."""
        await self.client.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": annotations}})

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

    async def run_pod(self, pod: Pod) -> tuple[ContainerResult, ...]:
        """To its end, which the API server is told of."""
        results = await self.node.run([pod])
        patch = {"status": {"phase": "Succeeded"}}
        key = Key("pods", pod.namespace, pod.name)
        await self.server.change(key, patch, status=True)
        return results

    def _scheduled(self, name: str) -> Object | None:
        pods = self.server.objects.list("pods")
        found = (one for one in pods if one["metadata"]["name"] == name)
        return next((one for one in found if one["spec"].get("nodeName")), None)

    def _saw(self, event: events.Event) -> None:
        if isinstance(event, events.ContainerPrinted):
            self.printed.append(event.line)
