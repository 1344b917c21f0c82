"""CPU and memory of nodes: counted as Kubernetes does, kept as sums."""

from hypothesis import given
from hypothesis import strategies as st

from gpumanager.ids import PodUID
from gpumanager.scheduler.node import read_node
from gpumanager.scheduler.scoring.pod_shape import BOUNDLESS, NO_RESOURCES, HostResources
from gpumanager.scheduler.state import ClusterState
from tests.scheduler.scheduler_world import node_object, pod


def test_a_node_has_what_it_says_or_no_bounds() -> None:
    assert read_node(node_object("a", cpus=8)).host == HostResources(8000, 32 * 1024)
    assert read_node(node_object("a")).host == BOUNDLESS


def free(state: ClusterState, name: str = "a") -> HostResources:
    left = state.nodes[name].free
    return HostResources(left.cpu_milli, left.memory_mib)


def test_all_pods_of_a_node_take_of_its_cpu_and_memory() -> None:
    state = ClusterState()
    state.pod(pod("early", cpus=1, node="a"), "a")
    state.node(read_node(node_object("a", cpus=8)))
    assert free(state) == HostResources(7000, 28 * 1024)

    state.pod(pod("gpu", (30, 4), cpus=2, node="a"), "a")
    state.pod(pod("plain", cpus=3, node="a"), "a")
    assert free(state) == HostResources(2000, 8 * 1024)

    state.pod_gone(PodUID("uid-plain"))
    state.pod_gone(PodUID("uid-gpu"))
    assert free(state) == HostResources(7000, 28 * 1024)


def test_what_is_taken_too_often_is_taken() -> None:
    state = ClusterState()
    state.node(read_node(node_object("a", cpus=1)))

    state.pod(pod("p", (30, 4), cpus=2, node="a"), "a")

    assert free(state) == NO_RESOURCES
    state.pod(pod("q", cpus=3, node="a"), "a")
    state.pod_gone(PodUID("uid-p"))
    assert free(state) == NO_RESOURCES
    state.pod_gone(PodUID("uid-q"))
    assert free(state) == HostResources(1000, 4096)


def test_what_pods_without_gpus_do_elsewhere_is_no_change() -> None:
    state = ClusterState()
    item = node_object("a")
    item["metadata"]["annotations"] = {}
    state.node(read_node(item))
    before = state.changes

    state.pod(pod("p", cpus=2, node="a"), "a")
    state.pod(pod("q", cpus=2, node="unknown"), "unknown")

    assert state.changes == before


def test_a_list_without_a_pod_means_that_it_is_gone() -> None:
    state = ClusterState()
    state.node(read_node(node_object("a", cpus=8)))
    for name in ("p", "q"):
        state.pod(pod(name, cpus=2, node="a"), "a")

    state.only_pods([PodUID("uid-q")])

    assert free(state) == HostResources(6000, 24 * 1024)


STEP = st.tuples(st.sampled_from("pqr"), st.sampled_from("ab"), st.integers(0, 4), st.booleans())


@given(st.lists(STEP, max_size=30))
def test_sums_are_those_of_the_pods_there_are(steps: list[tuple[str, str, int, bool]]) -> None:
    state, there = ClusterState(), dict[str, tuple[str, int]]()
    for name in "ab":
        state.node(read_node(node_object(name, cpus=64)))
    for name, node, cpu, ends in steps:
        if ends:
            state.pod_gone(PodUID(f"uid-{name}"))
            there.pop(name, None)
        else:
            state.pod(pod(name, cpus=cpu, node=node), node)
            there[name] = node, cpu
        for one in "ab":
            total = sum(cpu for node, cpu in there.values() if node == one)
            assert state.nodes[one].load == HostResources(1000 * total, 4096 * total)
