"""The cluster's page and its document: sums, search and pages of nodes, pods that wait, quotas."""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import jsonschema
import pytest

from gpumanager.gpu.inventory import inventory
from gpumanager.ids import PodUID
from gpumanager.scheduler.cluster_document import (
    NOTHING,
    NodeLine,
    Wanted,
    gpu_rows,
    line_of,
    refresh,
    survey,
    waiting,
)
from gpumanager.scheduler.cooperative import Work
from gpumanager.scheduler.extender.explain import Explanation, ExplanationStore
from gpumanager.scheduler.node import NodeSaid, NodeState
from gpumanager.scheduler.quota.limits import read_quotas
from gpumanager.scheduler.quota.rules import Known, QuotaRules
from gpumanager.scheduler.state import ClusterState
from gpumanager.units import GIB
from tests import ROOT
from tests.monitor.node_show import SCHEMA
from tests.scheduler.scheduler_world import machine, node_object, plan, pod_object
from tests.scheduler.scheduler_world import pod as pod_view
from tests.scheduler.served_extender import Served, serving
from tests.waiting import until

pytest_plugins = ["tests.scheduler.extender_fixtures"]

DOCS = ROOT / "docs/web.md"
T = TypeVar("T")


def node(name: str, **more: Any) -> NodeState:
    """As the extender knows it when it has said this."""
    state = ClusterState()
    text = next(iter(inventory(machine(name, **more), []).values()))
    state.node(NodeSaid(name, text))
    return state.nodes[name]


def at_once(work: Work[T]) -> T:
    """Without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found


def page_of(*nodes: NodeState, **wanted: Any) -> tuple[dict[str, Any], list[NodeLine]]:
    lines = tuple(line_of(one) for one in nodes)
    return at_once(survey(lines, Wanted(**wanted)))


def names(*nodes: NodeState, **wanted: Any) -> list[str]:
    return [line.node.name for line in page_of(*nodes, **wanted)[1]]


async def document(served: Served, query: str = "") -> Any:
    status, text = await served.get(f"/api/cluster{query}")
    assert status == 200, text
    return json.loads(text)


async def bound(served: Served, name: str, *asks: tuple[int, int], node: str = "a") -> None:
    pod = await served.make("pods", pod_object(name, *asks))
    await served.post("/scheduler/filter", {"Pod": pod, "NodeNames": [node]})
    assert await served.bind(pod, node) == ""
    await until(lambda: pod["metadata"]["uid"] in served.extender.state.bound)


def test_nodes_stand_in_the_order_of_their_numbers() -> None:
    assert names(node("n-10"), node("n-9"), node("m")) == ["m", "n-9", "n-10"]


def test_sums_are_those_of_the_nodes_there_are() -> None:
    lines: dict[str, NodeLine] = {}
    first = (node("a", gpus=4), node("b", gpus=8), node("c", model="A100"))
    at_once(refresh(lines, {one.name: one for one in first}))
    at_once(refresh(lines, {"a": node("a", gpus=2), "b": first[1]}))

    found, shown = at_once(survey(tuple(lines.values()), Wanted()))
    amounts = {**NOTHING, "gpus": 10, "gpus_free": 10, "memory_bytes": 160 * GIB}
    assert found["models"] == [{"model": "Tesla T4", "nodes": 2, **amounts}]
    assert found["totals"] == {"nodes": 2, "pods": 0, "models": 1, **amounts}
    assert [line.node.name for line in shown] == ["a", "b"]


def test_a_page_beyond_the_last_is_the_last() -> None:
    nodes = [node(f"n-{number}", gpus=1) for number in range(7)]

    found, lines = page_of(*nodes, page=99, per_page=3)

    assert (found["page"], found["pages"], found["matches"]) == (3, 3, 7)
    assert [line.node.name for line in lines] == ["n-6"]


def test_nothing_that_matches_is_one_empty_page() -> None:
    found, lines = page_of(node("a"), search="nowhere")

    assert (found["matches"], found["page"], found["pages"], lines) == (0, 1, 1, [])


def test_nodes_without_gpus_are_not_shown_unless_something_is_wrong_with_them() -> None:
    state = ClusterState()
    state.node(NodeSaid("plain"))
    state.node(NodeSaid("odd", "what is this"))

    lines: dict[str, NodeLine] = {}
    at_once(refresh(lines, state.nodes))

    assert lines.keys() == {"odd"}
    assert names(*state.nodes.values(), state="trouble") == ["odd"]


async def test_a_node_shows_what_is_promised_of_each_gpu_and_to_whom(served: Served) -> None:
    await bound(served, "serve", (60, 32))
    await bound(served, "train", (200, 0), node="b")

    found = await document(served)

    first, second = found["nodes"]
    assert [one["cores_granted_percent"] for one in first["gpus"]].count(60) == 1
    assert sum(one["memory_granted_bytes"] for one in first["gpus"]) == 8 * GIB
    (pod,) = first["containers"]
    assert (pod["pod"], pod["cores_granted_percent"], len(pod["gpus"])) == ("serve", 60, 1)
    assert [one["cores_granted_percent"] for one in second["gpus"]].count(100) == 2
    totals = found["totals"]
    assert (totals["cores_granted_percent"], totals["gpus_free"], totals["pods"]) == (260, 5, 2)


def test_of_a_closed_gpu_what_is_held_counts_and_not_what_is_closed() -> None:
    closed = node_object("c", 2, unhealthy=["GPU-c-0"])
    text = next(iter(closed["metadata"]["annotations"].values()))
    state = ClusterState()
    state.node(NodeSaid("c", text))
    state.pod(pod_view("p", (60, 32), node="c", vcuda_plan=plan(app_0=["GPU-c-0"])), "c")

    first, second = gpu_rows(state.nodes["c"])

    assert (first["uuid"], first["healthy"]) == ("GPU-c-0", False)
    assert (first["cores_granted_percent"], first["memory_granted_bytes"]) == (60, 8 * GIB)
    assert second["healthy"]
    amounts = {"gpus": 2, "gpus_free": 1, "gpus_closed": 1, "memory_bytes": 32 * GIB}
    granted = {"cores_granted_percent": 60, "memory_granted_bytes": 8 * GIB}
    assert line_of(state.nodes["c"]).total == NOTHING | amounts | granted


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        (Explanation("u", 100.0), True),
        (Explanation("u", 100.0, fitting=3), False),
        (Explanation("u", 100.0, fitting=3, trouble="the API server said no"), True),
        (Explanation("u", 100.0, bound="a"), False),
        (Explanation("u", 9.0), False),
        (Explanation("gone", 100.0), False),
    ],
)
def test_who_waits_is_who_was_refused_lately_and_is_still_there(
    known: Explanation,
    shown: bool,  # noqa: FBT001
) -> None:
    memory = ExplanationStore()
    memory.remember("ns", "pod", known)

    found = at_once(waiting(memory, lambda uid: uid == PodUID("u"), "", since=10.0))
    searched = at_once(waiting(memory, lambda uid: uid == PodUID("u"), "other", since=10.0))

    assert (found["total"], searched["total"]) == (int(shown), 0)


def test_of_many_who_wait_the_newest_are_told_and_all_counted() -> None:
    memory = ExplanationStore()
    for number in range(80):
        memory.remember("ns", f"p{number}", Explanation("u", 100.0))

    found = at_once(waiting(memory, lambda _: True, "", since=0.0))

    assert (found["total"], len(found["pods"]), found["pods"][0]["pod"]) == (80, 50, "p79")


async def test_quotas_are_shown_with_what_is_used(api: Any) -> None:
    known = Known(read_quotas('{"default": {"quota": {"T4": 2}}}'))
    item = node_object("a")
    item["metadata"]["labels"] = {"gaia.tencent.com/gpu-model": "T4", "gpu-model": "T4"}
    await api.create("nodes", item)
    async with serving(api, rules=QuotaRules(lambda: known)) as served:
        await bound(served, "p", (50, 4))

        (row,) = (await document(served))["quota"]["rows"]

    assert row == {"namespace": "default", "model": "T4", "gpus": 2, "gpus_used": 0.5}


def test_a_node_that_has_not_changed_is_not_summed_up_again() -> None:
    first, second = node("a"), node("b")
    lines: dict[str, NodeLine] = {}
    at_once(refresh(lines, {"a": first, "b": second}))
    before = dict(lines)

    at_once(refresh(lines, {"a": first, "b": node("b")}))

    assert lines["a"] is before["a"]
    assert lines["b"] is not before["b"]


MEANINGLESS = (
    "page=0", "page=-1", "page=x", "page=99999999999999999999", "page=%00",
    "page=\u0663", "per_page=0", "per_page=101", "sort=cores", "sort=", "search=" + "x" * 254,
    "state=full", "state=", "other=1", "Search=a",
)  # fmt: skip


async def test_what_cannot_be_meant_is_said_so(served: Served, subtests: pytest.Subtests) -> None:
    for query in MEANINGLESS:
        with subtests.test(query[:40]):
            status, text = await served.get(f"/api/cluster?{query}")

            assert (status, len(text) < 400) == (400, True)
            assert "Error" in json.loads(text)

    assert (await served.get("/api/cluster?page=1&page=x"))[0] == 200  # the first counts


@pytest.mark.parametrize("search", ["%FF%FE", "%00", "%22%3E%3Cscript%3E", "%F0%9F%90%8D"])
async def test_a_search_is_only_letters(served: Served, search: str) -> None:
    assert (await document(served, f"?search={search}"))["matches"] == 0


async def test_the_page_is_one_file_that_runs_only_its_own_scripts(served: Served) -> None:
    async with served.session.get("/") as answer:
        policy, page = answer.headers["Content-Security-Policy"], await answer.text()

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.count("<script>") == policy.partition("script-src")[2].split(";")[0].count(
        "sha256-"
    )
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=.(?!data:)", page)


async def test_before_the_cluster_has_been_read_nothing_is_told(api: Any) -> None:
    async with serving(api) as served:
        served.extender.nodes.listed.clear()

        status, text = await served.get("/api/cluster")

        assert (status, "still being read" in text) == (503, True)
        served.extender.nodes.listed.set()


def tables(after: str) -> list[set[str]]:
    """The first column of each table of that section."""
    section = DOCS.read_text().partition("\n## The cluster\n")[2].partition("\n## ")[0]
    found = []
    for table in re.findall(rf"\n\| {after} \|.*\n\|[-|]+\n((?:\|.*\n)+)", section):
        cells = [row.split("|")[1] for row in table.splitlines()]
        found.append(set(re.findall(r"`([a-z_]+)`", " ".join(cells))))
    return found


def keys(rows: list[Mapping[str, Any]]) -> set[str]:
    assert rows
    return set().union(*rows)


async def test_every_field_is_documented_and_every_documented_field_is_there(
    served: Served,
) -> None:
    await bound(served, "serve", (60, 32))
    pod = await served.make("pods", pod_object("large", (1600, 0)))
    await served.post("/scheduler/filter", {"Pod": pod, "NodeNames": ["a", "b"]})
    await until(lambda: pod["metadata"]["uid"] in served.extender.state.known)
    found = await document(served)
    top, sums, waits = tables("field")
    said = DOCS.read_text()

    assert top == set(found)
    assert sums == keys(found["models"]) | set(found["totals"])
    assert waits == keys(found["waiting"]["pods"])
    assert all(f"`{name}`" in said for name in keys(found["waiting"]["pods"][0]["reasons"]))
    for one in found["nodes"]:  # as an agent has its own, as far as it is known here
        jsonschema.validate(one, SCHEMA)
        assert one.keys() <= SCHEMA["properties"].keys()
        for name, rows in (("gpu", one["gpus"]), ("container", one["containers"])):
            assert all(row.keys() <= SCHEMA["$defs"][name]["properties"].keys() for row in rows)
    assert tables("parameter") == [set(Wanted.__struct_fields__)]
