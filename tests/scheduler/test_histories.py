"""Binds, failures, watches that lag, restarts, in any order: no GPU is ever promised twice.

The API server is the simulated one's objects. A bind waits at each call it makes there until the
history says what becomes of it: done, done with the answer lost, refused, or never arrived. What
the watch tells comes one change at a time, as late as the history wants.
"""

import asyncio
from collections import deque
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scheduler_world import node_object, pod_object
from truth import overfull

from gpumanager.cluster.api import ApiRefused, ApiUnavailable
from gpumanager.kubelet.pods import PodUID, PodView, read_pod
from gpumanager.names import ANNOTATION_CORDON
from gpumanager.scheduler.bind import Binder, BindRequest, NotBound
from gpumanager.scheduler.policy import LeastLeftOver
from gpumanager.scheduler.service import Alone
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.verdicts import Verdicts
from gpumanager.scheduler.watching import Nodes, Pods
from gpumanager.sim.cluster.objects import Change, Key, Objects, Refused
from gpumanager.sim.cluster.patch import MERGE

NODES = ("a", "b")
OUTCOMES = ("done", "lost answer", "refused", "never arrived")
ASKS = st.sampled_from([(30, 8), (50, 40), (100, 0), (60, 1), (200, 0), (99, 64), (10, 33)])
SETTLE_STEPS = 20


class GatedApi:
    """Each call waits until it is told what becomes of it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.waiting: deque[asyncio.Future[str]] = deque()

    async def get(self, path: str) -> Any:
        return await self._ask(lambda: self._objects.get(self._key(path)))

    async def patch(self, path: str, body: Any) -> Any:
        return await self._ask(lambda: self._objects.patch(self._key(path), MERGE, body))

    async def create(self, path: str, body: Any) -> Any:
        key = self._key(path.removesuffix("/binding"))
        return await self._ask(lambda: self._objects.bind(key, body))

    async def _ask(self, perform: Any) -> Any:
        gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting.append(gate)
        match await gate:
            case "refused":
                raise ApiRefused("call", 403, "Forbidden", "as told")
            case "never arrived":
                raise ApiUnavailable("as told")
            case outcome:
                answer = self._perform(perform)
                if outcome == "lost answer":
                    raise ApiUnavailable("as told")
                return answer

    def _perform(self, perform: Any) -> Any:
        try:
            return perform()
        except Refused as refused:
            raise ApiRefused("call", refused.status, refused.reason, str(refused)) from None

    def _key(self, path: str) -> Key:
        words = path.split("/")
        return Key("pods", words[4], words[6])


class Histories(RuleBasedStateMachine):
    """One extender at a time, and a cluster of two nodes with four GPUs each."""

    kinds: ClassVar[dict[str, Any]] = {"pods": Pods, "nodes": Nodes}

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.objects = Objects()
        self.binds: list[asyncio.Task[NotBound | None]] = []
        self.now = 0.0
        self.made = 0

    @initialize()
    def two_nodes(self) -> None:
        for name in NODES:
            self.objects.create(Key("nodes", "", name), node_object(name))
        self.start()

    def start(self) -> None:
        """A new process: it lists, and watches from there."""
        self.api = GatedApi(self.objects)
        self.state = ClusterState()
        verdicts = Verdicts(self.state, LeastLeftOver())
        self.seen: dict[PodUID, PodView] = {}
        self.binder = Binder(
            self.api,
            self.state,
            verdicts,
            Alone(),
            known=self.seen.get,
            clock=lambda: self.now,
        )
        self.kind = {name: made(self.state) for name, made in self.kinds.items()}
        for name, kind in self.kind.items():
            kind.only({kind.put(item) for item in self.objects.list(name)})
        self.heard = len(self.objects.changes)

    @rule(apps=st.lists(ASKS, min_size=1, max_size=2), inits=st.lists(ASKS, max_size=1))
    def a_pod_comes(self, apps: list[Any], inits: list[Any]) -> None:
        name = f"p{self.made}"
        self.made += 1
        self.objects.create(Key("pods", "default", name), pod_object(name, *apps, inits=inits))

    @rule(number=st.integers(0, 30), node=st.sampled_from(NODES))
    def a_bind_begins(self, number: int, node: str) -> None:
        pods = list(self.objects.list("pods"))
        if not pods:
            return
        said = pods[number % len(pods)]["metadata"]
        request = BindRequest("default", said["name"], said["uid"], node)
        self.binds.append(self.loop.create_task(self.binder.bind(request)))
        self.settle()

    @rule(number=st.integers(0, 30))
    def a_pod_is_filtered(self, number: int) -> None:
        """From now on it is known by what it was then."""
        pods = list(self.objects.list("pods"))
        if pods:
            seen = read_pod(pods[number % len(pods)])
            self.seen[seen.uid] = seen

    @rule(outcome=st.sampled_from(OUTCOMES), which=st.integers(0, 5))
    def a_call_is_answered(self, outcome: str, which: int) -> None:
        if self.api.waiting:
            self.api.waiting.rotate(which)
            self.api.waiting.popleft().set_result(outcome)
            self.settle()

    @rule(count=st.integers(1, 5))
    def the_watch_tells(self, count: int) -> None:
        for change in self.objects.changes[self.heard : self.heard + count]:
            self.tell(change)
        self.heard = min(len(self.objects.changes), self.heard + count)

    def tell(self, change: Change) -> None:
        kind = self.kind.get(change.key.resource)
        if kind is not None and change.after is not None:
            kind.put(change.after)
        elif kind is not None:
            kind.remove(change.before)

    @rule(number=st.integers(0, 30), how=st.sampled_from(["ended", "deleted"]))
    def a_pod_goes(self, number: int, how: str) -> None:
        pods = list(self.objects.list("pods"))
        if not pods:
            return
        key = Key("pods", "default", pods[number % len(pods)]["metadata"]["name"])
        if how == "ended":
            self.objects.patch(key, MERGE, {"status": {"phase": "Succeeded"}}, status=True)
        else:
            self.objects.remove(key)

    @rule(node=st.sampled_from(NODES), gpu=st.integers(0, 4))
    def a_gpu_is_cordoned(self, node: str, gpu: int) -> None:
        notes = {ANNOTATION_CORDON: f"GPU-{node}-{gpu}"}
        self.objects.patch(Key("nodes", "", node), MERGE, {"metadata": {"annotations": notes}})

    @rule()
    def the_watch_has_told_all_for_a_long_time(self) -> None:
        """Assumptions end only by what the watch has told, and calls do not wait so long."""
        self.finish("never arrived")
        self.the_watch_tells(len(self.objects.changes))
        self.now += 3600
        self.state.expire(self.now)

    @rule(outcome=st.sampled_from(["lost answer", "never arrived"]))
    def the_extender_restarts(self, outcome: str) -> None:
        """What it was saying arrived or did not; the next one lists after that."""
        self.finish(outcome)
        self.start()

    @invariant()
    def no_gpu_is_promised_twice(self) -> None:
        assert overfull(self.objects.list("pods")) == []

    def finish(self, outcome: str) -> None:
        while self.api.waiting:
            self.api.waiting.popleft().set_result(outcome)
            self.settle()

    def settle(self) -> None:
        """Everybody goes on as far as they can."""
        for _ in range(SETTLE_STEPS):
            self.loop.run_until_complete(asyncio.sleep(0))
        for bind in [one for one in self.binds if one.done()]:
            bind.result()
            self.binds.remove(bind)

    def teardown(self) -> None:
        if hasattr(self, "api"):
            self.finish("done")
            assert self.binds == []
            self.the_watch_tells(len(self.objects.changes))
            assert overfull(self.objects.list("pods")) == []
        self.loop.close()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
