"""Whatever is sent, the answer is a status and a sentence, and the server lives."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from scheduler_world import node_object, pod_object
from served_extender import Served, serving

from gpumanager.scheduler.http.bounds import Bounds
from gpumanager.sim.cluster.server import SimulatedApiServer

pytest_plugins = ["extender_fixtures"]

BOUNDS = Bounds(
    body=1 << 20,
    bodies=2 << 20,
    connections=8,
    head_seconds=0.3,
    body_seconds=0.3,
    answer_seconds=0.3,
    idle_seconds=0.5,
)
POD = {**pod_object("p", (30, 4), uid="u")}
HEAD = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\n"
VERBS = ("predicates", "filter", "prioritize", "preempt", "bind")


@pytest.fixture
async def hostile(api: SimulatedApiServer) -> AsyncIterator[Served]:
    await api.create("nodes", node_object("a"))
    async with serving(api, BOUNDS) as one:
        yield one


def with_pod(**fields: Any) -> bytes:
    return json.dumps({"NodeNames": ["a"], "Pod": {**POD, **fields}}).encode()


def nested(depth: int) -> bytes:
    return b'{"Pod":' + b"[" * depth + b"]" * depth + b"}"


def container(**fields: Any) -> bytes:
    return with_pod(spec={"containers": [{"name": "main", **fields}]})


BODIES = {
    "nothing": b"",
    "a word": b"hello",
    "half a request": b'{"Pod": {"metadata"',
    "bytes that are no text": b"\xff\xfe\x00",
    "null": b"null",
    "a list": b"[]",
    "a number": b"7",
    "an endless number": b'{"Pod":' + b"9" * 5000 + b"}",
    "no fields": b"{}",
    "fields of null": b'{"Pod": null, "Nodes": null, "NodeNames": null}',
    "nested deeply": nested(100_000),
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


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_what_is_no_request_is_answered_400(hostile: Served, verb: str, body: bytes) -> None:
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


@pytest.mark.parametrize("verb", ["predicates", "filter", "prioritize"])
@pytest.mark.parametrize("body", ODD.values(), ids=ODD.keys())
async def test_what_is_odd_but_understood_is_answered(
    hostile: Served, verb: str, body: dict[str, Any]
) -> None:
    assert await hostile.post(f"/scheduler/{verb}", body) is not None
    await lives(hostile)


@pytest.mark.parametrize("amount", ["-5", "30.5", "1e3", "x", "", "9" * 40, None, True, {}])
async def test_amounts_that_are_none_let_a_pod_go_nowhere(hostile: Served, amount: Any) -> None:
    limits = {"tencent.com/vcuda-core": amount, "tencent.com/vcuda-memory": "1"}
    body = container(resources={"limits": limits})

    found = await hostile.post("/scheduler/filter", json.loads(body))

    assert not found["NodeNames"]
    assert "a" in found["FailedAndUnresolvableNodes"]
    await lives(hostile)


async def test_a_declared_body_that_is_too_large_is_refused_unread(hostile: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", hostile.port)
    writer.write(
        b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
    )

    assert b" 413 " in await asyncio.wait_for(reader.readline(), 5)

    writer.close()
    await lives(hostile)


async def test_a_body_that_becomes_too_large_is_refused(hostile: Served) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(32):
            yield b" " * (1 << 16)

    async with hostile.session.post("/scheduler/filter", data=pieces()) as answer:
        assert answer.status == 413
    await lives(hostile)


async def test_a_packed_body_is_not_unpacked(hostile: Served) -> None:
    headers = {"Content-Encoding": "gzip"}
    bomb = b"\x1f\x8b" + b"\0" * 1000
    async with hostile.session.post("/scheduler/filter", data=bomb, headers=headers) as answer:
        assert answer.status == 400
    await lives(hostile)


async def test_a_body_that_never_ends_is_given_up(hostile: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", hostile.port)
    writer.write(HEAD + b"Content-Length: 100\r\n\r\n{")

    assert b" 408 " in await asyncio.wait_for(reader.readline(), 5)

    writer.close()
    await lives(hostile)


async def test_more_large_requests_than_there_is_room_for_have_to_wait(hostile: Served) -> None:
    head = HEAD + b"Content-Length: 1048576\r\n\r\n"
    calls = [await asyncio.open_connection("127.0.0.1", hostile.port) for _ in range(3)]
    for _, writer in calls:
        writer.write(head)

    lines = await asyncio.gather(*(asyncio.wait_for(r.readline(), 5) for r, _ in calls))

    assert sorted(line.split()[1] for line in lines) == [b"408", b"408", b"503"]
    for _, writer in calls:
        writer.close()
    await lives(hostile)


@pytest.mark.parametrize("said", [b"", b"POST /scheduler/filter HTTP/1.1\r\nHost: "])
async def test_who_says_nothing_or_half_a_head_is_let_go(hostile: Served, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", hostile.port)
    writer.write(said)

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1), 5)

    writer.close()
    await lives(hostile)


async def test_who_does_not_read_the_answers_is_let_go(hostile: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", hostile.port, limit=1 << 10)
    body = json.dumps({"Pod": POD, "NodeNames": ["a"] * 20_000}).encode()
    request = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def ask_on() -> None:
        while True:
            writer.write(request)
            await writer.drain()

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(ask_on(), 10)

    assert not reader.at_eof()
    writer.close()
    await lives(hostile)


async def test_a_crowd_does_not_keep_others_out(hostile: Served) -> None:
    crowd = [await asyncio.open_connection("127.0.0.1", hostile.port) for _ in range(40)]

    await lives(hostile)

    assert hostile.server.connections <= BOUNDS.connections + 1
    for _, writer in crowd:
        writer.close()


async def test_what_is_no_http_is_refused(hostile: Served) -> None:
    for said in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"X" * 20_000 + b"\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", hostile.port)
        writer.write(said)
        answer = await asyncio.wait_for(reader.read(100), 5)
        assert b" 400 " in answer
        writer.close()
    await lives(hostile)


async def test_wrong_paths_and_methods_are_told_what_there_is(hostile: Served) -> None:
    async with hostile.session.get("/scheduler/filter") as answer:
        assert answer.status == 405
        assert answer.headers["Allow"] == "POST"
    async with hostile.session.post("/healthz") as answer:
        assert answer.status == 405
    async with hostile.session.get("/nowhere") as answer:
        assert answer.status == 404
        assert "/scheduler/filter" in (await answer.json())["Error"]
    for path in ("/explain/", "/explain/a", "/explain/a/b/c", "/explain/%00/%ff"):
        assert (await hostile.get(path))[0] == 404
    await lives(hostile)


async def lives(served: Served) -> None:
    """It answers a good request as ever."""
    found = await served.post("/scheduler/filter", {"Pod": POD, "NodeNames": ["a"]})
    assert found["NodeNames"] == ["a"]
