"""Binds, failures, watches that lag, restarts, in any order: no GPU is ever promised twice.

The API server is the simulated one's objects. A bind waits at each call it makes there until the
history says what becomes of it: done, done with the answer lost, refused, or never arrived. What
the watch tells comes one change at a time, as late as the history wants.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.kube.errors import ApiRefused, ApiUnavailable
from gpumanager.kube.pod import read_pod
from gpumanager.names import ANNOTATION_CORDON
from gpumanager.placement.policies import ROWS
from gpumanager.placement.preference import read_preference
from gpumanager.scheduler.extender.bind import Binder, BindRequest, NoElection
from gpumanager.scheduler.quota.rules import QuotaRules
from gpumanager.scheduler.scoring.pod_shape import PodShape, pod_shape_of
from gpumanager.scheduler.scoring.verdicts import Verdicts, filter_nodes
from gpumanager.scheduler.scoring.workload_mix import WorkloadMix
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.watching import PodWatch, node_store
from gpumanager.sim.cluster.objects import Key, Objects, StatusError
from tests.scheduler.scheduler_world import node_object, pod_object
from tests.scheduler.truth import overfull

NODES = {"a": 1, "b": 2}
"""Few GPUs, so that pods get in each other's way."""
OUTCOMES = ("done", "done", "done", "lost answer", "refused", "never arrived")
OWN_POLICIES = ("", "", "binpack", "spread,topology", "numa=strict")
POLICIES = (*ROWS, "topology", "numa=strict", "binpack=2,spread")
STEPS = 200
ASKS = ((30, 8), (50, 40), (60, 1), (100, 0), (10, 8), (20, 24), (200, 0))
SETTLE_TURNS = 20


class GatedApi:
    """Each call that changes something waits until it is told what becomes of it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.waiting: deque[asyncio.Future[str]] = deque()

    async def get(self, path: str) -> Any:
        return self._perform(lambda: self._objects.get(self._key(path)))

    async def patch(self, path: str, body: Any) -> Any:
        return await self._ask(lambda: self._objects.patch(self._key(path), body))

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
        except StatusError as refused:
            raise ApiRefused("call", refused.status, refused.reason, str(refused)) from None

    def _key(self, path: str) -> Key:
        words = path.split("/")
        return Key("pods", words[4], words[6])


class History:
    """One extender at a time, and a cluster of two nodes with three GPUs. What is by chance comes
    from `luck`; said: what happened, for who has to find out why."""

    kinds: ClassVar[dict[str, Any]] = {"pods": PodWatch, "nodes": node_store}
    nodes_stay: ClassVar[bool] = False

    def __init__(self, luck: random.Random, policy: str = "") -> None:
        self.luck = luck
        self.asks = partial(pod_shape_of, default=read_preference(policy))
        self.said: list[str] = []
        self.loop = asyncio.new_event_loop()
        self.objects = Objects()
        self.binds: list[asyncio.Task[str]] = []
        self.bound = self.now = self.made = 0
        for name, gpus in NODES.items():
            self.objects.create(Key("nodes", "", name), node_object(name, gpus))
        self.start()

    def run(self, steps: int) -> None:
        """Each step is checked; at the end everything is told and answered, and checked again."""
        for _ in range(steps):
            step = self.luck.choices(tuple(LIKELY), tuple(LIKELY.values()))[0]
            self.said.append(step.__name__)
            step(self)
            assert self.wrong() == [], self.said
        self.finish("done")
        assert self.binds == []
        self.loop.close()

    def start(self) -> None:
        """A new process: it lists, and watches from there."""
        self.api = cast("Any", GatedApi(self.objects))
        rules = self.rules()
        self.state = ClusterState(observer=rules)
        self.verdicts = Verdicts(self.state, WorkloadMix())
        self.binder = Binder(
            cast("Any", self.api),
            self.state,
            self.verdicts,
            NoElection(),
            rules,
            self.asks,
            lambda: self.now,
        )
        self.kind = {name: made(self.state) for name, made in self.kinds.items()}
        for name, kind in self.kind.items():
            items = list(self.objects.list(name))
            for item in items:
                kind.put(item)
            kind.only({kind.name(item) for item in items})
        self.heard = len(self.objects.changes)

    def rules(self) -> QuotaRules:
        return QuotaRules()

    def wrong(self) -> list[str]:
        """GPUs of which too much is promised."""
        return overfull(self.objects.list("pods"))

    def a_pod_comes(self) -> None:
        name, some = f"p{self.made}", self.luck.choices(ASKS, k=3)
        self.made += 1
        item = pod_object(
            name,
            *some[: self.luck.randint(1, 2)],
            inits=some[2:] * (self.made % 2),
            cpus=self.luck.randint(0, 3),
            vcuda_policy=self.luck.choice(OWN_POLICIES),
        )
        self.objects.create(Key("pods", "default", name), item)

    def a_pod_is_filtered(self) -> None:
        """Nothing is remembered of that."""
        if pod := self.some_pod():
            ask = self.asks(read_pod(pod))
            assert isinstance(ask, PodShape)
            fitting = filter_nodes(self.verdicts.of(ask), tuple(NODES)).fitting
            self.said.append(f"fits {fitting}")

    def a_bind_begins(self) -> None:
        """Most of pods that wait for it."""
        if pod := self.some_pod(waiting=self.luck.random() < 0.8):
            said, node = pod["metadata"], self.luck.choice(tuple(NODES))
            request = BindRequest("default", said["name"], said["uid"], node)
            self.binds.append(self.loop.create_task(self.binder.bind(request)))
            self.settle()

    def a_call_is_answered(self) -> None:
        if self.api.waiting:
            self.api.waiting.rotate(self.luck.randint(0, 5))
            self.said.append(self.luck.choice(OUTCOMES))
            self.api.waiting.popleft().set_result(self.said[-1])
            self.settle()

    def the_watch_tells(self) -> None:
        self.tell(self.luck.randint(1, 6))

    def tell(self, count: int) -> None:
        for change in self.objects.changes[self.heard : self.heard + count]:
            kind = self.kind.get(change.key.resource)
            if kind is not None and change.after is not None:
                kind.put(change.after)
            elif kind is not None:
                kind.remove(change.before)
        self.heard = min(len(self.objects.changes), self.heard + count)

    def a_pod_ends(self) -> None:
        if pod := self.some_pod():
            key = Key("pods", "default", pod["metadata"]["name"])
            self.objects.patch(key, {"status": {"phase": "Succeeded"}}, status=True)

    def a_pod_is_deleted(self) -> None:
        if pod := self.some_pod():
            self.objects.remove(Key("pods", "default", pod["metadata"]["name"]))

    def a_gpu_is_cordoned(self) -> None:
        node = self.luck.choice(tuple(NODES))
        notes = {ANNOTATION_CORDON: f"GPU-{node}-{self.luck.randint(0, 3)}"}
        if (key := Key("nodes", "", node)) in self.objects.rows:
            self.objects.patch(key, {"metadata": {"annotations": notes}})

    def a_node_goes_or_comes_back(self) -> None:
        """Back with all GPUs, some, or without an inventory at first."""
        if self.nodes_stay:
            return
        name = self.luck.choice(tuple(NODES))
        key, gpus = Key("nodes", "", name), self.luck.randint(0, NODES[name])
        if key in self.objects.rows:
            self.objects.remove(key)
        if self.luck.random() < 0.7:
            bare = {"metadata": {"name": name}}
            self.objects.create(key, node_object(name, gpus) if gpus else bare)

    def the_watch_has_told_all_for_a_long_time(self) -> None:
        """Assumptions end only by what the watch has told, and calls do not wait so long."""
        self.finish("never arrived")
        self.tell(len(self.objects.changes))
        self.now += 3600
        self.state.expire(self.now)

    def the_extender_restarts(self) -> None:
        """What it was saying arrived or did not; the next one lists after that."""
        self.finish(self.luck.choice(("lost answer", "never arrived")))
        self.start()

    def some_pod(self, *, waiting: bool = False) -> Any:
        pods = [
            one for one in self.objects.list("pods") if not waiting or "nodeName" not in one["spec"]
        ]
        return self.luck.choice(pods) if pods else None

    def finish(self, outcome: str) -> None:
        while self.api.waiting:
            self.api.waiting.popleft().set_result(outcome)
            self.settle()

    def settle(self) -> None:
        """Every task goes on as far as it can."""
        self.loop.run_until_complete(_turns(SETTLE_TURNS))
        for bind in [one for one in self.binds if one.done()]:
            self.bound += bind.result() == ""
            self.binds.remove(bind)


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


LIKELY: dict[Callable[[History], None], int] = {
    History.a_pod_comes: 15,
    History.a_pod_is_filtered: 10,
    History.a_bind_begins: 30,
    History.a_call_is_answered: 30,
    History.the_watch_tells: 20,
    History.a_pod_ends: 15,
    History.a_pod_is_deleted: 10,
    History.a_gpu_is_cordoned: 2,
    History.a_node_goes_or_comes_back: 4,
    History.the_watch_has_told_all_for_a_long_time: 2,
    History.the_extender_restarts: 2,
}


@given(st.integers(0, 1 << 32), st.sampled_from(POLICIES))
def test_no_gpu_is_promised_twice_whatever_happens_in_whatever_order(
    seed: int, policy: str
) -> None:
    History(random.Random(seed), policy).run(STEPS)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_histories_bind_many_pods(policy: str) -> None:
    histories = [History(random.Random(seed), policy) for seed in range(10)]

    for history in histories:
        history.run(STEPS)

    assert sum(history.bound for history in histories) > 30
