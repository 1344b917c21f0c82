"""Who is being admitted, by the order of calls and the list of pods."""

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.deviceplugin.admission.transaction import (
    PAIR_AGE,
    Admission,
    Candidate,
    PluginCall,
    Transaction,
    View,
    apart,
    asking,
    observe,
)
from gpumanager.ids import AllocationID
from gpumanager.kube.pod import ContainerKind, PodView
from gpumanager.names import VCORE, VMEMORY
from gpumanager.placement.values import Request
from tests.deviceplugin.admission.admission_node import container, pod

OLD = pod("old", container(30, 4))
NEW = pod("new", container(30, 4))
KNOWN = Admission(seen=frozenset({OLD.uid}))
UP = 86_400.0
"""Seconds since the node booted: the clock of admissions is monotonic, and begins there."""


class Caller:
    """Makes one call after another, each a little later."""

    def __init__(self, known: Admission = KNOWN) -> None:
        self.known = known
        self.now = UP
        self.nonces = (AllocationID(f"n{i}") for i in itertools.count())

    def call(
        self, resource: str, size: int, view: View | None, *, again: bool = False, **more: object
    ) -> Admission:
        self.now += 0.01
        call = PluginCall(resource, size, self.now, next(self.nonces), again=again)
        self.known = observe(self.known, call, view, **more)  # type: ignore[arg-type]
        return self.known

    def allocation(self) -> str:
        assert self.known.open is not None
        return self.known.open.allocation

    def candidates(self) -> list[str]:
        assert self.known.open is not None
        return [one.pod.name for one in self.known.open.candidates]


def test_a_pod_that_was_not_listed_before_is_the_one_admitted() -> None:
    caller = Caller()

    caller.call(VCORE, 30, (OLD, NEW))

    assert caller.candidates() == ["new"]


def test_a_pod_that_holds_devices_already_is_not_being_admitted() -> None:
    caller = Caller(Admission())

    caller.call(VCORE, 30, (OLD, NEW), holders={OLD.uid})

    assert caller.candidates() == ["new"]


@pytest.mark.parametrize("order", list(itertools.permutations([(VCORE, 30), (VMEMORY, 4)])))
def test_both_resources_of_a_container_are_one_transaction(
    order: tuple[tuple[str, int], ...],
) -> None:
    caller = Caller()

    names = []
    for resource, size in order:
        caller.call(resource, size, (OLD, NEW))
        names.append(caller.allocation())

    assert names == ["n0", "n0"]
    assert caller.known.open is not None
    assert caller.known.open.request == Request(30, 4)
    assert not caller.known.open.abandoned


def test_the_next_container_of_a_pod_is_the_same_admission_and_another_allocation() -> None:
    both = pod("both", container(30, 4, "one"), container(30, 4, "two"))
    caller = Caller()

    first: list[tuple[str, str]] = []
    second: list[tuple[str, str]] = []
    for seen in (first, second):
        for resource, size in ((VMEMORY, 4), (VCORE, 30)):
            caller.call(resource, size, (OLD, both))
            assert caller.known.open is not None
            seen.append((caller.known.open.admission, caller.allocation()))

    assert first == [("n0", "n0"), ("n0", "n0")]
    assert second == [("n0", "n2"), ("n0", "n2")]


def test_a_container_follows_only_where_both_resources_of_the_one_before_were_asked_for() -> None:
    both = pod("both", container(30, 4, "one"), container(20, 2, "two"))
    caller = Caller()
    caller.call(VCORE, 30, (OLD, both))

    caller.call(VCORE, 20, (OLD, both))

    assert caller.candidates() == []


def test_with_no_new_pod_only_a_repeated_call_is_of_the_container_that_was_served() -> None:
    found = []
    for again in (True, False):
        caller = Caller()
        for resource, size in ((VCORE, 30), (VMEMORY, 4)):
            caller.call(resource, size, (OLD, NEW))
        caller.call(VCORE, 30, (OLD, NEW), again=again)
        found.append(caller.allocation())

    assert found == ["n0", "n2"]
    assert not PluginCall(VCORE, 30, UP, AllocationID("n")).again


def test_a_new_pod_ends_the_admission_of_the_one_before_it() -> None:
    caller = Caller()
    caller.call(VCORE, 30, (OLD, NEW))
    abandoned = caller.known.open

    caller.call(VCORE, 30, (OLD, NEW, pod("newer", container(30, 4))))

    assert abandoned is not None
    assert abandoned.abandoned
    assert caller.candidates() == ["newer"]


def test_among_new_pods_those_of_the_right_size_are_candidates() -> None:
    caller = Caller()
    others = (pod("idle", container(0, 0)), pod("larger", container(40, 4)))

    caller.call(VCORE, 30, (OLD, *others, NEW))

    assert caller.candidates() == ["new"]


def test_among_equal_new_pods_those_that_could_be_met_are_candidates() -> None:
    caller = Caller()
    greedy = pod("greedy", container(30, 4000))

    caller.call(VCORE, 30, (OLD, greedy, NEW), fits=lambda one: one.name != "greedy")

    assert caller.candidates() == ["new"]


def test_the_second_resource_tells_two_candidates_apart() -> None:
    caller = Caller()
    view = (OLD, NEW, pod("other", container(30, 7)))
    caller.call(VCORE, 30, view)
    both = caller.candidates()

    caller.call(VMEMORY, 7, view)

    assert both == ["new", "other"]
    assert caller.candidates() == ["other"]
    assert caller.allocation() == "n0"


def test_without_a_list_of_pods_two_calls_in_time_are_a_pair() -> None:
    caller = Caller()
    caller.call(VMEMORY, 4, None)
    caller.call(VCORE, 30, None)
    paired = caller.allocation()

    caller.call(VCORE, 30, None)

    assert paired == "n0"
    assert caller.allocation() == "n2"


@pytest.mark.parametrize("up", [0.0, UP])
@pytest.mark.parametrize(("later", "allocation"), [(0.5, "n0"), (1.9, "n0"), (PAIR_AGE, "n1")])
@pytest.mark.parametrize("first", [None, (OLD, NEW)], ids=["unread", "read"])
def test_without_a_list_of_pods_the_second_call_is_a_half_only_if_it_comes_soon(
    up: float, later: float, allocation: str, first: View | None
) -> None:
    caller = Caller()
    caller.now = up
    caller.call(VMEMORY, 4, first)
    caller.now += later

    caller.call(VCORE, 30, None)

    assert caller.allocation() == allocation


def test_without_a_list_of_pods_a_repeated_call_is_the_same_half() -> None:
    caller = Caller()
    caller.call(VCORE, 30, None)

    caller.call(VCORE, 30, None, again=True)

    assert caller.allocation() == "n0"


def test_without_a_list_of_pods_a_call_repeated_after_both_halves_is_another_container() -> None:
    caller = Caller()
    caller.call(VCORE, 30, None)
    caller.call(VMEMORY, 4, None)

    caller.call(VCORE, 30, None, again=True)

    assert caller.allocation() == "n2"


def test_a_list_that_is_read_only_at_the_second_call_does_not_split_the_pair() -> None:
    caller = Caller()
    caller.call(VMEMORY, 4, None)

    caller.call(VCORE, 30, (OLD, NEW))

    assert caller.allocation() == "n0"
    assert caller.candidates() == ["new"]


def test_a_list_that_is_read_only_at_the_second_call_shows_the_first_container_of_the_pod() -> None:
    caller = Caller()
    both = pod("both", container(30, 4, "first"), container(20, 2, "second"))
    others = (pod("idle", container(0, 0)), pod("other cores", container(40, 4)))
    caller.call(VMEMORY, 4, None)

    caller.call(VCORE, 30, (OLD, *others, both))

    assert caller.known.open is not None
    assert [one.container.name for one in caller.known.open.candidates] == ["first"]
    assert caller.known.open.viewed


def test_a_list_that_is_lost_at_the_second_call_does_not_split_the_pair() -> None:
    caller = Caller()
    caller.call(VMEMORY, 4, (OLD, NEW))

    caller.call(VCORE, 30, None)

    assert caller.allocation() == "n0"
    assert caller.candidates() == ["new"]


@pytest.mark.parametrize(("cores", "blocks"), [(None, 4), (30, None), (None, None)])
def test_a_request_is_unknown_while_one_of_its_amounts_is(
    cores: int | None, blocks: int | None
) -> None:
    caller = Caller()

    caller.call(VCORE, 30, (OLD, pod("new", container(cores, blocks))))

    assert caller.candidates() == ["new"]
    assert caller.known.open is not None
    assert caller.known.open.request is None


APART = [
    ("memory after a whole GPU", {VCORE: 100, VMEMORY: 4}, VMEMORY, True),
    ("memory after two whole GPUs", {VCORE: 200, VMEMORY: 4}, VMEMORY, True),
    ("memory after a share, which needs memory itself", {VCORE: 99, VMEMORY: 4}, VMEMORY, False),
    ("cores, which are never a second half alone", {VCORE: 100, VMEMORY: 4}, VCORE, False),
    ("a first half", {VMEMORY: 4}, VMEMORY, False),
    ("a whole GPU alone", {VCORE: 100}, VMEMORY, False),
]


def test_only_memory_after_whole_gpus_of_an_unknown_pod_can_be_another_s() -> None:
    wrong = []
    for viewed, (what, sizes, resource, is_apart) in itertools.product((False, True), APART):
        open_ = Transaction("n0", AllocationID("n0"), UP, viewed, sizes=dict(sizes))
        known = Transaction("n0", AllocationID("n0"), UP, viewed, (Candidate(NEW),), dict(sizes))
        call = PluginCall(resource, 4, UP + 1, AllocationID("n1"))
        anew = Transaction("n1", AllocationID("n1"), UP + 1, viewed, sizes={resource: 4})
        if apart(open_, call) != (anew if is_apart else None) or apart(known, call):
            wrong.append((what, viewed))

    assert wrong == []


containers = st.builds(
    container,
    st.integers(0, 3),
    st.integers(0, 3),
    name=st.just("c"),
    kind=st.sampled_from(ContainerKind),
)


@st.composite
def storms(draw: st.DrawFn) -> list[PodView]:
    shapes = draw(st.lists(st.lists(containers, min_size=1, max_size=3), max_size=8))
    return [pod(f"p{number}", *shape) for number, shape in enumerate(shapes)]


@given(storms(), st.randoms(use_true_random=False))
def test_in_any_storm_of_pods_each_container_is_one_transaction_of_its_own_pod(
    pods: list[PodView], rng: random.Random
) -> None:
    caller = Caller(Admission())
    view: tuple[PodView, ...] = ()

    for admitted in pods:
        view = (*view, admitted)
        for place, one in enumerate(asking(admitted)):
            names = set()
            for resource, size in halves(one.cores, one.blocks, rng):
                caller.call(resource, size, view)
                names.add(caller.allocation())
                assert caller.known.open is not None
                (candidate,) = caller.known.open.candidates
                assert (candidate.pod.uid, candidate.place) == (admitted.uid, place)
            assert len(names) == 1


def halves(cores: int | None, blocks: int | None, rng: random.Random) -> Iterator[tuple[str, int]]:
    both = [(VCORE, cores or 0), (VMEMORY, blocks or 0)]
    rng.shuffle(both)
    return ((resource, size) for resource, size in both if size)
