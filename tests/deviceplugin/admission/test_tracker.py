"""What the tracker asks for with each call: how fresh a list of pods, and for how long it waits."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.deviceplugin.admission.tracker import PAIR_LIST_AGE, AdmissionTracker
from gpumanager.deviceplugin.admission.transaction import PAIR_AGE, View
from gpumanager.deviceplugin.identity.evidence import PodLister
from gpumanager.grants.journal_file import JournalFile
from gpumanager.grants.node import Node as GrantedNode
from gpumanager.grants.store import GrantStore
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.in_memory import SimulatedBackEnds
from tests.deviceplugin.admission.admission_node import BLOCKS, container, gpus, pod

UP = 86_400.0
"""Seconds since the node booted."""
FRESH = 0.0


class Lister(PodLister):
    """Shows one list; remembers how old each may have been."""

    def __init__(self) -> None:
        super().__init__(None)
        self.view: View | None = ()
        self.ages: list[float] = []

    async def list(self, max_age: float = 0.0) -> View | None:
        self.ages.append(max_age)
        return self.view


class Node:
    def __init__(self, directory: Path) -> None:
        self.now = UP
        self.lister = Lister()
        store = GrantStore(JournalFile(directory / "journal"), SimulatedBackEnds())
        owner = GrantedNode(gpus(1), store)
        self.tracker = AdmissionTracker(owner, self.lister, lambda: self.now)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_pod_is_taken_to_be_under_admission_for_two_seconds(node: Node) -> None:
    before = node.tracker.admitted_now is not None
    await node.tracker.observe(VCORE, 30)

    found = {}
    for later in (0.0, 1.9, PAIR_AGE):
        node.now = UP + later
        found[later] = node.tracker.admitted_now is not None

    assert not before
    assert found == {0.0: True, 1.9: True, PAIR_AGE: False}


async def test_a_kubelet_that_starts_admits_nobody(node: Node) -> None:
    await node.tracker.observe(VCORE, 30)

    await node.tracker.begin_anew()

    assert not node.tracker.admitted_now is not None


async def test_the_second_half_of_a_container_needs_no_list_of_its_own(node: Node) -> None:
    node.lister.view = (pod("new", container(30, 4)),)

    await node.tracker.observe(VCORE, 30)
    await node.tracker.observe(VMEMORY, 4)
    await node.tracker.observe(VMEMORY, 4)

    assert node.lister.ages == [FRESH, PAIR_LIST_AGE, FRESH]


@pytest.mark.parametrize("size", [3, 5])
async def test_another_size_is_no_second_half(node: Node, size: int) -> None:
    node.lister.view = (pod("new", container(30, 4)),)

    await node.tracker.observe(VCORE, 30)
    await node.tracker.observe(VMEMORY, size)

    assert node.lister.ages == [FRESH, FRESH]


async def test_while_ids_are_offered_and_not_allocated_each_call_takes_a_list(node: Node) -> None:
    node.lister.view = (pod("new", container(30, 4)),)

    open_ = await node.tracker.observe(VCORE, 30)
    node.tracker.keep(replace(open_, awaiting=VCORE))
    await node.tracker.observe(VMEMORY, 4)

    assert node.lister.ages == [FRESH, FRESH]


async def test_a_pod_that_does_not_fit_may_be_refused_meanwhile_so_each_half_takes_a_list(
    node: Node,
) -> None:
    node.lister.view = (pod("new", container(30, BLOCKS + 1)),)

    await node.tracker.observe(VCORE, 30)
    await node.tracker.observe(VMEMORY, BLOCKS + 1)

    assert node.lister.ages == [FRESH, FRESH]


async def test_without_a_list_of_pods_each_half_asks_for_one(node: Node) -> None:
    node.lister.view = None

    await node.tracker.observe(VCORE, 30)
    await node.tracker.observe(VMEMORY, 4)

    assert node.lister.ages == [FRESH, FRESH]


@pytest.mark.parametrize(
    ("resource", "size", "lists"),
    [(VCORE, 30, 1), (VCORE, 31, 2), (VMEMORY, 30, 2)],
    ids=["expected", "another size", "another resource"],
)
async def test_only_an_allocate_that_was_preferred_takes_no_list(
    node: Node, resource: str, size: int, lists: int
) -> None:
    open_ = await node.tracker.observe(VCORE, 30)
    node.tracker.keep(replace(open_, awaiting=VCORE))

    found = await node.tracker.allocating(resource, [f"id-{number}" for number in range(size)])

    assert len(node.lister.ages) == lists
    assert found.awaiting is None
