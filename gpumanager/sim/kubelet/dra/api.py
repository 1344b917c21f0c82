"""What a kubelet asks the API server about claims and tells it, over HTTP."""

import contextlib
import time
from collections.abc import Mapping, Sequence

from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused, Object
from gpumanager.kube.events import KubeEvent, ObjectReference
from gpumanager.sim.cluster.objects import STRATEGIC
from gpumanager.sim.manifest.pods import Pod

GROUP = "/apis/resource.k8s.io/v1"


class NodeApi:
    """Of one node, by the client that the agent has too. Raises ApiUnavailable and ApiRefused."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client = client
        self._node = node

    async def claim(self, namespace: str, name: str) -> Object:
        path = f"{GROUP}/namespaces/{namespace}/resourceclaims/{name}"
        found: Object = await self._client.get(path)
        return found

    async def delete_slices(self, driver: str) -> None:
        """Delete the node's ResourceSlices of one driver, or of all for an empty name."""
        selector = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        await self._client.delete(f"{GROUP}/resourceslices", {}, fieldSelector=selector)

    async def event(self, pod: Pod, reason: str, message: str) -> None:
        """Warn about a pod; once, where the same is said again."""
        about = ObjectReference("Pod", pod.name, pod.uid, pod.namespace)
        event = KubeEvent(about, warning=True, reason=reason, message=message)
        source = {"component": "kubelet", "host": self._node}
        made = {**event.object(self._node, time.time()), "source": source}
        with contextlib.suppress(ApiRefused):
            await self._client.create(f"/api/v1/namespaces/{pod.namespace}/events", made)

    async def report_health(self, pod: Pod, rows: Mapping[str, Sequence[Object]]) -> None:
        """Write `allocatedResourcesStatus` by container, into the pod's status."""
        statuses = [
            {"name": name, "allocatedResourcesStatus": list(found)} for name, found in rows.items()
        ]
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        await self._client.patch(path, {"status": {"containerStatuses": statuses}}, STRATEGIC)
