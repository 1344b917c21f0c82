"""A real kubelet for the contract that the simulated ones keep (`tests/contracts/kubelet`)."""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpumanager.deviceplugin.registration import identity
from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet.pods import KubeletPods, PodsUnavailable
from gpumanager.names import KUBELET_SOCKET, POD_RESOURCES_SOCKET, PODS_API_SOCKET
from gpumanager.sim.kubelet.versions import KUBELET_1_20, KUBELET_1_36, KUBELET_1_37
from tests.contracts.kubelet.kubelet_under_test import Outcome, Sketch, SketchedContainer
from tests.e2e.node.node_process import SECONDS, wait_for
from tests.e2e.node.real_node import DEVICE_PLUGINS, KUBELET_PORT, NODE, NODE_PATH, RealNode
from tests.e2e.node.real_pods import RealPods, prepared

BEHAVIOURS: Final = {37: KUBELET_1_37, 30: KUBELET_1_36, 0: KUBELET_1_20}
"""What a kubelet is taken for, by the first minor version of it."""
STATE: Final = "/state"
FAILS_AT_FIRST: Final = """
n=$(cat {state}/{name} 2>/dev/null || echo 1)
echo $((n + 1)) > {state}/{name}
[ $n -lt {starts} ] && exit 1
{then}
"""


class RealKubelet:
    """The kubelet of `node`; whose token may read `/pods`."""

    seconds = SECONDS
    directory = DEVICE_PLUGINS
    resources = Path(POD_RESOURCES_SOCKET)
    pods_api = Path(PODS_API_SOCKET)

    def __init__(self, node: RealNode, pods: RealPods, token: Path) -> None:
        self._node = node
        self._pods = pods
        self._names: dict[str, str] = {}
        self.version = next(one for first, one in BEHAVIOURS.items() if node.minor >= first)
        endpoint = f"https://127.0.0.1:{KUBELET_PORT}"
        self.pods = KubeletPods(endpoint, token=token, deadline=self.seconds)

    async def run(self, *sketches: Sketch) -> tuple[Outcome, ...]:
        runs = (asyncio.to_thread(self._run, sketch) for sketch in sketches)
        return tuple(await asyncio.gather(*runs))

    async def delete(self, *uids: str) -> None:
        for uid in uids:
            if name := self._names.pop(uid, None):
                await asyncio.to_thread(self._pods.delete, name)
        async with asyncio.timeout(self.seconds):
            while {pod.uid for pod in await self.pods.pods()} & set(uids):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def restart(self) -> None:
        await asyncio.to_thread(self._restart)

    async def capacity(self, resource: str) -> tuple[int, int]:
        status = (await asyncio.to_thread(self._node.api.get, NODE_PATH))["status"]
        return int(status["capacity"].get(resource, 0)), int(status["allocatable"].get(resource, 0))

    def _restart(self) -> None:
        door = self.directory / KUBELET_SOCKET
        self._node.stop_kubelet()
        before = identity(door)
        self._node.start_kubelet()
        wait_for(lambda: identity(door) not in {None, before} and answers(door), "it serves")
        wait_for(lambda: answers(self.resources), "it tells of resources")
        wait_for(self._lists, "it lists pods")
        if self.version.pods_api:
            wait_for(lambda: answers(self.pods_api), "it serves its Pods API")

    def _lists(self) -> bool:
        try:
            asyncio.run(self.pods.pods())
        except PodsUnavailable:
            return False
        return True

    def _run(self, sketch: Sketch) -> Outcome:
        uid = self._pods.create(described(sketch))
        self._names[uid] = sketch.name
        status = self._pods.wait(sketch.name, lambda now: settled(sketch, now), "it was started")
        rejected = status["phase"] == "Failed" and "containerStatuses" not in status
        if not rejected:
            return Outcome(uid)
        return Outcome(uid, status.get("reason", ""), status.get("message", ""))


def answers(path: Path) -> bool:
    """A server's socket is there before anybody listens: true once one does."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


def described(sketch: Sketch) -> dict[str, Any]:
    """The pod as the API server takes it, bound to the node."""
    kinds = {ContainerKind.APP: "containers"}
    spec: dict[str, Any] = {
        "nodeName": NODE,
        "restartPolicy": "OnFailure",
        "volumes": [{"name": "state", "emptyDir": {}}],
    }
    for one in sketch.containers:
        spec.setdefault(kinds.get(one.kind, "initContainers"), []).append(_container(one))
    metadata = {"name": sketch.name}
    return prepared({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def _container(one: SketchedContainer) -> dict[str, Any]:
    then = "true" if one.ends else "exec sleep 600"
    script = FAILS_AT_FIRST.format(state=STATE, name=one.name, starts=one.starts, then=then)
    sidecar = {"restartPolicy": "Always"} if one.kind is ContainerKind.SIDECAR else {}
    return {
        "name": one.name,
        "image": "local",
        "command": ["sh", "-c", script],
        "resources": {"limits": {name: str(amount) for name, amount in one.asks.items()}},
        "volumeMounts": [{"name": "state", "mountPath": STATE}],
        **sidecar,
    }


def settled(sketch: Sketch, status: Mapping[str, Any]) -> bool:
    """Rejected, or each container started as often as it is to be."""
    if status["phase"] == "Failed":
        return True
    found = {one["name"]: one for one in _statuses(status)}
    return all(one.name in found and _is_settled(one, found[one.name]) for one in sketch.containers)


def _is_settled(one: SketchedContainer, status: Mapping[str, Any]) -> bool:
    state = "terminated" if one.ends else "running"
    return state in status["state"] and status["restartCount"] == one.starts - 1


def _statuses(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from status.get("initContainerStatuses", ())
    yield from status.get("containerStatuses", ())
