"""Pods that were refused by a stale view of the cluster are requeued."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from gpumanager.kube.pod import PodView, read_pod
from gpumanager.names import ANNOTATION_ROOM_FOUND
from gpumanager.scheduler.extender.requeue import (
    FIRST_REQUEUE_SECONDS,
    LONGEST_REQUEUE_SECONDS,
    PODS,
    PODS_JUDGED_AT_ONCE,
    RefusedPods,
    requeue,
)
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.in_memory import ManualClock
from tests.kube.kube_clients import client_of
from tests.scheduler.scheduler_world import node_object, pod_object
from tests.scheduler.served_extender import Served, serving
from tests.waiting import until

pytest_plugins = ["tests.scheduler.extender_fixtures"]

NODES = ("a", "b")


class World:
    """A cluster in two figures: which nodes have room, and how many changes there were."""

    def __init__(self) -> None:
        self.room: set[str] = set()
        self.changes = 0
        self.time = 100.0
        self.looks = 0
        self.refused = RefusedPods(self._fits, lambda: self.changes, lambda: self.time)

    def _fits(self, _: PodView, names: tuple[str, ...]) -> bool:
        self.looks += 1
        return bool(self.room & set(names))

    def change(self, *room: str) -> None:
        self.room = set(room)
        self.changes += 1

    def due(self, later: float = 0.0) -> list[str]:
        self.time += later
        return [one.name for one in self.refused.take_due()]

    def refuse(self, name: str) -> None:
        self.refused.add(pod(name), NODES)


def pod(name: str) -> PodView:
    return read_pod(pod_object(name, (30, 4), uid=name))


def test_a_pod_is_due_once_there_is_room_and_nobody_has_asked_for_a_while() -> None:
    world = World()
    world.refuse("p")
    world.change("a")

    assert world.due(FIRST_REQUEUE_SECONDS / 2) == []
    assert world.due(FIRST_REQUEUE_SECONDS / 2) == ["p"]


def test_who_was_asked_about_meanwhile_is_not_due() -> None:
    world = World()
    world.refuse("p")
    world.change("a")
    world.time += FIRST_REQUEUE_SECONDS
    world.refuse("p")

    assert world.due(FIRST_REQUEUE_SECONDS) == []


def test_room_on_nodes_that_were_not_asked_about_is_none() -> None:
    world = World()
    world.refuse("p")
    world.change("c")

    assert world.due(FIRST_REQUEUE_SECONDS) == []


def test_nobody_is_looked_at_twice_for_one_change() -> None:
    world = World()
    world.refuse("p")
    world.change()

    for _ in range(3):
        assert world.due(FIRST_REQUEUE_SECONDS) == []

    assert world.looks == 1
    world.change("b")
    assert world.due() == ["p"]


def test_one_pod_is_requeued_less_and_less_often() -> None:
    world = World()
    world.refuse("p")
    times = []
    for second in range(400):
        world.change("a")
        if world.due(1.0):
            times.append(second)
            world.refuse("p")  # kube-scheduler has reasons of its own

    pauses = [later - sooner for sooner, later in pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= LONGEST_REQUEUE_SECONDS


def test_what_is_kept_and_looked_at_is_bounded() -> None:
    world = World()
    for n in range(PODS + 10):
        world.refuse(f"p-{n}")
    world.change("a")

    first, second = world.due(FIRST_REQUEUE_SECONDS), world.due()

    assert len(world.refused.waiting) == PODS
    assert (len(first), len(second)) == (PODS_JUDGED_AT_ONCE, PODS_JUDGED_AT_ONCE)
    assert first[0] == "p-10"
    assert not set(first) & set(second)


async def test_a_pod_that_was_refused_before_we_heard_of_room_is_touched_when_we_do(
    api: SimulatedApiServer,
) -> None:
    """kube-scheduler had heard of it before us, and asks no more."""
    clock = ManualClock(100.0)
    await api.create("nodes", node_object("a", 1))
    async with serving(api, clock=clock) as served:
        first = await served.make("pods", pod_object("first", (60, 4)))
        await served.bind(first, "a")
        await served.make("pods", pod_object("late", (60, 4)))
        asked = {"Pod": served.pod("late"), "NodeNames": ["a"]}
        assert (await served.post("/scheduler/filter", asked))["NodeNames"] == []

        await api.remove(Key("pods", "default", "first"))
        clock.now += FIRST_REQUEUE_SECONDS

        await until(lambda: ANNOTATION_ROOM_FOUND in notes(served, "late"))
        assert (await served.post("/scheduler/filter", asked))["NodeNames"] == ["a"]
        assert len(served.extender.refused.waiting) == 0


async def test_a_pod_that_is_gone_is_not_requeued(served: Served) -> None:
    refused = served.extender.refused
    pod = await served.make("pods", pod_object("gone", (500, 4)))
    await served.post("/scheduler/filter", {"Pod": pod, "NodeNames": ["a"]})
    await until(lambda: served.extender.state.known)
    await served.api.remove(Key("pods", "default", "gone"))
    await until(lambda: not served.extender.state.known)
    ((uid, one),) = refused.waiting.items()
    fits_now = replace(one.pod, containers=read_pod(pod_object("x", (30, 4), uid="x")).containers)
    refused.waiting[uid] = replace(one, pod=fits_now, change=-1, since=0.0)

    assert refused.take_due() == ()


async def test_a_reminder_that_could_not_be_written_is_tried_again_later(
    api: SimulatedApiServer,
) -> None:
    world = World()
    world.refuse("p")
    world.change("a")
    world.time += FIRST_REQUEUE_SECONDS
    (due,) = world.refused.take_due()

    await requeue(client_of(api), due)  # there is no such pod

    world.change("a")
    assert world.due(2 * FIRST_REQUEUE_SECONDS) == ["p"]


def notes(served: Served, name: str) -> Any:
    return served.pod(name)["metadata"].get("annotations", {})
