"""The extender without HTTP: state, watches, leader election, and one method for each verb."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from gpumanager.kube.client import KubeClient
from gpumanager.kube.informer import Informer, ObjectStore
from gpumanager.kube.lease import LeaderElection
from gpumanager.kube.pod import PodView
from gpumanager.placement.preference import DEFAULT, Preference
from gpumanager.placement.values import Refusal
from gpumanager.scheduler.claims.cache import ClaimCache
from gpumanager.scheduler.cooperative import run_cooperatively
from gpumanager.scheduler.extender.bind import Binder, BindRequest, NoElection
from gpumanager.scheduler.extender.explain import Explanation, ExplanationStore, Row, best, reasons
from gpumanager.scheduler.extender.requeue import RefusedPods, requeue
from gpumanager.scheduler.quota.rules import QuotaRules, permitted
from gpumanager.scheduler.scoring import preemption
from gpumanager.scheduler.scoring.pod_shape import PodShape, asking, pod_shape_of
from gpumanager.scheduler.scoring.preemption import Victims
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit
from gpumanager.scheduler.scoring.verdicts import (
    Filtered,
    Scores,
    Verdicts,
    by_reason,
    filter_nodes,
    prioritize,
)
from gpumanager.scheduler.scoring.workload_mix import WorkloadMix
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.watching import PodWatch, node_store
from gpumanager.supervisor import SkippedErrors, Start, Supervisor

log = logging.getLogger(__name__)

SURE_SECONDS: Final = 5.0
"""How long a bind waits until a new leader has listed all pods once more."""
EXPIRE_SECONDS: Final = 5.0
REQUEUE_SECONDS: Final = 1.0


class NotReady(Exception):
    """The first lists of nodes and pods are not complete yet: an answer might be wrong."""


class Extender:
    """Decides for one cluster. schedulers: names of the schedulers for which pods are bound; empty:
    any. claims: nodes are scored for pods with claims too.

    clock: seconds of assumptions. now: seconds since the epoch. Of a request nothing is kept but
    the pod's explanation: any client can claim anything about a pod.
    """

    def __init__(
        self,
        api: KubeClient,
        *,
        preference: Preference = DEFAULT,
        rules: QuotaRules | None = None,
        schedulers: frozenset[str] = frozenset(),
        claims: bool = False,
        election: Callable[..., LeaderElection] | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        skipped: SkippedErrors | None = None,
    ) -> None:
        self._api = api
        self.rules = rules or QuotaRules()
        self.preference = preference
        self.habits = WorkloadMix()
        self.state = ClusterState(observer=self.rules, habits=self.habits)
        self.claims = ClaimCache(self.state.offer, preference)
        self.verdicts = Verdicts(self.state, self.habits)
        self._claim_tasks = self.claims.tasks(api, skipped) if claims else {}
        self.memory = ExplanationStore()
        self.nodes = Informer(api, node_store(self.state), clock=clock, skipped=skipped)
        self.pods = Informer(
            api, PodWatch(self.state, self.claims.shape_of), clock=clock, skipped=skipped
        )
        # Which pods a budget counts, and how many may go, is decided at eviction. Here it is enough
        # to know where no pod is protected.
        self._protected = ObjectStore(
            "/apis/policy/v1/poddisruptionbudgets", lambda item: item["metadata"]["namespace"]
        )
        self.budgets = Informer(api, self._protected, clock=clock, skipped=skipped)
        # A new leader lists the pods again: the former one's last bindings may not be watched yet.
        self.election = election(changed=self._lead) if election else NoElection()
        self.refused = RefusedPods(
            self._would_fit, lambda: self.state.changes + self.rules.known().changes, clock
        )
        self._now = now
        self._binder = Binder(
            api,
            self.state,
            self.verdicts,
            self.election,
            self.rules,
            self.pod_shape_of,
            clock,
            schedulers,
        )

    def _lead(self, leads: bool) -> None:  # noqa: FBT001
        if leads:
            self.pods.resync()

    @property
    def missing(self) -> str:
        """Return what has not been read yet; empty once answers are good."""
        kinds = {"nodes": self.nodes, "pods": self.pods}
        unread = [name for name, one in kinds.items() if not one.listed.is_set()]
        return " and ".join(filter(None, (*unread, self.rules.missing)))

    def tasks(self) -> dict[str, Start]:
        """Background tasks, by name."""
        return {
            "nodes": self.nodes.run,
            "pods": self.pods.run,
            "disruption budgets": self.budgets.run,
            "leader election": self.election.run,
            "requeue": self._requeue,
            "expiry of bindings": self._expire_bindings,
            **self._claim_tasks,
        }

    async def run(self) -> None:
        """Run all tasks until cancelled."""
        supervisor = Supervisor()
        for name, start in self.tasks().items():
            supervisor.keep(name, start)
        try:
            await asyncio.Event().wait()
        finally:
            await supervisor.stop()

    def filter(self, pod: PodView, names: Collection[str]) -> Filtered:
        """Return the nodes on which the pod fits, and why not on the others; raises NotReady."""
        ask, policy = self._checked_shape(pod), ""
        if ask is None:
            return Filtered(names)
        if isinstance(ask, Refusal):
            wrong = Unfit(str(ask), final=True)
            found = Filtered((), by_reason(dict.fromkeys(names, wrong)))
        else:
            found, policy = self._judge(pod, ask, names), ask.preference.spelled
        why, fitting = reasons(found.left), len(found.fitting)
        explanation = Explanation(pod.uid, self._now(), policy, len(names), fitting, why)
        self.memory.remember(pod.namespace, pod.name, explanation)
        if found.fitting:
            self.refused.waiting.pop(pod.uid, None)
        else:
            self.refused.add(pod, names)
        return found

    def prioritize(self, pod: PodView, names: Collection[str], *, claims: bool = False) -> Scores:
        """Return the nodes' scores; raises NotReady. claims: for a pod whose GPUs come from claims,
        else none."""
        ask = self.claims.shape_of(pod, waiting=True) if claims else self.pod_shape_of(pod)
        if not isinstance(ask, PodShape):
            return ()
        self._check()
        shape = self.verdicts.of(ask)
        ranked = prioritize(shape, names)
        if known := self.memory.of(pod.namespace, pod.name):
            found = replace(known, best=best(ranked, shape.points_of))
            self.memory.remember(pod.namespace, pod.name, found)
        return ranked

    async def preempt(self, pod: PodView, given: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """Return victims on the nodes on which the pod fits without them; raises NotReady."""
        ask = self._checked_shape(pod)
        if ask is None:
            return {name: uids for name, uids in given.items() if uids}
        if isinstance(ask, Refusal):
            return {}
        found, check = Filtered(tuple(given)), self.rules.permits(pod, ask)
        names = permitted(found, check, self.state.classes.members).fitting
        open_ = {name: given[name] for name in names}
        protected = set(self._protected.known.values()) if self.budgets.current else None
        return await run_cooperatively(preemption.chosen(self.state, pod, ask, open_, protected))

    async def bind(self, request: BindRequest) -> str:
        """Return why the pod is not bound; empty once it is. Raises NotReady."""
        self._check()
        try:
            # A new leader lists the pods again: the former one may just have bound some.
            async with asyncio.timeout(SURE_SECONDS):
                await self.pods.synced.wait()
        except TimeoutError:
            raise NotReady("the cluster's pods are being read again: try again") from None
        points, pod = None, self.state.known.get(request.uid)
        ask = self.pod_shape_of(pod) if pod else None
        if isinstance(ask, PodShape):  # the node's points before the pod takes its GPUs
            points = self.verdicts.of(ask).points_of(request.node)
        trouble = await self._binder.bind(request)
        found = self.memory.of(request.namespace, request.name)
        if found is None or found.uid != request.uid:
            found = Explanation(request.uid, self._now())
        found = replace(found, at=self._now(), trouble=trouble, bound="", points=None, gpus=())
        if trouble:
            log.warning("%s/%s: %s", request.namespace, request.name, trouble)
        else:
            gpus = self._gpus_of(request)
            found = replace(found, bound=request.node, points=points, gpus=gpus)
            self.refused.waiting.pop(request.uid, None)
        self.memory.remember(request.namespace, request.name, found)
        return trouble

    def pod_shape_of(self, pod: PodView) -> PodShape | Refusal | None:
        """Return what the pod asks for, in this cluster."""
        return pod_shape_of(pod, self.preference)

    def _gpus_of(self, request: BindRequest) -> tuple[Row, ...]:
        """Return the GPUs that the pod has on its node."""
        pod, node = self.state.known.get(request.uid), self.state.nodes.get(request.node)
        holder = node.holders.get(request.uid) if node else None
        if pod is None or node is None or holder is None or holder.packing is None:
            return ()
        pairs = zip(asking(pod), holder.packing.gpus, strict=True)
        rows = ((one.name, node.topology.gpus[place]) for one, places in pairs for place in places)
        return tuple({"container": of, "index": gpu.index, "uuid": gpu.uuid} for of, gpu in rows)

    def _judge(self, pod: PodView, ask: PodShape, names: Collection[str]) -> Filtered:
        found = filter_nodes(self.verdicts.of(ask), names)
        return permitted(found, self.rules.permits(pod, ask), self.state.classes.members)

    def _would_fit(self, pod: PodView, names: tuple[str, ...]) -> bool:
        """Return whether a refused pod still waits, and would fit one of these nodes now."""
        ask = self.pod_shape_of(pod)
        if not isinstance(ask, PodShape) or not self.state.waits(pod.uid):
            return False
        return bool(self._judge(pod, ask, names).fitting)

    def _checked_shape(self, pod: PodView) -> PodShape | Refusal | None:
        ask = self.pod_shape_of(pod)
        if ask is not None:
            self._check()
        return ask

    def _check(self) -> None:
        if self.missing:
            raise NotReady(f"the cluster's {self.missing} are still being read: try again")

    async def _requeue(self) -> None:
        while True:
            await asyncio.sleep(REQUEUE_SECONDS)
            if not self.election.leads or self.missing:
                self.refused.waiting.clear()  # kube-scheduler calls another replica now
            for pod in self.refused.take_due():
                await requeue(self._api, pod)

    async def _expire_bindings(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_SECONDS)
            for uid in self.state.expire(self.pods.heard):
                log.warning(
                    "pod %s: its binding was not confirmed in time; its GPUs are free again", uid
                )
