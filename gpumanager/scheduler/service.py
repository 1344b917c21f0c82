"""The extender without its HTTP: state, watches, election, and one method for each verb."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from gpumanager.cluster.api import ApiServer
from gpumanager.kubelet.pods import PodUID, PodView
from gpumanager.placement.values import Refusal
from gpumanager.scheduler.asks import PodAsk, ask_of
from gpumanager.scheduler.bind import Binder, BindRequest, NotBound
from gpumanager.scheduler.decide import Filtered, filter_nodes, preempt, prioritize
from gpumanager.scheduler.explain import Explanation, Memory, reasons
from gpumanager.scheduler.phrases import Unfit
from gpumanager.scheduler.policy import LeastLeftOver, Policy
from gpumanager.scheduler.reminders import Reminders
from gpumanager.scheduler.reminding import Reminding
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.verdicts import Verdicts
from gpumanager.scheduler.watching import Follower, Nodes, Pods

log = logging.getLogger(__name__)

PODS_REMEMBERED: Final = 8192
"""Between their filter and their bind."""
EXPIRE_SECONDS: Final = 5.0


class Election(Protocol):
    """Who decides; `Leadership`, or nobody to agree with."""

    @property
    def leads(self) -> bool: ...
    @property
    def remaining(self) -> float: ...
    @property
    def holder(self) -> str: ...
    async def run(self) -> None: ...


class Alone:
    """There is no other replica."""

    leads = True
    remaining = float("inf")
    holder = "this one"

    async def run(self) -> None:
        """Nobody has to be asked."""


class NotReady(Exception):
    """Not everything has been read yet, and an answer now might be wrong."""


class Extender:
    """Answers for one cluster. clock: seconds of assumptions. now: seconds since the epoch."""

    def __init__(
        self,
        api: ApiServer,
        *,
        policy: Policy | None = None,
        election: Callable[[Callable[[bool], None]], Election] | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.state = ClusterState()
        self.verdicts = Verdicts(self.state, policy or LeastLeftOver())
        self.memory = Memory()
        self.nodes = Follower(api, Nodes(self.state), clock=clock)
        self.pods = Follower(api, Pods(self.state), clock=clock)
        self.election: Election = election(self._leads_now) if election else Alone()
        self.reminders = Reminders(self._would_fit, lambda: self.state.changes, clock)
        self._reminding = Reminding(api, self.reminders, self._is_ours)
        self._now = now
        self._seen: OrderedDict[PodUID, PodView] = OrderedDict()
        self._binder = Binder(
            api, self.state, self.verdicts, self.election, known=self._seen.get, clock=clock
        )

    @property
    def missing(self) -> str:
        """What has not been read yet; empty once answers are good."""
        kinds = {"nodes": self.nodes, "pods": self.pods}
        return " and ".join(name for name, one in kinds.items() if not one.listed.is_set())

    async def run(self) -> None:
        """For as long as the task lives."""
        async with asyncio.TaskGroup() as group:
            for part in (self.nodes, self.pods, self.election, self._reminding):
                group.create_task(part.run())
            group.create_task(self._expire())

    def filter(self, pod: PodView, names: Sequence[str]) -> Filtered:
        """Raises NotReady."""
        ask = self._ask(pod)
        if ask is None:
            return Filtered(names, {})
        if isinstance(ask, Refusal):
            wrong = Unfit(str(ask), final=True)
            found = Filtered((), dict.fromkeys(names, wrong))
        else:
            found = self._judge(ask, names)
        self._remember(pod, len(names), found)
        if found.fitting:
            self.reminders.forget(pod.uid)
        else:
            self.reminders.refused(pod, names)
        return found

    def prioritize(self, pod: PodView, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        """Nodes with their scores; who is left out has none. Raises NotReady."""
        ask = self._ask(pod)
        if not isinstance(ask, PodAsk):
            return ()
        return prioritize(self.verdicts.of(ask), names)

    def preempt(self, pod: PodView, victims: Mapping[str, tuple[PodUID, ...]]) -> Sequence[str]:
        """The nodes on which the pod fits without these; raises NotReady."""
        ask = self._ask(pod)
        if ask is None:
            return tuple(victims)
        return () if isinstance(ask, Refusal) else tuple(preempt(self.state, ask, victims))

    async def bind(self, request: BindRequest) -> NotBound | None:
        """None once it is bound. Raises NotReady."""
        self._check()
        refused = await self._binder.bind(request)
        known = self.memory.of(request.namespace, request.name)
        self.memory.remember(
            request.namespace,
            request.name,
            Explanation(
                uid=request.uid,
                at=self._now(),
                nodes=known.nodes if known else 0,
                fitting=known.fitting if known else 0,
                reasons=known.reasons if known else (),
                bound="" if refused else request.node,
                trouble=refused.message if refused else "",
            ),
        )
        if refused is None:
            self._seen.pop(request.uid, None)
            self.reminders.forget(request.uid)
        else:
            log.warning("%s/%s: %s", request.namespace, request.name, refused.message)
        return refused

    def _judge(self, ask: PodAsk, names: Sequence[str]) -> Filtered:
        return filter_nodes(self.verdicts.of(ask), names)

    def _would_fit(self, pod: PodView, names: tuple[str, ...]) -> bool:
        """Whether a pod that waits would be told of one of these nodes now."""
        ask = ask_of(pod)
        if not isinstance(ask, PodAsk) or self.state.bound_to(pod.uid) is not None:
            return False
        return bool(self._judge(ask, names).fitting)

    def _is_ours(self) -> bool:
        return self.election.leads and not self.missing

    def _ask(self, pod: PodView) -> PodAsk | Refusal | None:
        ask = ask_of(pod)
        if ask is not None:
            self._check()
            self._seen[pod.uid] = pod
            if len(self._seen) > PODS_REMEMBERED:
                self._seen.popitem(last=False)
        return ask

    def _check(self) -> None:
        if self.missing:
            raise NotReady(f"the cluster's {self.missing} are still being read: try again")

    def _remember(self, pod: PodView, asked: int, found: Filtered) -> None:
        explanation = Explanation(
            pod.uid, self._now(), asked, len(found.fitting), reasons(found.unfit)
        )
        self.memory.remember(pod.namespace, pod.name, explanation)

    def _leads_now(self, leads: bool) -> None:  # noqa: FBT001
        """What the leader before us bound at its end may not have come here yet."""
        if leads:
            self.pods.anew()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_SECONDS)
            for uid in self.state.expire(self.pods.heard):
                log.warning("pod %s: its binding was never confirmed; its place is free", uid)
