"""Nodes that go and come back, and those that come back with fewer GPUs: who holds what there."""

from gpumanager.ids import PodUID
from gpumanager.scheduler.node import read_node
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.state import ClusterState
from tests.scheduler.scheduler_world import ask, node_object, plan, pod


def state_of(gpus: int) -> ClusterState:
    state = ClusterState()
    come(state, gpus)
    return state


def come(state: ClusterState, gpus: int) -> None:
    state.node(read_node(node_object("a", gpus) if gpus else {"metadata": {"name": "a"}}))


def free(state: ClusterState) -> list[int]:
    node = state.nodes["a"]
    return [node.free_gpus.of(gpu).cores for gpu in node.topology.gpus]


def assumed(state: ClusterState, name: str, *apps: tuple[int, int]) -> None:
    wanted = ask(*apps)
    packing = state.nodes["a"].place(wanted)
    assert isinstance(packing, Packing)
    state.assume(pod(name, *apps), "a", wanted, packing, 60.0)


def packing_of(state: ClusterState, name: str) -> Packing | None:
    """With which it would be bound once more."""
    return state.assumed_on(PodUID(f"uid-{name}"), "a")


def test_what_is_being_bound_is_held_when_its_node_was_made_anew() -> None:
    state = state_of(2)
    assumed(state, "p", (60, 4))

    state.node_gone("a")
    come(state, 0)  # its agent publishes later
    come(state, 2)

    assert free(state) == [40, 100]


def test_who_is_being_bound_holds_what_is_left_where_gpus_are_gone() -> None:
    state = state_of(2)
    assumed(state, "p", (200, 0))

    come(state, 1)

    assert free(state) == [0]
    assert packing_of(state, "p") is None
    come(state, 2)
    assert free(state) == [0, 0]
    assert packing_of(state, "p") is not None


def test_who_is_bound_holds_what_is_left_where_gpus_are_gone() -> None:
    state = state_of(3)
    said = plan(app_0=["GPU-a-0"], app_1=["GPU-a-2"])
    state.pod(pod("p", (60, 4), (60, 4), node="a", vcuda_plan=said), "a")
    state.pod(pod("q", (50, 4), node="a", vcuda_plan=plan(app_0=["GPU-a-1"])), "a")

    come(state, 2)

    assert free(state) == [40, 50]


def test_whole_gpus_that_are_left_are_held() -> None:
    state = state_of(2)
    said = plan(app_0=["GPU-a-0", "GPU-a-1"])
    state.pod(pod("p", (200, 0), node="a", vcuda_plan=said), "a")

    come(state, 1)

    assert free(state) == [0]


def test_a_plan_for_another_number_of_gpus_is_none() -> None:
    state = state_of(4)
    every = plan(app_0=[f"GPU-a-{n}" for n in range(4)])

    state.pod(pod("p", (60, 4), node="a", vcuda_plan=every), "a")

    assert sorted(free(state)) == [40, 100, 100, 100]
