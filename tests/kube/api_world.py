"""An API server to try things on: simulated, or a real one whose administrator we are."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.cluster.server import SimulatedApiServer

KUBECONFIG = "GPUMANAGER_API_KUBECONFIG"
"""Names the kubeconfig of an administrator of a real API server; without it only the simulated."""

STRATEGIC = "application/strategic-merge-patch+json"


def pod_object(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    """A pod that asks for a share of a GPU; bound to `node`."""
    limits = {VCORE: "30", VMEMORY: "8"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Pending"},
    }


class ApiWorld:
    """A node of its own at an API server, and pods on it. forget: history is gone after it."""

    def __init__(self, access: Access, simulated: SimulatedApiServer | None = None) -> None:
        self.api = KubeClient(access)
        self.simulated = simulated
        self.node = f"contract-{secrets.token_hex(4)}"
        self._made: list[str] = []

    async def start(self) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
        await self.api.create("/api/v1/nodes", node)
        self._made.append(self.node_path)

    async def stop(self) -> None:
        """Take away what was made."""
        for path in reversed(self._made):
            await self.delete(path)

    @property
    def node_path(self) -> str:
        return f"/api/v1/nodes/{self.node}"

    @property
    def selector(self) -> str:
        return f"spec.nodeName={self.node}"

    def pod_path(self, name: str) -> str:
        return f"/api/v1/namespaces/default/pods/{self.full(name)}"

    def full(self, name: str) -> str:
        """Names are unique, so that the tests can share a real server."""
        return f"{name}-{self.node}"

    async def pod(self, name: str, **metadata: Any) -> Any:
        made = await self.api.create(
            "/api/v1/namespaces/default/pods", pod_object(self.full(name), self.node, **metadata)
        )
        self._made.append(self.pod_path(name))
        return made

    def added(self, path: str) -> None:
        """Something else that is to be taken away at the end."""
        self._made.append(path)

    async def fail(self, name: str, message: str) -> Any:
        """As a kubelet says that it did not admit a pod."""
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message}
        return await self.api.patch(self.pod_path(name) + "/status", {"status": status})

    async def delete(self, path: str) -> None:
        """At once and whatever it is."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        with contextlib.suppress(ApiRefused):  # what is gone already is what we want
            await self.api.delete(path, options)

    async def version(self) -> str:
        """Of everything, now."""
        pods = await self.api.get("/api/v1/pods", fieldSelector=self.selector)
        return str(pods["metadata"]["resourceVersion"])


async def until(look: Callable[[], Awaitable[Any]], seconds: float = 120.0) -> Any:
    """What `look` finds, once it finds something; fails when it does not in time."""
    async with asyncio.timeout(seconds):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(0.02)


async def first(events: AsyncIterator[Any], count: int) -> list[Any]:
    """The first events of a watch, in time."""
    found: list[Any] = []
    async with asyncio.timeout(120):
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found
