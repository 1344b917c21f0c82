"""A whole pod on one node: counted as Kubernetes counts it, placed as the node would."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.kube.plan import planned
from gpumanager.placement.values import FreeGpus, Refusal, Request
from gpumanager.scheduler.extender.bind import annotations
from gpumanager.scheduler.scoring.packing import Packing, pack
from gpumanager.scheduler.scoring.pod_shape import MOST_CONTAINERS, PodShape, asking, pod_shape_of
from tests.scheduler.scheduler_world import ask, machine, pod, pod_object, view
from tests.scheduler.truth import overfull

NODE = machine("a")
ASK = st.one_of(
    st.tuples(st.integers(1, 99), st.integers(1, 64)),
    st.tuples(st.sampled_from([100, 200, 300]), st.integers(0, 64)),
)


def used(*gpus: int) -> FreeGpus:
    books = FreeGpus.of_idle(NODE)
    for place, cores in enumerate(gpus):
        if cores:
            books = books.occupy(NODE.gpus[place].uuid, Request(cores, cores // 2))
    return books


def packed(wanted: PodShape, books: FreeGpus) -> tuple[tuple[int, ...], ...] | None:
    found = pack(NODE, books, wanted)
    return found.gpus if isinstance(found, Packing) else None


def test_an_init_container_uses_what_its_pod_will_have() -> None:
    assert packed(ask((40, 4), inits=[(60, 8)]), used(40, 100, 100, 100)) == ((0,), (0,))


def test_an_init_container_may_need_more_than_all_others_together() -> None:
    assert packed(ask((30, 4), inits=[(60, 8)]), used(50, 100, 100, 100)) is None


def test_a_sidecar_runs_beside_everybody() -> None:
    wanted = ask((60, 4), sidecars=[(30, 4)])

    assert packed(wanted, used(10, 100, 100, 100)) == ((0,), (0,))
    assert packed(wanted, used(20, 100, 100, 100)) is None


def test_an_init_container_finds_the_sidecars_before_it() -> None:
    wanted = ask((10, 4), sidecars=[(30, 4)], inits=[(70, 4)])

    assert packed(wanted, used(0, 100, 100, 100)) == ((0,), (0,), (0,))
    assert packed(wanted, used(10, 100, 100, 100)) is None


def test_what_does_not_fit_one_after_another_may_fit_largest_first() -> None:
    assert packed(ask((30, 4), (70, 4)), used(70, 30, 100, 100)) == ((0,), (1,))
    assert packed(ask((30, 4), (30, 4), (100, 0)), used(40, 0, 100, 100)) == ((0,), (0,), (1,))


def test_the_policy_s_wish_is_followed_where_it_can_be() -> None:
    found = pack(NODE, used(50, 0, 0, 0), ask((30, 4)), [(3,)])
    instead = pack(NODE, used(50, 0, 0, 90), ask((30, 4)), [(3,)])

    assert isinstance(found, Packing)
    assert isinstance(instead, Packing)
    assert (found.gpus, instead.gpus) == (((3,),), ((0,),))


def holder(gpu: int, cores: int) -> dict[str, Any]:
    """A pod that has what `used` takes."""
    item = pod_object(f"on-{gpu}", (cores, cores // 2), node="a")
    packing = Packing(((gpu,),), {})
    item["metadata"]["annotations"] = annotations(view(item), "a", NODE, packing, 1)
    return item


@given(
    held=st.tuples(*[st.integers(0, 100)] * 4),
    apps=st.lists(ASK, min_size=1, max_size=3),
    inits=st.lists(ASK, max_size=2),
    sidecars=st.lists(ASK, max_size=2),
)
def test_a_plan_is_always_one_that_the_node_can_follow(
    held: tuple[int, ...], apps: list[Any], inits: list[Any], sidecars: list[Any]
) -> None:
    item = pod_object("p", *apps, inits=inits, sidecars=sidecars, node="a")
    pod = view(item)
    wanted, books = pod_shape_of(pod), used(*held)
    assert isinstance(wanted, PodShape)

    found = pack(NODE, books, wanted)

    if isinstance(found, Refusal):
        return
    notes = annotations(pod, "a", NODE, found, 1)
    item["metadata"]["annotations"] = notes
    read = view(item)
    as_node = [planned(NODE, read, one) for one in asking(read)]
    assert [tuple(gpu.index for gpu in gpus) for gpus in as_node] == list(found.gpus)
    holding = [holder(gpu, cores) for gpu, cores in enumerate(held) if cores]
    assert overfull([*holding, item]) == []


def test_a_pod_of_more_containers_than_anybody_needs_is_no_ask() -> None:
    most, more = ([(1, 1)] * count for count in (MOST_CONTAINERS, MOST_CONTAINERS + 1))

    assert isinstance(pod_shape_of(pod("p", *most)), PodShape)
    assert isinstance(pod_shape_of(pod("p", *more)), Refusal)
    assert isinstance(pod_shape_of(pod("p", (1, 1), inits=most)), Refusal)
    assert MOST_CONTAINERS <= 32, "every node that is unlike the others works on each"


@pytest.mark.parametrize("cores", [150, 101, 0, 64 * 100 + 100])
def test_what_no_node_could_grant_is_no_ask(cores: int) -> None:
    assert isinstance(pod_shape_of(view(pod_object("p", (cores, 1)))), Refusal)
