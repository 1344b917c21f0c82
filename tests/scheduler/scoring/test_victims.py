"""Victims besides those that kube-scheduler names: few, unimportant, nobody who is protected."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpumanager.ids import PodUID
from gpumanager.kube.pod import PodView
from gpumanager.scheduler.node import read_node
from gpumanager.scheduler.scoring.preemption import TRIED, Victims, chosen, fits_without
from gpumanager.scheduler.state import ClusterState
from gpumanager.sim.cluster.objects import Key
from tests.scheduler.overview.test_cluster_page import at_once
from tests.scheduler.scheduler_world import ask, node_object, plan, pod_object, view
from tests.scheduler.served_extender import Served
from tests.waiting import until

pytest_plugins = ["tests.scheduler.extender_fixtures"]

GPUS = 4


class Holds(NamedTuple):
    """A pod with a part of one GPU."""

    gpu: int
    cores: int
    priority: int
    guarded: bool = False
    going: bool = False


def held(number: int, one: Holds, node: str = "a") -> dict[str, Any]:
    item = pod_object(
        f"p{number}",
        (one.cores, 1),
        node=node,
        uid=f"{node}{number}",
        vcuda_plan=plan(app_0=[f"GPU-{node}-{one.gpu}"]),
    )
    item["metadata"]["namespace"] = "guarded" if one.guarded else "open"
    if one.going:
        item["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z"
    item["spec"]["priority"] = one.priority
    return item


def cluster(nodes: Mapping[str, Sequence[Holds]]) -> ClusterState:
    state = ClusterState()
    for name, holders in nodes.items():
        state.node(read_node(node_object(name, GPUS)))
        for number, one in enumerate(holders):
            state.pod(view(held(number, one, name)), name)
    return state


def wanting(cores: int, priority: int, **spec: Any) -> PodView:
    item = pod_object("big", (cores, 0 if cores >= 100 else 8), uid="big")
    item["spec"] |= {"priority": priority, **spec}
    return view(item)


def uids(node: str, *numbers: int) -> Victims:
    return tuple(PodUID(f"{node}{number}") for number in numbers)


def victims(
    state: ClusterState, pod: PodView, given_: Mapping[str, Victims], cores: int
) -> dict[str, Victims]:
    wanted = ask((cores, 0 if cores >= 100 else 8))
    return at_once(chosen(state, pod, wanted, given_, {"guarded"}))


PARTS = st.sampled_from([(50, 50), (30, 30, 30), (90,), (20, 30, 50), (20, 20), ()])
RARELY = st.sampled_from([False] * 7 + [True])


@st.composite
def full_node(draw: st.DrawFn) -> list[Holds]:
    """Most of its GPUs are in parts."""
    return [
        Holds(gpu, cores, draw(st.integers(0, 3)), draw(RARELY), draw(RARELY))
        for gpu in range(GPUS)
        for cores in draw(PARTS)
    ]


@given(full_node(), st.sampled_from([60, 100, 200, 300]), st.integers(1, 4), st.data())
def test_who_goes_besides_is_needed_unimportant_and_not_protected(
    holders: list[Holds], cores: int, priority: int, data: st.DataObject
) -> None:
    lower = [n for n, one in enumerate(holders) if one.priority < priority]
    assume(lower)
    named = data.draw(st.lists(st.sampled_from(lower), min_size=1, max_size=3, unique=True))
    named.sort(key=lambda number: -holders[number].priority)
    state, wanted = cluster({"a": holders}), ask((cores, 0 if cores >= 100 else 8))

    def fits(extra: Collection[int]) -> bool:
        gone = uids("a", *named, *extra)
        return fits_without(state, wanted, "a", gone)

    found = victims(state, wanting(cores, priority), {"a": uids("a", *named)}, cores)

    open_ = {n for n in lower if not holders[n].guarded and not holders[n].going} - {*named}
    numbers = [int(uid.removeprefix("a")) for uid in found.get("a", ())]
    extra = {*numbers} - {*named}
    assert bool(found) == fits(open_)
    if found:
        assert {*named} <= {*numbers}
        assert extra <= open_
        assert fits(extra)
        assert not any(fits(extra - {one}) for one in extra)
        most = max((holders[n].priority for n in extra), default=-1)
        assert not extra or not fits([n for n in open_ if holders[n].priority < most])
        order = [holders[n].priority for n in numbers]
        assert order == sorted(order, reverse=True) or not extra


def test_one_goes_where_one_is_enough() -> None:
    """To spare the others one by one would end at both of the first GPU."""
    state = cluster({"a": [Holds(gpu, 50, 0) for gpu in (0, 0, 1, 2, 3, 1, 2, 3)]})

    found = victims(state, wanting(100, 1), {"a": uids("a", 6, 7)}, 100)

    assert found["a"] == uids("a", 6, 7, 3)


def test_two_of_little_importance_go_rather_than_one_of_more() -> None:
    full = [Holds(2, 90, 9), Holds(3, 90, 9)]
    halves = [Holds(0, 50, 1), Holds(0, 50, 0), Holds(1, 50, 0), Holds(1, 50, 0)]
    state = cluster({"a": [*halves, *full]})

    found = victims(state, wanting(100, 5), {"a": uids("a", 1)}, 100)

    assert found["a"] == uids("a", 1, 2, 3)


def test_where_victims_suffice_on_one_node_nobody_else_has_to_go() -> None:
    state = cluster(
        {name: [Holds(gpu, 50, 0) for gpu in (0, 0, 1, 1, 2, 2, 3, 3)] for name in "ab"}
    )
    given_ = {"a": uids("a", 0, 2), "b": uids("b", 0, 1)}

    assert victims(state, wanting(100, 1), given_, 100) == {"b": uids("b", 0, 1)}


@pytest.mark.parametrize("why", ["equal", "unknown victim", "near others", "budgets not known"])
def test_nobody_is_named_where_that_might_be_wrong(why: str) -> None:
    state = cluster({"a": [Holds(gpu, 50, 0) for gpu in (0, 0, 1, 1, 2, 2, 3, 3)]})
    near: dict[str, Any] = {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}
    }
    pod = wanting(100, 0 if why == "equal" else 1, **(near if why == "near others" else {}))
    named = (*uids("a", 0, 2), *((PodUID("plain"),) if why == "unknown victim" else ()))
    protected = None if why == "budgets not known" else set[str]()

    assert at_once(chosen(state, pod, ask((100, 0)), {"a": named}, protected)) == {}


def test_few_nodes_are_tried() -> None:
    names = [f"n{number}-" for number in range(TRIED + 9)]
    holders = [Holds(gpu, 50, 0) for gpu in (0, 0, 1, 1, 2, 2, 3, 3)]
    state = cluster(dict.fromkeys(names, holders))
    given_ = {name: uids(name, 0, 2) for name in names}

    assert len(victims(state, wanting(100, 1), given_, 100)) == TRIED


def budget(name: str, namespace: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}}


async def test_kube_scheduler_is_told_of_more_victims_unless_a_budget_protects_them(
    served: Served,
) -> None:
    for number, gpu in enumerate((0, 0, 1, 1, 2, 2, 3, 3)):
        await served.make("pods", held(number, Holds(gpu, 50, 0)))
    state = served.extender.state
    await until(lambda: state.counts["pods"] == 8 and served.extender.budgets.current)
    big = pod_object("big", (100, 0), uid="big")
    big["spec"]["priority"] = 7
    named = {"a": {"Pods": [{"UID": "a0"}, {"UID": "a2"}], "NumPDBViolations": 0}}
    body = {"Pod": big, "NodeNameToMetaVictims": named}

    (found,) = (await served.post("/scheduler/preempt", body))["NodeNameToMetaVictims"].values()
    assert [one["UID"] for one in found["Pods"]] == ["a0", "a2", "a1"]
    await served.make("poddisruptionbudgets", budget("all", "open"))
    await until(lambda: served.extender._protected.known)
    assert await served.post("/scheduler/preempt", body) == {"NodeNameToMetaVictims": {}}
    await served.api.remove(Key("poddisruptionbudgets", "open", "all"))
    await until(lambda: not served.extender._protected.known)


def test_a_victim_that_goes_during_the_search_does_not_end_it() -> None:
    state = cluster({"a": [Holds(gpu, 50, 1) for gpu in range(GPUS) for _ in range(2)]})
    first = uids("a", 0)
    search = chosen(state, wanting(100, 5), ask((100, 0)), {"a": first}, frozenset[str]())

    next(search)
    state.pod_gone(first[0])

    assert set(at_once(search).get("a", ())) <= set(uids("a", *range(2 * GPUS)))
