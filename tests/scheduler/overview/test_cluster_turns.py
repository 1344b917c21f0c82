"""The cluster's page is made in pieces that no size of a cluster makes longer, and misses nothing.

A piece is measured by the steps that the interpreter takes in it, so that a slow machine changes
nothing.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.ids import PodUID
from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.kube.pod import read_pod
from gpumanager.scheduler.cluster_document import LOOKED_AT_ONCE, PODS, QUOTAS
from gpumanager.scheduler.cluster_pages import OverviewPages
from gpumanager.scheduler.extender.explain import Explanation
from gpumanager.scheduler.extender.service import Extender
from gpumanager.scheduler.node import NodeSaid
from gpumanager.scheduler.quota.limits import NamespaceQuota
from gpumanager.scheduler.quota.rules import Known, QuotaRules
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.state import ClusterState
from tests.scheduler.scheduler_world import node_object, pod_object

STEPS: Final = 80_000
"""Of the interpreter, in one piece: two milliseconds or less."""
QUERIES: Final[tuple[Mapping[str, str], ...]] = (
    {},
    {"per_page": "100"},
    {"search": "p-1"},
    {"search": "n-", "sort": "granted"},
    {"state": "free", "sort": "free", "page": "9"},
)


def said(name: str) -> NodeSaid:
    return NodeSaid(name, next(iter(node_object(name, 8)["metadata"]["annotations"].values())))


def hold(state: ClusterState, name: str, node: str, cores: int = 1) -> None:
    """The API server says that this pod is there."""
    state.pod(read_pod(pod_object(name, (cores, 1), node=node, uid=name)), node)


def extender(quotas: int = 0) -> Extender:
    """One that has read everything; its state is put there by who asks for it."""
    limits = {f"team-{number:05d}": NamespaceQuota({"T4": 8}) for number in range(quotas)}
    known = Known(limits)
    found = Extender(KubeClient(Access("http://127.0.0.1:1")), rules=QuotaRules(lambda: known))
    found.nodes.listed.set()
    found.pods.listed.set()
    return found


def crowded(size: int) -> Extender:
    """So many nodes, pods that wait and quotas; most nodes have a pod, the first a hundred."""
    found = extender(quotas=size)
    for number in range(size):
        found.state.node(said(f"n-{number}"))
        hold(found.state, f"p-{number}", f"n-{number}")
    for number in range(100):
        hold(found.state, f"q-{number}", "n-0")
    reason = {"reason": "no room", "nodes": size, "example": "n-0", "detail": "7 are free"}
    for number in range(size):
        found.state.pod(read_pod(pod_object(f"w-{number}", (800, 0), uid=f"w-{number}")), "")
        waits = Explanation(f"w-{number}", 1.0, reasons=(reason,) * 9)
        found.memory.remember("default", f"w-{number}", waits)
    return found


def pages_of(found: Extender) -> OverviewPages:
    return OverviewPages(found, "", now=lambda: 2.0)


@dataclass
class Asked:
    """A request."""

    query: Mapping[str, str]


@dataclass
class Steps:
    """Counts what the interpreter does."""

    count: int = 0

    def during(self, work: Callable[[], object]) -> int:
        self.count = 0
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(before)
        return self.count

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self._trace


@dataclass
class Look:
    """One request that is answered by hand, a piece at a time."""

    pages: OverviewPages
    query: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        request: Any = Asked(self.query)
        self._answering = self.pages.cluster(request, b"")
        self.body: bytes = b""

    def piece(self) -> None:
        try:
            assert self._answering.send(None) is None
        except StopIteration as done:
            self.body = done.value.body

    def all(self) -> Any:
        """The document."""
        while not self.body:
            self.piece()
        return json.loads(self.body)

    def give_up(self) -> None:
        self._answering.close()


def pieces(pages: OverviewPages, query: Mapping[str, str]) -> list[int]:
    """The steps of each."""
    look, found = Look(pages, query), []
    while not look.body:
        found.append(Steps().during(look.piece))
    return found


def longest(size: int) -> dict[str, int]:
    """The steps of the longest piece of each question: of the first look, and of later ones."""
    pages = pages_of(crowded(size))
    first = {"first": max(pieces(pages, {}))}
    return first | {str(query): max(pieces(pages, query)) for query in QUERIES}


def test_no_piece_is_longer_in_a_larger_cluster() -> None:
    small, large = longest(300), longest(900)

    assert max(large.values()) <= STEPS
    assert {key: steps for key, steps in large.items() if steps > 1.2 * small[key]} == {}


def test_the_first_look_is_in_many_pieces_and_the_next_in_few() -> None:
    found = extender()
    for number in range(300):
        found.state.node(said(f"n-{number}"))
    pages = pages_of(found)

    first, second = pieces(pages, {}), pieces(pages, {})
    hold(found.state, "p", "n-7")
    third = pieces(pages, {})

    assert len(first) > 300 // LOOKED_AT_ONCE
    assert len(third) == len(second) + 1 < 20


def test_who_gives_up_leaves_the_rest_to_who_comes_next() -> None:
    found = extender()
    for number in range(100):
        found.state.node(said(f"n-{number}"))
    pages = pages_of(found)
    look = Look(pages)
    for _ in range(4):
        look.piece()
    look.give_up()

    assert Look(pages).all()["totals"]["nodes"] == 100


def test_what_changes_while_one_looks_is_seen_by_the_next_look() -> None:
    found = extender()
    for number in range(30):
        found.state.node(said(f"n-{number}"))
    pages = pages_of(found)
    look = Look(pages)
    look.piece()
    found.state.node_gone("n-3")
    found.state.node(said("another"))
    hold(found.state, "p", "n-29")

    assert look.all()["totals"]["pods"] == 0
    after = Look(pages).all()
    assert (after["totals"]["pods"], after["totals"]["nodes"]) == (1, 30)
    assert {one["node"] for one in after["nodes"]} >= {"another", "n-0"}


NAMES = st.sampled_from(["n-1", "n-2", "n-10", "m", "x"])
STEP = st.one_of(
    st.tuples(st.just("node"), NAMES),
    st.tuples(st.just("plain"), NAMES),
    st.tuples(st.just("gone"), NAMES),
    st.tuples(st.just("pod"), st.tuples(st.integers(0, 5), NAMES)),
    st.tuples(st.just("ended"), st.integers(0, 5)),
    st.tuples(st.just("look"), st.none()),
)


def do(state: ClusterState, what: str, subject: Any) -> None:
    match what:
        case "node":
            state.node(said(subject))
        case "plain":
            state.node(NodeSaid(subject))
        case "gone":
            state.node_gone(subject)
        case "pod":
            hold(state, f"p-{subject[0]}", subject[1], 10 + subject[0])
        case "ended":
            state.pod_gone(PodUID(f"p-{subject}"))


@given(st.lists(STEP, max_size=40))
def test_who_looks_often_sees_what_who_looks_first_sees(steps: list[tuple[str, Any]]) -> None:
    found = extender()
    often = pages_of(found)
    for what, subject in steps:
        if what == "look":
            Look(often).all()
        do(found.state, what, subject)

    assert Look(often).all() == Look(pages_of(found)).all()


def test_of_many_pods_on_a_node_those_that_match_are_told_first() -> None:
    found = extender()
    found.state.node(said("n"))
    for number in range(100):
        hold(found.state, f"p-{number:03d}", "n")

    (node,) = Look(pages_of(found), {"search": "P-099"}).all()["nodes"]

    assert (len(node["containers"]), node["containers_left_out"]) == (PODS, 100 - PODS)
    assert node["containers"][0]["pod"] == "p-099"


def test_of_many_quotas_the_first_are_told_and_all_that_match_counted() -> None:
    pages = pages_of(extender(quotas=1000))

    quota = Look(pages).all()["quota"]
    assert (quota["total"], len(quota["rows"]), quota["understood"]) == (1000, QUOTAS, True)
    assert quota["rows"][QUOTAS - 1]["namespace"] == f"team-{QUOTAS - 1:05d}"
    quota = Look(pages, {"search": "Team-00999"}).all()["quota"]
    assert [one["namespace"] for one in quota["rows"]] == ["team-00999"]


def test_a_pod_that_is_being_bound_is_found_by_its_name() -> None:
    found = extender()
    found.state.node(said("n"))
    pod = read_pod(pod_object("soon", (30, 4), uid="soon"))
    ask = found.pod_shape_of(pod)
    assert isinstance(ask, PodShape)
    packing = found.state.nodes["n"].place(ask)
    assert isinstance(packing, Packing)
    found.state.assume(pod, "n", ask, packing, 9.0)

    (node,) = Look(pages_of(found), {"search": "soon"}).all()["nodes"]

    assert [one["pod"] for one in node["containers"]] == ["soon"]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({"state": "all"}, ["b", "c", "f", "t"]),
        ({"state": "free"}, ["c", "f"]),
        ({"state": "closed"}, ["c"]),
        ({"state": "trouble"}, ["t"]),
        ({"sort": "granted", "state": "all"}, ["b", "c", "f", "t"]),
        ({"sort": "free"}, ["c", "f", "t", "b"]),
        ({"search": "Needle"}, ["b"]),
    ],
)
def test_nodes_are_found_by_their_state_and_by_their_pods(
    query: dict[str, str], shown: list[str]
) -> None:
    found = extender()
    for name in ("b", "f"):
        found.state.node(said(name))
    found.state.node(said("c")._replace(cordon="GPU-c-7"))
    found.state.node(NodeSaid("t", "what is this"))
    hold(found.state, "needle-7", "b", 800)

    nodes = Look(pages_of(found), query).all()["nodes"]

    assert [one["node"] for one in nodes] == shown
