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


def test_a_share_goes_to_the_fullest_gpu_that_is_in_use() -> None:
    placed = first_in_slice(node(FREE, used(70), used(40)), PodRequest((Request(30, 8),)))

    assert placed is not None
    left, gpus = placed
    assert gpus == ((2,),)
    assert left.gpus[2].cores == 10


def test_without_an_order_it_goes_to_the_first() -> None:
    pod = PodRequest((Request(30, 8),))

    placed = first_in_slice(node(FREE, used(70), used(40)), pod, ordered=False)

    assert placed is not None
    assert placed[1] == ((0,),)


def test_whole_gpus_are_those_that_nobody_uses() -> None:
    placed = first_in_slice(node(used(70), FREE, FREE), PodRequest((Request(200),)))

    assert placed is not None
    assert placed[1] == ((1, 2),)
    assert first_in_slice(node(used(70), FREE, FREE), PodRequest((Request(300),))) is None


def test_a_pod_that_the_host_or_the_model_does_not_admit_fits_nowhere() -> None:
    room = node(FREE)

    assert first_in_slice(room, PodRequest((Request(30, 8),), cpu_milli=65_000)) is None
    named = PodRequest((Request(30, 8),), models=frozenset({"A100"}))
    assert SliceScore().score(room, named, PRIOR) is None


def test_a_node_is_judged_by_the_gpu_that_the_pod_would_get() -> None:
    pod = PodRequest((Request(30, 8),), cpu_milli=1000, memory_mib=1000)
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


def test_every_policy_says_what_a_node_is_worth_with_the_gpus_that_come_first() -> None:
    assert POINTS.keys() == POLICIES.keys()


def test_where_pods_leave_a_free_gpu_is_broken_last() -> None:
    """Shares of 70 are all that is usual, so a free GPU and one with 30 left are worth the same to
    whoever counts only what still fits."""
    pod = PodRequest((Request(30, 8),), cpu_milli=1000, memory_mib=1000)
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
    pod = PodRequest((Request(30, 8),))
    rooms = node(used(30), FREE), node(FREE, FREE)

    points = [
        one.points for room in rooms if (one := SliceScore([(policy, 1.0)]).score(room, pod, PRIOR))
    ]

    assert points.index(max(points)) == wins
