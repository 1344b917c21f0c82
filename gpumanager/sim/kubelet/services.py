"""What a kubelet tells of its pods: `/pods` over HTTP, PodResources and the Pods API over gRPC."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import grpc
from aiohttp import web
from google.protobuf.json_format import ParseDict

from gpumanager.http_server import BoundedServer
from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet import wire
from gpumanager.kubelet.api import podresources_v1_pb2 as pb
from gpumanager.kubelet.api import pods_v1alpha1_pb2 as pods_pb
from gpumanager.limits.socket.bounds import TokenBucket
from gpumanager.sim.kubelet.devices import DeviceBooks, Holding
from gpumanager.sim.kubelet.dra.claims import ClaimState
from gpumanager.sim.kubelet.pods import SimulatedPodList, SimulatedPodStatus, pod_json
from gpumanager.sim.kubelet.versions import KubeletVersion
from gpumanager.sim.manifest.pods import ContainerManifest, Pod

Handlers = tuple["grpc.GenericRpcHandler[Any, Any]", ...]
APP: Final = ContainerKind.APP


class PodsServer:
    """Answers GET /pods, on a free port of the loopback, with what `pods` returns at that moment.

    token: a caller without it is not authenticated; None: no token is needed. allowed: whether an
    authenticated caller may read pods, which a kubelet asks the API server about. answering: if
    cleared, no request is answered.
    """

    def __init__(self, pods: Callable[[], SimulatedPodList]) -> None:
        self._pods = pods
        self._server: BoundedServer | None = None
        self.port = 0
        self.requests = 0
        self.token: str | None = None
        self.allowed = True
        self.answering = asyncio.Event()
        self.answering.set()

    async def start(self) -> None:
        """Listen; the port stays the same over a restart."""
        self._server = BoundedServer(self._answer)
        self.port = await self._server.start("127.0.0.1", self.port)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        self.answering.set()
        if self._server is not None:
            await self._server.stop()
            self._server = None

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        await self.answering.wait()
        bearer = request.headers.get("Authorization")
        if self.token is not None and bearer != f"Bearer {self.token}":
            return web.Response(status=401, text="Unauthorized")
        if not self.allowed:
            return web.Response(status=403, text="Forbidden")
        if request.method != "GET" or request.path.rstrip("/") != "/pods":
            return web.Response(status=404, text="404 page not found\n")
        self.requests += 1
        items = [pod_json(status) for status in self._pods().statuses.values()]
        return web.json_response({"kind": "PodList", "apiVersion": "v1", "items": items})


class PodsApiServer:
    """Answers v1alpha1.Pods, as 1.37 serves it: pods whole, in bytes, by UID.

    ready: cleared, not all sources of pods have reported yet. lists: how many it answered.
    """

    def __init__(self, pods: Callable[[], SimulatedPodList], version: KubeletVersion) -> None:
        self._pods = pods
        self._bucket = TokenBucket(version.calls, version.burst)
        self._made: dict[str, tuple[SimulatedPodStatus, bytes]] = {}
        self.ready = True
        self.lists = 0

    def handlers(self) -> Handlers:
        return (wire.pods_handler(self.list),)

    async def list(
        self, _request: pods_pb.ListPodsRequest, context: Any
    ) -> pods_pb.ListPodsResponse:
        await _take_token(self._bucket, context)
        if not self.ready:
            cause = "Kubelet is initializing"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, cause)
        self.lists += 1
        return pods_pb.ListPodsResponse(
            pods=[self._bytes(status) for _, status in sorted(self._pods().statuses.items())]
        )

    def _bytes(self, status: SimulatedPodStatus) -> bytes:
        """Return a pod, made once a state: a real kubelet's compiled code takes no longer."""
        before, made = self._made.get(status.pod.uid, (None, b""))
        if before is not status:
            item = pod_json(status)
            for one in (*item["spec"]["initContainers"], *item["spec"]["containers"]):
                amounts: Mapping[str, str] = one["resources"]["limits"]
                limits = {name: {"string": amount} for name, amount in amounts.items()}
                one["resources"] = {"limits": limits}
            made = ParseDict(item, pods_pb.Pod(), ignore_unknown_fields=True).SerializeToString()
            self._made[status.pod.uid] = status, made
        return made


class SimulatedPodResources:
    """PodResources, v1 and v1alpha1: the devices of each container. pods, books: as they are now.
    claimed: what drivers have prepared for a container, by claim. on_list: what List does to the
    kubelet's own books, as with the real one.
    """

    def __init__(
        self,
        pods: Callable[[], SimulatedPodList],
        books: Callable[[], DeviceBooks],
        claimed: Callable[[Pod, ContainerManifest], Iterable[ClaimState]],
        version: KubeletVersion,
        on_list: Callable[[], None],
    ) -> None:
        self._pods, self._books, self._claimed = pods, books, claimed
        self._version = version
        self._on_list = on_list
        self._bucket = TokenBucket(version.calls, version.burst)

    def handlers(self) -> Handlers:
        """Return the handlers of both versions, as the kubelet serves them."""
        first = wire.pod_resources_handler(self, self._version.methods)
        return first, wire.alpha_handler(partial(self.list, alpha=True))

    async def list(
        self, _request: pb.ListPodResourcesRequest, context: Any, *, alpha: bool = False
    ) -> pb.ListPodResourcesResponse:
        """alpha: ended pods too, with every version, without NUMA nodes, claims and sidecars."""
        await _take_token(self._bucket, context)
        self._on_list()
        rows = [
            self._resources(one.pod, alpha=alpha)
            for one in self._pods().statuses.values()
            if alpha or self._version.lists_ended or not one.phase.terminal
        ]
        return pb.ListPodResourcesResponse(pod_resources=rows)

    async def allocatable(
        self, _request: pb.AllocatableResourcesRequest, _context: Any
    ) -> pb.AllocatableResourcesResponse:
        healthy = self._books().healthy.items()
        rows = (Holding("", "", resource, ids) for resource, ids in healthy)
        return pb.AllocatableResourcesResponse(devices=self._entries(rows))

    async def get(
        self, request: pb.GetPodResourcesRequest, context: Any
    ) -> pb.GetPodResourcesResponse:
        await _take_token(self._bucket, context)
        for pod in self._pods().active:
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return pb.GetPodResourcesResponse(pod_resources=self._resources(pod))
        where = f"pod {request.pod_name} in namespace {request.pod_namespace}"
        await context.abort(grpc.StatusCode.UNKNOWN, f"{where} not found")
        raise AssertionError("abort raises")

    def _resources(self, pod: Pod, *, alpha: bool = False) -> pb.PodResources:
        """Return a pod without its plain init containers."""
        found = pb.PodResources(name=pod.name, namespace=pod.namespace)
        for one in pod.containers:
            if one.kind is not APP and (alpha or one.kind is not ContainerKind.SIDECAR):
                continue
            rows = self._books().of_container(pod.uid, one.name)
            made = found.containers.add(name=one.name, devices=self._entries(rows))
            if alpha:
                for entry in made.devices:
                    entry.ClearField("topology")
                continue
            for claim in self._claimed(pod, one):
                resources = [
                    pb.ClaimResource(
                        cdi_devices=[pb.CDIDevice(name=name) for name in device.cdi_device_ids],
                        driver_name=claim.driver,
                        pool_name=device.pool_name,
                        device_name=device.device_name,
                        share_id=device.share_id if device.HasField("share_id") else None,
                    )
                    for device in claim.devices
                ]
                made.dynamic_resources.add(
                    claim_name=claim.key.name,
                    claim_namespace=claim.key.namespace,
                    claim_resources=resources,
                )
        return found

    def _entries(self, rows: Iterable[Holding]) -> Iterator[pb.ContainerDevices]:
        for row in rows:
            if not self._version.entry_per_device:
                if row.ids:
                    ids = sorted(row.ids)
                    yield pb.ContainerDevices(resource_name=row.resource, device_ids=ids)
                continue
            for device_id in sorted(row.ids):  # an entry for each NUMA node of each device
                for node in self._books().nodes_of(row.resource, device_id) or (None,):
                    numa = None if node is None else pb.TopologyInfo(nodes=[pb.NUMANode(ID=node)])
                    yield pb.ContainerDevices(
                        resource_name=row.resource, device_ids=[device_id], topology=numa
                    )


async def _take_token(bucket: TokenBucket, context: Any) -> None:
    """Answer the call with an error where the kubelet has had too many."""
    if bucket.rate and not bucket.take(time.monotonic()):
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
