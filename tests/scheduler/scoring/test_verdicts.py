"""Verdicts are kept while nodes change, and are what they would be if made anew."""

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.gpu.inventory import inventory
from gpumanager.ids import PodUID
from gpumanager.placement.policy import Score
from gpumanager.placement.workload_mix import Mix
from gpumanager.scheduler.node import NodeSaid, NodeState, read_node
from gpumanager.scheduler.scoring.node_scorer import Fit, NodeScorer
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit
from gpumanager.scheduler.scoring.verdicts import (
    RENEWED_AT_ONCE,
    Scores,
    ShapeVerdicts,
    Verdicts,
    filter_nodes,
    prioritize,
)
from gpumanager.scheduler.scoring.workload_mix import WorkloadMix
from gpumanager.scheduler.state import ClusterState
from tests.scheduler.scheduler_world import ask, machine, node_object, plan, pod

POLICIES = (
    "",
    "binpack",
    "spread",
    "least-waste=0.7,topology=0.3",
    "topology=strict",
    "spread,numa=strict",
)
SHAPES = (ask((30, 4)), ask((100, 0)), ask((200, 0), (30, 60), cpus=3))
EVERY_SHAPE = [
    ask(*apps, cpus=cpus, vcuda_policy=policy, vcuda_gpu_policy=gpus)
    for policy, gpus in zip(POLICIES, ("", "", "binpack", "", "spread", ""), strict=True)
    for apps, cpus in (([(30, 4)], 2), ([(100, 0)], 0), ([(200, 0), (30, 60)], 3))
]
NAMES = [f"n{number}" for number in range(6)]


def node(state: ClusterState, name: str, **more: Any) -> None:
    state.node(read_node(node_object(name, **more)))


def cluster(*names: str, **more: Any) -> ClusterState:
    state = ClusterState()
    for name in names:
        node(state, name, **more)
    return state


def shape(state: ClusterState, wanted: PodShape) -> ShapeVerdicts:
    return Verdicts(state, WorkloadMix()).of(wanted)


def fits(found: ShapeVerdicts, names: Collection[str]) -> dict[str, float]:
    """Points of those of these nodes on which it fits."""
    return {name: one for name in names if isinstance(one := found.of(name), float)}


def packed(state: ClusterState, wanted: PodShape) -> dict[str, tuple[tuple[int, ...], ...]]:
    """GPUs that it would have, by node, where it fits."""
    found = shape(state, wanted)
    judged = {name: found.judge.of(node) for name, node in state.nodes.items()}
    return {name: one.packing.gpus for name, one in judged.items() if isinstance(one, Fit)}


def scores_of(scores: Scores) -> dict[str, int]:
    return {name: score for score, names in scores for name in names}


def phrase(state: ClusterState, wanted: PodShape, name: str = "a") -> str:
    return refusals(shape(state, wanted), [name])[name].phrase


def refusals(found: ShapeVerdicts, names: Collection[str]) -> dict[str, Unfit]:
    """Details are of the first of the nodes with one phrase."""
    return {name: one.why for one in filter_nodes(found, names).left for name in one.names}


def hold(state: ClusterState, name: str, on: str, gpu: int, cores: int = 60) -> None:
    said = plan(app_0=[f"GPU-{on}-{gpu}"])
    state.pod(pod(name, (cores, cores // 2), node=on, vcuda_plan=said), on)


def busy(state: ClusterState, name: str, on: str, cpus: int) -> None:
    """A pod without GPUs."""
    state.pod(pod(name, cpus=cpus, node=on), on)


CHANGE = st.tuples(
    st.sampled_from(["hold", "go", "cordon", "node goes", "gpus change", "busy", "other pods"]),
    st.sampled_from(NAMES),
    st.integers(0, 3),
)


def change(state: ClusterState, habits: WorkloadMix, what: str, name: str, gpu: int) -> None:
    match what:
        case "busy":
            busy(state, f"busy-{gpu}", name, 2 * gpu)
        case "other pods":
            habits.mix = Mix(((EVERY_SHAPE[gpu].pod_request(), 1.0),))
        case "hold":
            hold(state, f"{name}-{gpu}", name, gpu)
        case "go":
            state.pod_gone(PodUID(f"uid-{name}-{gpu}"))
        case "cordon":
            node(state, name, gpu_cordon=f"GPU-{name}-{gpu}")
        case "node goes":
            state.node_gone(name)
        case "gpus change":
            node(state, name, gpus=gpu + 1, cpus=8)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 99)), max_size=12),
    st.permutations(NAMES),
    st.sampled_from(EVERY_SHAPE),
)
def test_other_names_change_nothing_but_the_names(
    held: list[tuple[int, int, int]], names: list[str], wanted: PodShape
) -> None:
    def scores(called: list[str]) -> list[int | None]:
        state = cluster(*called)
        for place, gpu, cores in held:
            hold(state, f"p-{place}-{gpu}-{cores}", called[place], gpu, cores)
        found = shape(state, wanted)
        given_ = scores_of(prioritize(found, called))
        fitting = fits(found, called)
        return [given_.get(name, 0) if name in fitting else None for name in called]

    assert scores(NAMES) == scores(names)


@given(
    st.lists(st.tuples(st.lists(CHANGE, max_size=6), st.sets(st.sampled_from(NAMES))), max_size=6),
    st.integers(1, 8),
    st.sets(st.sampled_from(EVERY_SHAPE), min_size=1, max_size=4),
)
def test_a_question_about_few_nodes_has_the_answer_of_one_about_all(
    histories: list[tuple[list[tuple[str, str, int]], set[str]]], log: int, shapes: set[PodShape]
) -> None:
    state, habits = ClusterState(log), WorkloadMix()
    for number in range(30):
        node(state, f"n{number}", cpus=8)
    kept = Verdicts(state, habits)
    for changes, names in histories:
        for one in changes:
            change(state, habits, *one)
        for wanted in shapes:
            few, every = kept.of(wanted), Verdicts(state, habits).of(wanted)
            found, expected = filter_nodes(few, names), filter_nodes(every, names)
            assert set(found.fitting) == set(expected.fitting)
            assert refusals(few, names) == refusals(every, names)
            assert scores_of(prioritize(few, names)) == scores_of(prioritize(every, names))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that a scorer looks at."""
    found: list[str] = []
    score = NodeScorer.score

    def counting(scorer: NodeScorer, node: NodeState) -> Score | None:
        found.append(node.name)
        return score(scorer, node)

    monkeypatch.setattr(NodeScorer, "score", counting)
    return found


def test_a_change_is_looked_at_on_one_node_alone(judged: list[str]) -> None:
    state = cluster(*NAMES)
    verdicts = Verdicts(state, WorkloadMix())
    filter_nodes(verdicts.of(SHAPES[0]), NAMES)
    hold(state, "p", "n3", 0)
    judged.clear()

    filter_nodes(verdicts.of(SHAPES[0]), NAMES)

    assert judged == ["n3"]


def test_a_question_about_few_nodes_costs_no_look_at_the_others(judged: list[str]) -> None:
    names = [f"n{number}" for number in range(40)]
    verdicts = Verdicts(cluster(*names), WorkloadMix())

    filter_nodes(verdicts.of(SHAPES[0]), ["n3", "n30"])

    assert sorted(judged) == ["n3", "n30"]


def test_when_other_pods_are_usual_points_are_renewed_a_few_at_a_time(judged: list[str]) -> None:
    names = [f"n{number}" for number in range(RENEWED_AT_ONCE + 5)]
    state, habits = ClusterState(), WorkloadMix()
    for number, name in enumerate(names, start=1):
        node(state, name)
        hold(state, f"p-{name}", name, 0, number)
    verdicts = Verdicts(state, habits)
    filter_nodes(verdicts.of(SHAPES[0]), names)
    judged.clear()

    habits.mix = Mix(((ask((60, 32)).pod_request(), 1.0),))
    filter_nodes(verdicts.of(SHAPES[0]), names)

    assert len(judged) == RENEWED_AT_ONCE
    renewed = verdicts.of(SHAPES[0])
    assert sorted(judged) == sorted(names)
    assert fits(renewed, names) == fits(Verdicts(state, habits).of(SHAPES[0]), names)
    judged.clear()
    verdicts.of(SHAPES[0])
    assert judged == []


def test_refusals_are_in_kubernetes_own_words() -> None:
    state = cluster("a")
    for gpu in range(4):
        hold(state, f"p{gpu}", "a", gpu, 60)

    assert (
        phrase(state, ask((70, 1))) == "node(s) had the tencent.com/vcuda-core only on several GPUs"
    )
    assert phrase(state, ask((30, 60))) == "Insufficient tencent.com/vcuda-memory"
    assert phrase(state, ask((100, 0))) == "node(s) didn't have enough untouched GPUs"
    assert phrase(state, ask((400, 0))) == "Insufficient tencent.com/vcuda-core"
    assert phrase(state, ask((30, 65))) == "node(s) didn't have large enough GPUs"
    assert phrase(state, ask((500, 0))) == "node(s) didn't have enough GPUs"


CLOSED, FULL = "node(s) had unhealthy or cordoned GPUs", "Insufficient tencent.com/vcuda-core"


@pytest.mark.parametrize(
    ("said", "held", "why"),
    [
        pytest.param({"unhealthy": ["GPU-a-0"]}, False, CLOSED, id="unhealthy"),
        pytest.param({"gpu_cordon": "GPU-x-9, GPU-a-0"}, False, CLOSED, id="cordoned"),
        pytest.param({"gpu_cordon": "*"}, False, CLOSED, id="all cordoned"),
        pytest.param({"gpu_cordon": "*"}, True, CLOSED, id="held and cordoned"),
        pytest.param({}, True, FULL, id="full"),
    ],
)
def test_nothing_new_is_placed_on_what_is_held_or_closed(
    said: dict[str, Any], *, held: bool, why: str
) -> None:
    state = cluster("a", gpus=1, **said)
    if held:
        full = plan(app_0=["GPU-a-0"])
        state.pod(pod("p", (100, 64), node="a", vcuda_plan=full), "a")

    assert phrase(state, SHAPES[0]) == why


def test_of_a_node_with_one_gpu_cordoned_the_other_is_used() -> None:
    assert packed(cluster("a", gpus=2, gpu_cordon="GPU-a-0"), SHAPES[0]) == {"a": ((1,),)}


def test_neither_is_a_wrong_inventory_taken_for_none() -> None:
    state = cluster()
    state.node(NodeSaid("lost"))
    state.node(NodeSaid("wrong", "no JSON"))
    state.node(NodeSaid("newer", '{"version": 9}'))

    assert phrase(state, SHAPES[0], "lost") == "node(s) had no GPUs"
    for name in ("wrong", "newer"):
        assert phrase(state, SHAPES[0], name).startswith("node(s) had an inventory")


def test_a_pod_may_select_gpus_by_model_and_by_uuid() -> None:
    state = cluster("a")
    (text,) = inventory(machine("b", model="NVIDIA A100-SXM4-80GB")).values()
    state.node(NodeSaid("b", text))

    def fits(**notes: str) -> dict[str, tuple[tuple[int, ...], ...]]:
        return packed(state, ask((30, 4), **notes))

    assert fits() == {"a": ((0,),), "b": ((0,),)}
    assert fits(include_gpu_model="h100,a100") == {"b": ((0,),)}
    assert fits(exclude_gpu_model="A100") == {"a": ((0,),)}
    assert fits(include_gpu_uuid="GPU-b-2") == {"b": ((2,),)}
    assert fits(exclude_gpu_uuid="GPU-a-0") == {"a": ((1,),), "b": ((0,),)}


@pytest.mark.parametrize(
    ("notes", "free"),
    [
        pytest.param(
            {
                "vcuda_plan": plan(app_0=["GPU-a-0"]),
                "predicate_gpu_idx_0": "0",  # minor 0 is the last one here
                "gpu_assigned": "true",
            },
            [100, 100, 100, 40],
            id="what the agent says before what was planned",
        ),
        pytest.param({}, [40, 100, 100, 100], id="placed without us: where the node would put it"),
        pytest.param(
            {"vcuda_plan": plan(app_0=["GPU-a-2"]), "vcuda_policy": "no such"},
            [100, 100, 40, 100],
            id="whatever policy it names",
        ),
    ],
)
@pytest.mark.parametrize("known", ["node", "pod"])
def test_a_pod_counts_on_its_gpus_whichever_is_known_first(
    notes: dict[str, str], free: list[int], known: str
) -> None:
    state = cluster(*(["a"] if known == "node" else []))
    state.pod(pod("p", (60, 4), node="a", **notes), "a")
    node(state, "a")

    a = state.nodes["a"]
    assert [a.free_gpus.of(gpu).cores for gpu in a.topology.gpus] == free


def test_the_best_score_10_and_the_next_9() -> None:
    state = cluster("a", "b", "c", "d")
    hold(state, "p", "b", 0, 50)
    hold(state, "q", "c", 0, 49)

    scores = scores_of(prioritize(shape(state, ask((30, 4))), ["a", "b", "c", "d", "x"]))

    assert scores == {"b": 10, "c": 9, "a": 8, "d": 8}


def test_of_many_steps_ten_are_scored() -> None:
    names = [f"n{number}" for number in range(15)]
    state = cluster(*names)
    for cores, name in enumerate(names, start=1):
        hold(state, f"p{cores}", name, 0, cores)

    scores = scores_of(prioritize(shape(state, ask((30, 4))), names))

    assert scores == {f"n{number}": number - 4 for number in range(5, 15)}
