"""Whatever stands in a request to the extender, the answer is a status and a sentence. What is no
object at all: test_hostile_http.py."""

import json
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest

from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.scheduler.scheduler_world import node_object, pod_object
from tests.scheduler.served_extender import Served, serving

pytest_plugins = ["tests.scheduler.extender_fixtures"]

POD = {**pod_object("p", (30, 4), uid="u")}
VERBS = ("predicates", "filter", "prioritize", "preempt", "bind")


@pytest.fixture
async def hostile(api: SimulatedApiServer) -> AsyncIterator[Served]:
    await api.create("nodes", node_object("a"))
    async with serving(api) as one:
        yield one


def with_pod(**fields: Any) -> bytes:
    return json.dumps({"NodeNames": ["a"], "Pod": {**POD, **fields}}).encode()


def container(**fields: Any) -> bytes:
    return with_pod(spec={"containers": [{"name": "main", **fields}]})


BODIES = {
    "a pod that is a word": b'{"Pod": "p", "NodeNames": ["a"]}',
    "a pod that is empty": b'{"Pod": {}, "NodeNames": ["a"]}',
    "metadata of a list": b'{"Pod": {"metadata": []}, "NodeNames": ["a"]}',
    "names that are numbers": with_pod().replace(b'["a"]', b"[1, 2]"),
    "names that are null": with_pod().replace(b'["a"]', b"[null]"),
    "names that are an object": with_pod().replace(b'["a"]', b'{"a": 1}'),
    "names with quotes": with_pod().replace(b'["a"]', b'["a\\",\\"b"]'),
    "names cut short": b'{"Pod":{},"NodeNames":["a',
    "names with things between": b'{"Pod":{},"NodeNames":["a",5,"b"]}',
    "names in a strange place": b'{"Pod":{"x":{"NodeNames":["a"]}}}',
    "too many names": json.dumps({"Pod": POD, "NodeNames": ["a"] * 100_001}).encode(),
    "nodes that are a word": b'{"Pod": {"metadata": {"uid": "u", "name": "p"}}, "Nodes": "x"}',
    "nodes of numbers": json.dumps({"Pod": POD, "Nodes": {"items": [1]}}).encode(),
    "a node with a strange name": json.dumps(
        {"Pod": POD, "Nodes": {"items": [{"metadata": {"name": 'a","b'}}]}}
    ).encode(),
    "containers that are a word": with_pod(spec={"containers": "main"}),
    "containers of null": with_pod(spec={"containers": [None]}),
    "a container without a name": with_pod(spec={"containers": [{}]}),
    "limits that are a list": container(resources={"limits": [1]}),
    "annotations that are a list": with_pod(metadata={"uid": "u", "name": "p", "annotations": [1]}),
    "an annotation that is a number": with_pod(
        metadata={"uid": "u", "name": "p", "annotations": {"tencent.com/x": 1}}
    ),
    "a uid that is an object": with_pod(metadata={"uid": {}, "name": "p"}),
    "victims that are a list": json.dumps({"Pod": POD, "NodeNameToMetaVictims": []}).encode(),
    "victims of numbers": json.dumps(
        {"Pod": POD, "NodeNameToMetaVictims": {"a": {"Pods": [1]}}}
    ).encode(),
    "a binding to nothing": b'{"PodName": "p", "PodNamespace": "n", "PodUID": "u"}',
    "a binding elsewhere": json.dumps(
        {"PodName": "../../nodes/a", "PodNamespace": "n", "PodUID": "u", "Node": "a"}
    ).encode(),
}


async def test_what_is_no_request_is_answered_400(
    hostile: Served, subtests: pytest.Subtests
) -> None:
    for verb, (what, body) in product(VERBS, BODIES.items()):
        with subtests.test(f"{verb}: {what}"):
            async with hostile.session.post(f"/scheduler/{verb}", data=body) as answer:
                said = await answer.json()

            assert answer.status == 400
            assert set(said) == {"Error"}
            assert 0 < len(said["Error"]) < 500
            await lives(hostile)


ODD = {
    "unknown fields": {"Pod": {**POD, "moreover": {"x": [1]}}, "NodeNames": ["a"], "Extra": 1},
    "no containers": {"Pod": {**POD, "spec": None}, "NodeNames": ["a"]},
    "an unknown node": {"Pod": POD, "NodeNames": ["nowhere"]},
    "no names": {"Pod": POD, "NodeNames": []},
    "one name many times": {"Pod": POD, "NodeNames": ["a"] * 1000},
    "names in small letters": {"pod": POD, "nodenames": ["a"]},
}


async def test_what_is_odd_but_understood_is_answered(
    hostile: Served, subtests: pytest.Subtests
) -> None:
    for verb, (what, body) in product(("predicates", "filter", "prioritize"), ODD.items()):
        with subtests.test(f"{verb}: {what}"):
            assert await hostile.post(f"/scheduler/{verb}", body) is not None
            await lives(hostile)


async def lives(served: Served) -> None:
    """It answers a good request as ever."""
    found = await served.post("/scheduler/filter", {"Pod": POD, "NodeNames": ["a"]})
    assert found["NodeNames"] == ["a"]
