"""Bind a pod to a node: choose its GPUs, reserve them, and write everything in one request.

The GPUs are chosen by the current state, not by the filter's, and assumed at once. Nothing is
awaited between reading the state and assuming, so two concurrent binds cannot get the same GPU. The
annotations travel in the Binding itself: the API server applies them together with the node, in one
write that succeeds or fails as a whole (decision 0042). A bind with unknown outcome stays reserved
until the watch shows it; if the pod is bound again meanwhile, it has a second reservation.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gpumanager.gpu.values import Topology
from gpumanager.ids import PodUID
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable, Object
from gpumanager.kube.plan import VERSION
from gpumanager.kube.pod import ContainerKind, PodView, read_pod
from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATION_PREDICATE_NODE,
    ANNOTATION_PREDICATE_TIME,
)
from gpumanager.placement.values import Refusal
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.quota.rules import QuotaCheck
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import PodShape, asking, pod_shape_of
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit
from gpumanager.scheduler.scoring.verdicts import Verdicts
from gpumanager.scheduler.state import ClusterState

log = logging.getLogger(__name__)

ASSUME_SECONDS: Final = 60.0
"""How long the watch may take to show our own binding."""
BIND_SECONDS: Final = 8.0
"""For all requests to the API server about one pod; kube-scheduler waits longer."""
CONFLICT: Final = 409


class BindingApi(Protocol):
    """Calls of the API server that a bind makes; they raise ApiRefused, ApiUnavailable."""

    async def get(self, path: str) -> Any: ...
    async def patch(self, path: str, body: Object) -> Any: ...
    async def create(self, path: str, body: Object) -> Any: ...


class Leads(Protocol):
    """Whether this replica leads. remaining: seconds until its lease ends."""

    @property
    def leads(self) -> bool: ...
    @property
    def remaining(self) -> float: ...
    @property
    def holder(self) -> str: ...


@dataclass(frozen=True, slots=True)
class BindRequest:
    """ExtenderBindingArgs."""

    namespace: str
    name: str
    uid: PodUID
    node: str

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


@dataclass(frozen=True, slots=True)
class NotBound:
    """Why a pod was not bound, for kube-scheduler and people. kube-scheduler tries again."""

    message: str


class Binder:
    """Binds pods that ask for GPUs. The pod is taken from the API server, not from a request, which
    may claim anything. asks: what a pod asks for, in this cluster. schedulers: names of the
    schedulers for which pods are bound; empty: any.

    clock: of assumptions. now_ns: nanoseconds since the epoch.
    """

    def __init__(
        self,
        api: BindingApi,
        state: ClusterState,
        verdicts: Verdicts,
        leadership: Leads,
        *,
        rules: QuotaCheck | None = None,
        asks: Callable[[PodView], PodShape | Refusal | None] = pod_shape_of,
        schedulers: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._api = api
        self._state = state
        self._verdicts = verdicts
        self._leadership = leadership
        self._rules = rules or QuotaCheck()
        self._asks = asks
        self._schedulers = schedulers
        self._clock = clock
        self._now_ns = now_ns
        self._going: set[PodUID] = set()

    async def bind(self, request: BindRequest) -> NotBound | None:
        """Return None once it is bound, or why it is not."""
        if not self._leadership.leads:
            leader = self._leadership.holder or "no replica"
            return NotBound(f"this extender does not lead, {leader} does: try again")
        if request.uid in self._going:
            return NotBound("the pod is being bound already: try again")
        seconds = min(BIND_SECONDS, self._leadership.remaining)
        self._going.add(request.uid)
        try:
            async with asyncio.timeout(seconds):
                return await self._bind(request)
        except TimeoutError:
            return NotBound(f"the API server did not answer within {seconds:.0f} s: try again")
        except (ApiRefused, ApiUnavailable) as error:
            return NotBound(str(error))
        except NOT_UNDERSTOOD as error:
            return NotBound(f"the API server's answer is not understood: {error!r}")
        finally:
            self._going.discard(request.uid)

    async def _bind(self, request: BindRequest) -> NotBound | None:
        pod = self._state.known.get(request.uid)
        if pod is None or (pod.namespace, pod.name) != (request.namespace, request.name):
            item = await self._api.get(request.path)
            if refused := _wrong(item, request):
                return refused
            pod = read_pod(item)
            if (item.get("spec") or {}).get("nodeName"):
                return self._already(item, request)
        bound, ask = self._state.bound.get(pod.uid), self._asks(pod)
        if bound is not None:
            return None if bound == request.node else _elsewhere(bound)
        if not isinstance(ask, PodShape):
            return NotBound(
                str(ask or "the pod asks for no GPU: this extender binds no other pods")
            )
        if self._schedulers and pod.scheduler not in self._schedulers:
            ours = ", ".join(sorted(self._schedulers))
            return NotBound(f"the pod is of scheduler {pod.scheduler!r}: we bind for {ours}")
        return await self._place(request, pod, ask)

    async def _place(self, request: BindRequest, pod: PodView, ask: PodShape) -> NotBound | None:
        tried_before = self._state.assumed_on(pod.uid, request.node) is not None
        chosen = self._assume(request, pod, ask)
        if isinstance(chosen, NotBound):
            return chosen
        try:
            await self._write(request, pod, chosen)
        except ApiRefused as error:
            found: NotBound | None = NotBound(str(error))
            if error.status == CONFLICT:
                # Another scheduler has bound the pod, or an earlier attempt of ours did and its
                # response was lost.
                item = await self._api.get(request.path)
                if str(item["metadata"]["uid"]) == request.uid and item["spec"].get("nodeName"):
                    found = self._already(item, request)
                else:
                    found = _wrong(item, request) or found
            if isinstance(found, NotBound) and not tried_before:
                self._state.withdraw(pod.uid, request.node)
            return found
        self._state.confirm(pod.uid, request.node)
        return None

    def _assume(
        self, request: BindRequest, pod: PodView, ask: PodShape
    ) -> dict[str, str] | NotBound:
        """Choose GPUs and assume them, in one step; return the annotations."""
        node = self._state.nodes.get(request.node)
        if node is None:
            return NotBound(f"node {request.node} is not known: try again")
        check = self._rules.permits(pod, ask)
        if check and (refused := check(node.kind)):
            return _not_here(node, refused)
        before = self._state.assumed_on(pod.uid, node.name)
        packing = before and before.packing
        if not packing:
            verdict = self._verdicts.of(ask, (node.name,)).judge.of(node)
            if isinstance(verdict, Unfit):
                return _not_here(node, verdict)
            packing = verdict.packing
        self._state.assume(pod, node.name, ask, packing, self._clock() + ASSUME_SECONDS)
        return annotations(pod, node.name, node.topology, packing, self._now_ns())

    async def _write(self, request: BindRequest, pod: PodView, wanted: dict[str, str]) -> None:
        # What an earlier placing left, and would not be overwritten.
        left = {
            key: None
            for key in pod.annotations
            if key.startswith(ANNOTATION_PREDICATE_GPU_INDEX) and key not in wanted
        }
        if left:
            metadata = {"uid": request.uid, "annotations": left}
            await self._api.patch(request.path, {"metadata": metadata})
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": request.name,
                "namespace": request.namespace,
                "uid": request.uid,
                "annotations": wanted,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": request.node},
        }
        await self._api.create(f"{request.path}/binding", binding)

    def _already(self, item: Any, request: BindRequest) -> NotBound | None:
        """Count a pod that is bound already; return None where it is on the requested node."""
        node = str(item["spec"]["nodeName"])
        self._state.pod(read_pod(item), node)
        return None if node == request.node else _elsewhere(node)


def annotations(
    pod: PodView, node: str, topology: Topology, packing: Packing, now_ns: int
) -> dict[str, str]:
    """Return what bind writes: gpu-admission's annotations, and a plan by UUID, which
    `gpumanager.kube.plan` reads on the node. now_ns: nanoseconds since the epoch.

        tencent.com/predicate-node: node-7
        tencent.com/predicate-time: "1716200000000000000"
        tencent.com/predicate-gpu-idx-0: "0,3"                  minors, of the first app container
        tencent.com/gpu-assigned: "false"
        tencent.com/vcuda-plan: {"version":1,"containers":{"main":{"gpus":["GPU-1f3a…"]}}}
    """
    apps = [one.name for one in pod.containers if one.kind is ContainerKind.APP]
    containers: dict[str, Any] = {}
    indices: dict[str, str] = {}
    for one, places in zip(asking(pod), packing.gpus, strict=True):
        gpus = [topology.gpus[place] for place in places]
        containers[one.name] = {"gpus": [gpu.uuid for gpu in gpus]}
        if one.kind is ContainerKind.APP:  # the original counts `spec.containers` alone
            key = f"{ANNOTATION_PREDICATE_GPU_INDEX}{apps.index(one.name)}"
            indices[key] = ",".join(map(str, sorted(gpu.minor for gpu in gpus)))
    plan = {"version": VERSION, "containers": containers}
    return {
        ANNOTATION_PREDICATE_NODE: node,
        ANNOTATION_PREDICATE_TIME: str(now_ns),
        ANNOTATION_GPU_ASSIGNED: "false",
        ANNOTATION_PLAN: json.dumps(plan, separators=(",", ":")),
        **indices,
    }


def _not_here(node: NodeState, why: Unfit) -> NotBound:
    return NotBound(f"{why.phrase} ({node.name}: {why.detail}): try again")


def _elsewhere(node: str) -> NotBound:
    return NotBound(f"the pod is on {node} already")


def _wrong(item: Any, request: BindRequest) -> NotBound | None:
    uid = str(item["metadata"]["uid"])
    if uid != request.uid:
        return NotBound(f"{request.namespace}/{request.name} is another pod by now (UID {uid})")
    if item["metadata"].get("deletionTimestamp"):
        return NotBound(f"{request.namespace}/{request.name} is being deleted")
    return None
