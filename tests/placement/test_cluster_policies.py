"""Policies of the cluster: what they name can be kept, and names decide nothing."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.placement import workload_mix
from gpumanager.placement.least_waste import expected_fill, gpu_pods_cpu_part, worth_under
from gpumanager.placement.policies import DEFAULT_POLICY, POLICIES
from gpumanager.placement.policy import Policy, Score
from gpumanager.placement.values import FreeGpu, FreeNode, PodRequest, Request, idle_gpu
from gpumanager.placement.workload_mix import Mix, RecentPods, mix_of
from tests.placement.free_nodes import MODELS, ask, asks, flaws, mixes, room, rooms, usual

policies = st.sampled_from(sorted(POLICIES)).map(POLICIES.__getitem__)
DEFAULT = POLICIES[DEFAULT_POLICY]


def best(rooms: list[FreeNode], wanted: PodRequest, mix: Mix) -> FreeNode:
    scores = [DEFAULT.score(one, wanted, mix) for one in rooms]
    return max(
        zip(rooms, scores, strict=True), key=lambda pair: pair[1].points if pair[1] else -1e9
    )[0]


def chosen(score: Score | None) -> tuple[tuple[int, ...], ...]:
    assert score is not None
    return score.gpus


@given(rooms(), asks(), mixes, policies)
def test_what_a_policy_names_can_be_kept(
    here: FreeNode, wanted: PodRequest, mix: Mix, policy: Policy
) -> None:
    score = policy.score(here, wanted, mix)

    assert score is None or flaws(here, wanted, score.gpus) == []


@given(rooms(), asks(most=1), mixes, policies)
def test_a_node_is_refused_to_one_container_only_where_there_is_no_way(
    here: FreeNode, wanted: PodRequest, mix: Mix, policy: Policy
) -> None:
    ways = [()] if not wanted.requests else [(way,) for way in _ways(here, wanted.requests[0])]
    possible = any(not flaws(here, wanted, way) for way in ways)

    assert (policy.score(here, wanted, mix) is not None) == possible


def _ways(here: FreeNode, request: Request) -> list[tuple[int, ...]]:
    if request.cores < 100:
        return [(index,) for index in range(len(here.gpus))]
    able = [n for n, g in enumerate(here.gpus) if g.whole and g.memory >= request.blocks]
    return [tuple(able[: request.cores // 100])]


@given(rooms(), asks(), mixes, policies, st.randoms(use_true_random=False))
def test_neither_names_nor_the_order_of_gpus_change_the_points(
    here: FreeNode, wanted: PodRequest, mix: Mix, policy: Policy, chance: Random
) -> None:
    gpus = list(here.gpus)
    chance.shuffle(gpus)
    other = replace(here, name="another", gpus=tuple(gpus))

    first, second = policy.score(here, wanted, mix), policy.score(other, wanted, mix)

    if len(wanted.requests) < 2:  # several go one after another: equal GPUs may fall differently
        assert (first is None) == (second is None)
        assert first is None or second is None or abs(first.points - second.points) < 1e-9


V100 = frozenset({"V100"})
LARGE = usual((50, 4, 1), (100, 8, 3))


@pytest.mark.parametrize(
    ("taken", "other", "wanted", "mix"),
    [
        pytest.param(room(100, 50), room(100, 100), ask(50), LARGE,
                     id="a whole GPU stays whole while a broken one will do"),
        pytest.param(room(100, 50), room(100, 100), ask(50), Mix(),
                     id="something is usual before anything is known"),
        pytest.param(room(0, 0, cpus=30), room(100, 100, cpus=30), ask(cpus=20),
                     usual((100, 12, 1)), id="CPU is taken where no GPU needs it"),
        pytest.param(room(100, 100, cpus=64), room(100, 100, cpus=30), ask(100, cpus=30),
                     usual((100, 12, 9), (100, 30, 1)),
                     id="a pod with much CPU goes where CPU is plenty"),
        pytest.param(room(100, 100, model="T4"), room(100, 100, model="V100"), ask(100, cpus=8),
                     mix_of([(PodRequest((Request(100),), 8000, models=V100), 1.0),
                             (ask(100, cpus=8), 4.0)], 1.0),
                     id="a model that some pods name is kept for them"),
    ],
)  # fmt: skip
def test_of_two_nodes_the_default_takes_one(
    taken: FreeNode, other: FreeNode, wanted: PodRequest, mix: Mix
) -> None:
    assert best([other, taken], wanted, mix) == taken
    assert best([taken, other], wanted, mix) == taken


def test_a_share_fills_the_remainder_that_suits_it() -> None:
    mix = usual((81, 4, 1), (47, 4, 1), (100, 8, 1))

    assert chosen(DEFAULT.score(room(100, 81, 53), ask(47), mix)) == ((2,),)


def test_cpu_that_pods_without_gpus_take_feeds_nobody() -> None:
    alone, beside = (
        usual((100, 12, 1)),
        mix_of([(ask(100, cpus=12), 1.0), (ask(cpus=36), 1.0)], 1.0),
    )
    plenty, tight = room(100, 100, cpus=60), room(100, 100, cpus=30)

    assert gpu_pods_cpu_part(alone) == 1
    assert gpu_pods_cpu_part(beside) == pytest.approx(0.25)
    assert worth_under(alone).of(plenty) == worth_under(alone).of(tight)
    assert worth_under(beside).of(plenty) > worth_under(beside).of(tight)


@pytest.mark.parametrize("typical", [(), (ask(cpus=8),), (ask(cpus=0), ask(100, cpus=0))])
def test_without_pods_that_tell_all_cpu_is_for_gpus(typical: tuple[PodRequest, ...]) -> None:
    assert gpu_pods_cpu_part(mix_of([(one, 1.0) for one in typical], 1.0)) == 1


@pytest.mark.parametrize(("supply", "taken"), [((0.8, 0.2), "T4"), ((0.2, 0.8), "V100")])
def test_of_two_models_that_pods_name_the_scarcer_is_left_to_them(
    supply: tuple[float, float], taken: str
) -> None:
    """As many pods name the one as the other; only how many GPUs there are of each differs."""
    named = [PodRequest((Request(100),), 8000, models=frozenset({model})) for model in MODELS]
    mix = mix_of([*((one, 1.0) for one in named), (ask(100, cpus=8), 4.0)], 1.0)
    nodes = [room(100, 100, model=model) for model in MODELS]

    known = replace(mix, supply=tuple(zip(MODELS, supply, strict=True)))

    assert best(nodes, ask(100, cpus=8), known).model == taken


def test_what_there_is_of_each_model_is_no_matter_where_no_pod_names_any() -> None:
    mix = usual((81, 4, 1), (47, 4, 1), (100, 8, 1))
    known = replace(mix, supply=(("T4", 0.1), ("V100", 0.9)))

    for here in (room(100, 81, 53), room(100, 20), room(100, 100, model="V100")):
        assert DEFAULT.score(here, ask(47), known) == DEFAULT.score(here, ask(47), mix)


def test_memory_of_a_gpu_strands_its_cores_too() -> None:
    mix = mix_of([(PodRequest((Request(25, 16),), 1000), 1.0)], 1.0)
    here = replace(room(), gpus=(idle_gpu(64), FreeGpu(50, 4, 1, 64)))

    assert chosen(DEFAULT.score(here, PodRequest((Request(25, 4),)), mix)) == ((1,),)


@pytest.mark.parametrize("free", [0, 10, 24, 25, 49, 50, 75, 100])
def test_what_fills_a_gpu_is_what_shares_of_the_mix_add_up_to(free: int) -> None:
    filled = expected_fill([(ask(25), 1.0)])

    assert filled[free] == pytest.approx(free // 25 * 25)


def test_a_mix_is_the_most_frequent_asks() -> None:
    history = RecentPods()
    for wanted in [ask(100)] * 6 + [ask(50)] * 3 + [ask(25)]:
        history.count(wanted)

    typical = history.mix(coverage=0.85).typical

    assert [wanted for wanted, _ in typical] == [ask(100), ask(50)]
    assert [share for _, share in typical] == pytest.approx([2 / 3, 1 / 3], rel=1e-3)


def test_what_came_long_ago_counts_less() -> None:
    history = RecentPods(half_life=10)
    for wanted in [ask(100)] * 30 + [ask(50)] * 20:
        history.count(wanted)

    assert history.mix().typical[0][0] == ask(50)


def test_a_history_stays_small_and_finite_and_forgets_nothing_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workload_mix, "MOST_SHAPES", 100)
    history = RecentPods(half_life=1)
    for number in range(2500):
        history.count(ask(50, cpus=number))
        assert len(history._weights) == number + 1 or number >= 100

    assert len(history._weights) <= 100
    assert history.mix().typical[0][0] == ask(50, cpus=2499)
