"""Bind a pod to a node: choose its GPUs, reserve them, and write everything in one request.

The GPUs are chosen by the current state, not by the filter's, and assumed at once. Nothing is
awaited between reading the state and assuming, so two concurrent binds cannot get the same GPU. The
annotations travel in the Binding itself: the API server applies them together with the node, in one
write that succeeds or fails as a whole (decision 0042). A bind with unknown outcome stays reserved
until the watch shows it; if the pod is bound again meanwhile, it has a second reservation.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec

from gpumanager.gpu.values import Topology
from gpumanager.ids import PodUID
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable
from gpumanager.kube.lease import LeaderElection
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
from gpumanager.scheduler.quota.rules import QuotaRules
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import PodShape, asking
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit
from gpumanager.scheduler.scoring.verdicts import Verdicts
from gpumanager.scheduler.state import ClusterState

ASSUME_SECONDS: Final = 60.0
"""How long the watch may take to show our own binding."""
BIND_SECONDS: Final = 8.0
"""For all requests to the API server about one pod; kube-scheduler waits longer."""


class NoElection:
    """One replica, which always leads."""

    leads = True
    remaining = float("inf")
    holder = "this one"

    async def run(self) -> None:
        """There is no Lease to renew."""


class BindRequest(msgspec.Struct, frozen=True):
    """ExtenderBindingArgs."""

    namespace: str = msgspec.field(name="PodNamespace")
    name: str = msgspec.field(name="PodName")
    uid: PodUID = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


@dataclass(slots=True)
class Binder:
    """Binds pods that ask for GPUs. The pod is taken from the API server, not from a request, which
    may claim anything. asks: what a pod asks for, in this cluster. schedulers: names of the
    schedulers for which pods are bound; empty: any. clock: seconds of assumptions.

    What is not bound has a reason, for kube-scheduler and people. kube-scheduler tries again.
    """

    _api: KubeClient
    _state: ClusterState
    _verdicts: Verdicts
    _election: LeaderElection | NoElection
    _rules: QuotaRules
    _asks: Callable[[PodView], PodShape | Refusal | None]
    _clock: Callable[[], float]
    _schedulers: frozenset[str] = frozenset()
    _going: set[PodUID] = field(default_factory=set)

    async def bind(self, request: BindRequest) -> str:
        """Return why the pod is not bound; empty once it is."""
        if not self._election.leads:
            leader = self._election.holder or "no replica"
            return f"this extender does not lead, {leader} does: try again"
        if request.uid in self._going:
            return "the pod is being bound already: try again"
        seconds = min(BIND_SECONDS, self._election.remaining)
        self._going.add(request.uid)
        try:
            async with asyncio.timeout(seconds):
                return await self._bind(request)
        except TimeoutError:
            return f"the API server did not answer within {seconds:.0f} s: try again"
        except (ApiRefused, ApiUnavailable) as error:
            return str(error)
        except NOT_UNDERSTOOD as error:
            return f"the API server's answer is not understood: {error!r}"
        finally:
            self._going.discard(request.uid)

    async def _bind(self, request: BindRequest) -> str:
        pod = self._state.known.get(request.uid)
        if pod is None or (pod.namespace, pod.name) != (request.namespace, request.name):
            item = await self._api.get(request.path)
            if wrong := _wrong(item, request):
                return wrong
            if (item.get("spec") or {}).get("nodeName"):
                return self._already(item, request)
            pod = read_pod(item)
        if bound := self._state.bound.get(pod.uid):
            return _elsewhere(bound, request)
        ask = self._asks(pod)
        if not isinstance(ask, PodShape):
            return str(ask or "the pod asks for no GPU: this extender binds no other pods")
        if self._schedulers and pod.scheduler not in self._schedulers:
            ours = ", ".join(sorted(self._schedulers))
            return f"the pod is of scheduler {pod.scheduler!r}: we bind for {ours}"
        return await self._place(request, pod, ask)

    async def _place(self, request: BindRequest, pod: PodView, ask: PodShape) -> str:
        state = self._state
        tried_before = request.node in state.assumed.get(pod.uid, ())
        node = state.nodes.get(request.node)
        if node is None:
            return f"node {request.node} is not known: try again"
        packing = self._assume(node, pod, ask)
        if isinstance(packing, Unfit):
            return f"{packing.phrase} ({node.name}: {packing.detail}): try again"
        try:
            notes = annotations(pod, node.name, node.topology, packing, time.time_ns())
            await self._write(request, pod, notes)
        except ApiRefused as error:
            trouble = str(error)
            if error.status == HTTPStatus.CONFLICT:
                # Another scheduler has bound the pod, or an earlier attempt of ours did and its
                # response was lost.
                item = await self._api.get(request.path)
                if str(item["metadata"]["uid"]) == request.uid and item["spec"].get("nodeName"):
                    trouble = self._already(item, request)
                else:
                    trouble = _wrong(item, request) or trouble
            if trouble and not tried_before:
                state.withdraw(pod.uid, request.node)
            return trouble
        state.confirm(pod.uid, request.node)
        return ""

    def _assume(self, node: NodeState, pod: PodView, ask: PodShape) -> Packing | Unfit:
        """Choose GPUs and assume them, in one step."""
        check = self._rules.permits(pod, ask)
        if check and (refused := check(node.kind)):
            return refused
        packing = self._state.assumed_on(pod.uid, node.name)
        if packing is None:
            verdict = self._verdicts.of(ask).judge.of(node)
            if isinstance(verdict, Unfit):
                return verdict
            packing = verdict.packing
        self._state.assume(pod, node.name, ask, packing, self._clock() + ASSUME_SECONDS)
        return packing

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

    def _already(self, item: Any, request: BindRequest) -> str:
        """Count a pod that is bound already; return why, where it is not on the requested node."""
        node = str(item["spec"]["nodeName"])
        self._state.pod(read_pod(item), node)
        return _elsewhere(node, request)


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


def _elsewhere(node: str, request: BindRequest) -> str:
    return "" if node == request.node else f"the pod is on {node} already"


def _wrong(item: Any, request: BindRequest) -> str:
    uid = str(item["metadata"]["uid"])
    if uid != request.uid:
        return f"{request.namespace}/{request.name} is another pod by now (UID {uid})"
    if item["metadata"].get("deletionTimestamp"):
        return f"{request.namespace}/{request.name} is being deleted"
    return ""
