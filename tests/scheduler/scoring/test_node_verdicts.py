"""A node is judged by the policy that the pod or its cluster names; its own code decides where."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.gpu.inventory import inventory
from gpumanager.gpu.values import Bond, Topology, topology
from gpumanager.ids import PodUID
from gpumanager.placement.least_waste import gpu_pods_cpu_part
from gpumanager.placement.preference import Preference, read_preference
from gpumanager.placement.workload_mix import Mix
from gpumanager.scheduler.node import NodeSaid, NodeState, holder_of, read_node
from gpumanager.scheduler.scoring.node_scorer import WORST, Fit, NodeScorer
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import PodShape, pod_shape_of
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit
from gpumanager.scheduler.scoring.workload_mix import WorkloadMix, beside_others, difference
from gpumanager.scheduler.state import ClusterState
from tests.scheduler.scheduler_world import ask, machine, node_object, plan, pod

POLICIES = ("least-waste", "binpack", "spread", "spread,topology", "numa=strict,topology=strict")


def node(*held: int, name: str = "a", **more: Any) -> NodeState:
    """Four GPUs, two on a switch; held: cores of each, and half as many blocks."""
    state = ClusterState()
    state.node(read_node(node_object(name, **more)))
    for gpu, cores in enumerate(held):
        if cores:
            said = plan(app_0=[f"GPU-{name}-{gpu}"])
            asked = pod(f"p{gpu}", (cores, cores // 2), node=name, vcuda_plan=said)
            state.pod(asked, name)
    return state.nodes[name]


def linked(name: str, *pairs: tuple[int, int]) -> NodeState:
    """The same GPUs, two of a kind on a NUMA node, with NVLink between these."""
    plain = machine(name)
    bonds = [list(row) for row in plain.bonds]
    for a, b in pairs:
        bond = plain.bond(a, b)
        bonds[a][b] = bonds[b][a] = Bond(bond.level, 2)
    gpus = [replace(gpu, numa_node=place // 2) for place, gpu in enumerate(plain.gpus)]
    return of(topology(gpus, bonds), name)


def of(there: Topology, name: str = "a") -> NodeState:
    state = ClusterState()
    (text,) = inventory(there).values()
    state.node(NodeSaid(name, text))
    return state.nodes[name]


def fit(here: NodeState, *apps: tuple[int, int], **more: Any) -> Fit:
    found = NodeScorer(ask(*apps, **more)).of(here)
    assert isinstance(found, Fit)
    return found


def refused(here: NodeState, *apps: tuple[int, int], **more: Any) -> Unfit:
    found = NodeScorer(ask(*apps, **more)).of(here)
    assert isinstance(found, Unfit)
    return found


def test_the_policy_decides_which_gpu_a_share_gets() -> None:
    here = node(50, 0, 20, 100)

    assert fit(here, (30, 4), vcuda_policy="binpack").packing.gpus == ((0,),)
    assert fit(here, (30, 4), vcuda_policy="spread").packing.gpus == ((1,),)


def test_nodes_and_gpus_may_have_different_policies() -> None:
    here, empty = node(50, 0, 20, 100), node()
    how = {"vcuda_policy": "spread", "vcuda_gpu_policy": "binpack"}

    assert fit(here, (30, 4), **how).packing.gpus == ((0,),)
    assert fit(here, (30, 4), **how).points < fit(empty, (30, 4), **how).points


def test_whole_gpus_are_the_choice_of_the_node() -> None:
    here = node(30, 0, 0, 0)

    for policy in ("least-waste", "binpack", "spread"):
        assert fit(here, (200, 0), vcuda_policy=policy).packing.gpus == ((2, 3),)


def test_better_linked_nodes_have_more_points_for_who_wants_them() -> None:
    plain, better = linked("a"), linked("b", (0, 1))

    assert fit(plain, (200, 0)).points == fit(better, (200, 0)).points
    for policy in ("topology", "least-waste=0.7,topology=0.3", "link"):
        points = [fit(one, (200, 0), vcuda_policy=policy).points for one in (plain, better)]
        assert points[0] < points[1]


def test_a_strict_pod_is_refused_in_words_that_say_what_is_missing() -> None:
    island = linked("a", (0, 2))

    assert fit(island, (200, 0), vcuda_policy="topology=strict").packing.gpus == ((0, 2),)
    assert fit(island, (200, 0), vcuda_policy="numa=strict").packing.gpus == ((0, 1),)
    assert fit(island, (100, 0), vcuda_policy="topology=strict,numa=strict")
    why = refused(island, (300, 0), vcuda_policy="topology=strict")
    assert why.phrase == "node(s) didn't have enough free GPUs connected by NVLink"
    assert why.final
    assert why.detail == "3 whole GPUs asked, strict about topology"
    both = refused(island, (200, 0), vcuda_policy="numa=strict,topology=strict")
    assert (both.phrase, both.final) == (why.phrase, True)


def test_what_others_hold_for_now_is_no_reason_for_ever() -> None:
    island = linked("a", (0, 1), (2, 3))
    taken = pod("p", (100, 0), node="a", vcuda_plan=plan(app_0=["GPU-a-0"]))
    other = pod("q", (100, 0), node="a", vcuda_plan=plan(app_0=["GPU-a-3"]))
    holders = {one.uid: holder_of(ask((100, 0)), island, one) for one in (taken, other)}

    why = refused(island.with_holders(holders), (200, 0), vcuda_policy="topology=strict")

    assert (why.phrase.endswith("connected by NVLink"), why.final) == (True, False)


def test_each_container_s_gpus_are_near_to_each_other_not_all_of_the_pod() -> None:
    found = fit(linked("a"), (200, 0), (200, 0), vcuda_policy="numa=strict")

    assert found.packing.gpus == ((0, 1), (2, 3))


def test_cpu_and_memory_weigh_and_never_refuse() -> None:
    poor, rich = node(cpus=1), node(cpus=64)

    assert fit(poor, (100, 0), cpus=8).points < fit(rich, (100, 0), cpus=8).points


def test_an_init_container_does_not_count_beside_those_that_come_after_it() -> None:
    assert fit(node(0, 100, 100, 100), (60, 4), inits=[(60, 4)]).points > WORST


def test_a_model_that_others_need_is_left_to_them() -> None:
    plain = of(machine("a", model="NVIDIA A100"))
    scarce = of(machine("b", model="NVIDIA H100"))
    models = frozenset({"NVIDIA A100", "NVIDIA H100"})
    wants = ask((100, 0), include_gpu_model="h100")
    mix = Mix(((wants.pod_request(models), 0.3), (ask((100, 0)).pod_request(), 0.7)))

    judge = NodeScorer(ask((100, 0)), models, mix)
    points = [judge.of(one) for one in (plain, scarce)]

    assert all(isinstance(one, Fit) for one in points)
    assert getattr(points[0], "points", 0) > getattr(points[1], "points", 0)


ASK = st.one_of(
    st.tuples(st.integers(1, 99), st.integers(1, 64)),
    st.tuples(st.sampled_from([100, 200, 300]), st.integers(0, 64)),
)


@given(
    st.tuples(*[st.sampled_from([0, 0, 20, 50, 70, 100])] * 4),
    st.lists(ASK, min_size=1, max_size=3),
    st.lists(ASK, max_size=2),
    st.sampled_from(POLICIES),
)
def test_what_a_verdict_names_is_always_feasible_on_the_node(
    held: tuple[int, ...], apps: list[Any], inits: list[Any], policy: str
) -> None:
    here, wanted = node(*held), ask(*apps, inits=inits, cpus=2, vcuda_policy=policy)

    found = NodeScorer(wanted).of(here)

    own = here.place(wanted)
    if isinstance(found, Fit):
        left = {place: book_of(here, place) for place in range(4)}
        for place, (cores, blocks, _) in found.packing.uses.items():
            assert left[place][0] >= cores
            assert left[place][1] >= blocks
        for one, gpus in zip(wanted.requests, found.packing.gpus, strict=True):
            assert len(gpus) == len(set(gpus)) == max(1, one.whole_gpus)
    else:
        assert not isinstance(own, Packing)


FREE = st.tuples(st.integers(0, 100), st.integers(0, 60))
FULL_ASKS = st.sampled_from([(30, 4), (30, 60), (50, 70), (100, 0), (200, 0), (800, 0), (10, 1)])


@given(st.lists(FREE, min_size=4, max_size=4), FULL_ASKS)
def test_the_phrase_of_a_full_node_is_that_of_placing_the_pod_there(
    free: list[tuple[int, int]], wanted: tuple[int, int]
) -> None:
    """Without placing it."""
    here = node()
    rows = zip(here.gpus, free, strict=True)
    gpus = tuple(one._replace(cores=cores, blocks=blocks) for one, (cores, blocks) in rows)
    here = replace(here, gpus=gpus)
    scorer = NodeScorer(ask(wanted))

    placed, short = scorer.of(here), scorer.of(here, full_is_enough=True)

    if isinstance(placed, Fit):
        assert short == placed
    else:
        assert not isinstance(short, Fit)
        assert (short.phrase, short.final) == (placed.phrase, placed.final)


def book_of(here: NodeState, place: int) -> tuple[int, int]:
    book = here.free_gpus.of(here.topology.gpus[place])
    return book.cores, book.blocks


@pytest.mark.parametrize("policy", ["", "spread", "topology=strict"])
def test_the_cluster_s_policy_is_that_of_pods_that_name_none(policy: str) -> None:
    cluster = read_preference(policy)
    asked = pod_shape_of(pod("p", (30, 4)), cluster)
    own = pod_shape_of(pod("p", (30, 4), vcuda_policy="binpack"), cluster)

    assert getattr(asked, "preference", None) == cluster
    assert getattr(own, "preference", Preference()).nodes == (("binpack", 1.0),)


def test_a_mix_is_made_after_a_hundred_pods_and_kept_while_habits_last() -> None:
    habits, one, other = WorkloadMix(), ask((30, 4)), ask((100, 0), cpus=4)
    for _ in range(99):
        habits.saw(one, {})
    nothing = habits.mix
    habits.saw(one, {})
    first = habits.mix
    assert not nothing.typical
    assert [usual for usual, _ in first.typical] == [one.pod_request()]

    for _ in range(1000):
        habits.saw(one, {})
    assert habits.mix is first

    for _ in range(1000):
        habits.saw(other, {})
    assert {usual for usual, _ in habits.mix.typical} == {one.pod_request(), other.pod_request()}


def test_how_many_leave_is_learnt_as_seldom_as_the_rest() -> None:
    habits, one = WorkloadMix(), ask((30, 4))
    for _ in range(1000):
        habits.saw(one, {})
    fills = habits.mix
    for _ in range(999):
        habits.saw(one, {})
        habits.left()
    assert habits.mix is fills
    assert fills.leaving == 0.0

    habits.saw(one, {})
    lives = habits.mix
    assert lives.typical == fills.typical
    assert 0.5 < lives.leaving < 1

    for _ in range(40):
        habits.left()
    for _ in range(1000):
        habits.saw(one, {})
        habits.left()
    assert difference(lives, habits.mix) > 0.1
    steady = habits.mix
    for _ in range(2000):
        habits.saw(one, {})
        habits.left()
    assert habits.mix is steady


def test_a_mix_knows_the_models_that_pods_name_and_how_many_gpus_there_are_of_each() -> None:
    gpus = {"NVIDIA A100": 12, "NVIDIA H100": 4}
    known, one = WorkloadMix(), ask((100, 0), include_gpu_model="h100")
    for _ in range(100):
        known.saw(one, gpus)

    assert [usual.models for usual, _ in known.mix.typical] == [frozenset({"NVIDIA H100"})]
    assert known.mix.supply == (("NVIDIA A100", 0.75), ("NVIDIA H100", 0.25))

    before, gpus["NVIDIA H100"] = known.mix, 12
    for _ in range(1000):
        known.saw(one, gpus)
    assert difference(before, known.mix) == 0.25


def test_gpus_are_counted_by_product_while_their_nodes_are_there() -> None:
    state = ClusterState()
    for name in ("a", "b"):
        state.node(read_node(node_object(name)))
    state.pod(pod("p", (30, 4), node="a"), "a")
    model = next(iter(state.models))
    assert dict(state.gpus) == {model: 8}

    state.node_gone("b")
    assert dict(state.gpus) == {model: 4}


def test_mixes_differ_by_the_pods_that_are_of_another_kind() -> None:
    one, other = ask((30, 4)).pod_request(), ask((100, 0)).pod_request()

    assert difference(Mix(((one, 1.0),)), Mix(((one, 0.75), (other, 0.25)))) == 0.25
    assert difference(Mix(), Mix(((one, 1.0),))) == 0.5
    assert difference(Mix(((one, 1.0),)), Mix(((one, 1.0),), leaving=0.75)) == 0.75


def test_others_leave_pods_with_gpus_their_part_of_the_cpu() -> None:
    one, other = ask((30, 4), cpus=4).pod_request(), ask((100, 0), cpus=8).pod_request()
    usual = Mix(((one, 0.75), (other, 0.25)))

    for part in (0.2, 0.5, 0.9):
        assert gpu_pods_cpu_part(beside_others(usual, part)) == pytest.approx(part, abs=0.001)
    assert beside_others(usual, 1.0) is usual
    assert gpu_pods_cpu_part(beside_others(usual, 0.0)) == pytest.approx(0.05, abs=0.001)
    assert difference(usual, beside_others(usual, 0.7)) == pytest.approx(0.3, abs=0.001)


def test_who_takes_the_cpu_of_nodes_with_gpus_is_counted() -> None:
    state = ClusterState()
    for name in ("a", "b"):
        state.node(read_node(node_object(name, cpus=64)))
    assert state.gpu_pods_cpu_part == 1.0

    state.pod(pod("p", (30, 4), cpus=3, node="a"), "a")
    state.pod(pod("plain", cpus=6, node="b"), "b")
    state.pod(pod("elsewhere", cpus=60, node="c"), "c")
    assert state.gpu_pods_cpu_part == pytest.approx(1 / 3)

    state.node_gone("b")
    assert state.gpu_pods_cpu_part == 1.0
    state.node(read_node(node_object("b", gpus=2, cpus=64)))
    assert state.gpu_pods_cpu_part == pytest.approx(1 / 3)
    state.pod_gone(PodUID("uid-plain"))
    assert state.gpu_pods_cpu_part == 1.0


class Seen(WorkloadMix):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[PodShape] = []
        self.gone = 0

    def saw(self, ask: PodShape, gpus: Mapping[str, int], part: float = 1.0) -> None:
        self.seen.append(ask)
        super().saw(ask, gpus, part)

    def left(self) -> None:
        self.gone += 1


def test_a_pod_is_learnt_from_once_bound_or_not() -> None:
    habits = Seen()
    state = ClusterState(habits=habits)
    waiting, bound = pod("p", (30, 4)), pod("p", (30, 4), node="a")

    for _ in range(2):
        state.pod(waiting, "")
        state.pod(bound, "a")
    state.pod(pod("host-only", cpus=2, node="a"), "a")

    assert habits.seen == [ask((30, 4))]


def test_a_pod_leaves_once_deleted_or_ended() -> None:
    habits = Seen()
    state = ClusterState(habits=habits)
    for name in ("deleted", "ended", "missed"):
        state.pod(pod(name, (30, 4), node="a"), "a")
    state.pod(pod("host-only", cpus=2, node="a"), "a")

    for _ in range(2):
        state.pod_gone(PodUID("uid-deleted"))
        state.pod(replace(pod("ended", (30, 4), node="a"), phase="Failed"), "a")
        state.pod_gone(PodUID("uid-host-only"))
    state.only_pods([])

    assert habits.gone == 3
