"""Claims: the GPUs that kube-scheduler takes, and how nodes are judged by them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.placement.least_waste import PRIOR
from gpumanager.placement.policies import POLICIES
from gpumanager.placement.slice_score import POINTS, SliceScore, first_in_slice
from gpumanager.placement.values import FreeGpu, FreeGpus, FreeNode, PodRequest, Request
from gpumanager.placement.whole import offer_order
from gpumanager.placement.workload_mix import Mix, mix_of
from tests.scheduler.webhook.review_texts import node_topology


def node(*gpus: FreeGpu, model: str = "T4") -> FreeNode:
    return FreeNode("n", model, gpus, 64_000, 256_000, 64_000, 256_000)


FREE = FreeGpu(100, 64, 0, 64)


def used(cores: int, blocks: int = 32) -> FreeGpu:
    return FreeGpu(cores, blocks, 1, 64)


SHARE = PodRequest((Request(30, 8),))


@pytest.mark.parametrize(
    ("here", "pod", "ordered", "gpus"),
    [
        pytest.param(node(FREE, used(70), used(40)), SHARE, True, ((2,),),
                     id="a share goes to the fullest GPU in use"),
        pytest.param(node(FREE, used(70), used(40)), SHARE, False, ((0,),),
                     id="without an order it goes to the first"),
        pytest.param(node(used(70), FREE, FREE), PodRequest((Request(200),)), True, ((1, 2),),
                     id="whole GPUs are those that nobody uses"),
        pytest.param(node(used(70), FREE, FREE), PodRequest((Request(300),)), True, None,
                     id="and there may be too few"),
        pytest.param(node(FREE), replace(SHARE, cpu_milli=65_000), True, None,
                     id="the host has to have room too"),
    ],
)  # fmt: skip
def test_which_gpus_come_first(
    here: FreeNode, pod: PodRequest, *, ordered: bool, gpus: object
) -> None:
    placed = first_in_slice(here, pod, ordered=ordered)

    assert (placed and placed[1]) == gpus


def test_what_is_left_of_a_node_is_less_by_the_pod() -> None:
    placed = first_in_slice(node(used(40)), replace(SHARE, cpu_milli=4000, memory_mib=6000))

    assert placed is not None
    left, _ = placed
    assert (left.gpus[0].cores, left.cpu_milli, left.memory_mib) == (10, 60_000, 250_000)


def test_a_pod_that_names_another_model_has_no_score() -> None:
    assert SliceScore().score(node(FREE), replace(SHARE, models=frozenset({"A100"})), PRIOR) is None


def test_a_node_is_judged_by_the_gpu_that_the_pod_would_get() -> None:
    pod = replace(SHARE, cpu_milli=1000, memory_mib=1000)
    fills = SliceScore().score(node(used(30)), pod, PRIOR)
    breaks = SliceScore().score(node(FREE), pod, PRIOR)

    assert fills is not None
    assert breaks is not None
    assert fills.points > breaks.points


gpus = st.builds(
    lambda cores, blocks: FREE if cores == 100 else FreeGpu(cores, blocks, 1, 64),
    st.sampled_from([0, 10, 30, 50, 99, 100]),
    st.sampled_from([0, 8, 64]),
)


@given(st.lists(gpus, min_size=1, max_size=8), st.integers(1, 99), st.integers(1, 64))
def test_the_first_that_fits_is_the_first_in_the_slice_that_the_node_publishes(
    free: list[FreeGpu], cores: int, blocks: int
) -> None:
    topology, request = node_topology(*[16] * len(free)), Request(cores, blocks)
    books = FreeGpus({gpu.uuid: one for gpu, one in zip(topology.gpus, free, strict=True)})

    placed = first_in_slice(node(*free), PodRequest((request,)))

    published = [gpu for gpu in offer_order(topology, books) if books.of(gpu).fits(request)]
    if placed is None:
        assert published == []
    elif not books.of(published[0]).whole:  # among free ones the bonds decide, which no trace has
        assert placed[1] == ((published[0].index,),)


def test_a_slice_offers_gpus_in_use_first_and_those_that_cannot_be_had_last() -> None:
    topology = node_topology(16, 16, 16)
    free = (FreeGpu(0, 0, 1, 64), FREE, used(30))
    books = FreeGpus({gpu.uuid: one for gpu, one in zip(topology.gpus, free, strict=True)})

    assert [gpu.index for gpu in offer_order(topology, books)] == [2, 1, 0]


def test_every_policy_says_what_a_node_is_worth_with_the_gpus_that_come_first() -> None:
    assert POINTS.keys() == POLICIES.keys()


def test_where_pods_leave_a_free_gpu_is_broken_last() -> None:
    """Shares of 70 are all that is usual, so a free GPU and one with 30 left are worth the same to
    whoever counts only what still fits."""
    pod = replace(SHARE, cpu_milli=1000, memory_mib=1000)
    usual = mix_of([(PodRequest((Request(70, 8),), 1000, 1000), 1.0)])
    rooms = node(used(40), FREE), node(used(5), FREE)

    def gain(mix: Mix) -> float:
        fills, breaks = (SliceScore().score(room, pod, mix) for room in rooms)
        assert fills is not None
        assert breaks is not None
        return fills.points - breaks.points

    assert gain(replace(usual, leaving=1.0)) > gain(usual)


@pytest.mark.parametrize(("policy", "wins"), [("binpack", 0), ("spread", 1), ("least-waste", 0)])
def test_a_policy_judges_the_gpus_that_the_pod_would_get(policy: str, wins: int) -> None:
    rooms = node(used(30), FREE), node(FREE, FREE)

    points = [
        one.points
        for room in rooms
        if (one := SliceScore([(policy, 1.0)]).score(room, SHARE, PRIOR))
    ]

    assert points.index(max(points)) == wins
