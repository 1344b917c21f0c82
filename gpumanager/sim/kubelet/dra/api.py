"""What a kubelet asks the API server about claims and tells it, over HTTP."""

import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused, Object
from gpumanager.kube.events import KubeEvent, ObjectReference
from gpumanager.sim.manifest.pods import Pod

GROUP: Final = "/apis/resource.k8s.io/v1"
COMPONENT: Final = "kubelet"


class NodeApi(Protocol):
    """All methods raise ApiUnavailable and ApiRefused."""

    async def claim(self, namespace: str, name: str) -> Object:
        """Return the ResourceClaim, as it is now."""

    async def delete_slices(self, driver: str) -> None:
        """Delete the node's ResourceSlices of one driver, or of all for an empty name."""

    async def event(self, pod: Pod, reason: str, message: str) -> None:
        """Warn about a pod."""

    async def report_health(self, pod: Pod, rows: Mapping[str, Sequence[Object]]) -> None:
        """Write `allocatedResourcesStatus` by container, into the pod's status."""


class HttpNodeApi:
    """Of one node, by the client that the agent has too."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client = client
        self._node = node

    async def claim(self, namespace: str, name: str) -> Object:
        path = f"{GROUP}/namespaces/{namespace}/resourceclaims/{name}"
        found: Object = await self._client.get(path)
        return found

    async def delete_slices(self, driver: str) -> None:
        selector = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        await self._client.delete(f"{GROUP}/resourceslices", {}, fieldSelector=selector)

    async def event(self, pod: Pod, reason: str, message: str) -> None:
        """Count the same once more."""
        about = ObjectReference("Pod", pod.name, pod.uid, pod.namespace)
        event = KubeEvent(about, warning=True, reason=reason, message=message)
        path = f"/api/v1/namespaces/{pod.namespace}/events"
        source = {"component": COMPONENT, "host": self._node}
        try:
            made = {**event.object(self._node, time.time()), "source": source}
            await self._client.create(path, made)
        except ApiRefused as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            place = f"{path}/{event.name}"
            count = int((await self._client.get(place)).get("count") or 1)
            await self._client.patch(place, {"count": count + 1})

    async def report_health(self, pod: Pod, rows: Mapping[str, Sequence[Object]]) -> None:
        """Other fields of the containers' statuses stay; patches replace the whole list."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        status = (await self._client.get(path)).get("status") or {}
        known = {one["name"]: one for one in status.get("containerStatuses") or ()}
        told: list[dict[str, Any]] = [
            {**known.pop(name, {"name": name}), "allocatedResourcesStatus": list(found)}
            for name, found in rows.items()
        ]
        patch = {"status": {"containerStatuses": [*known.values(), *told]}}
        await self._client.patch(f"{path}/status", patch)
