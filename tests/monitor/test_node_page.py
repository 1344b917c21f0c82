"""The agent's web page and its document over HTTP, and the schema that says what it is."""

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from gpumanager.monitor.ports import GpuFitness
from gpumanager.units import MIB
from tests.monitor.monitor_world import EVERYTHING, World, claimant, share, usage
from tests.monitor.node_show import SCHEMA, Show, busy_node, container, device, served
from tests.monitor.test_pages import Watch


@pytest.fixture
async def show() -> AsyncIterator[Show]:
    """A node that has been looked at a few times."""
    async with served(busy_node(minutes=0.2)) as one:
        yield one


async def say(show: Show, words: str, *, until: bytes = b"") -> str:
    """All that is answered to these words; or until it says that."""
    reader, writer = await asyncio.open_connection("127.0.0.1", show.port)
    writer.write(words.encode())
    answer = b""
    async with asyncio.timeout(120):
        while piece := await reader.read(1 << 16):
            answer += piece
            if until and until in answer:
                break
    writer.transport.abort()
    return answer.decode()


async def get(show: Show, path: str) -> Any:
    """The document there."""
    answer = await say(show, f"GET {path} HTTP/1.0\r\n\r\n")
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.0 200 "), answer
    return json.loads(body)


async def test_the_page_lets_nothing_run_but_its_own_scripts(show: Show) -> None:
    head, _, page = (await say(show, "GET / HTTP/1.0\r\n\r\n")).partition("\r\n\r\n")
    policy = next(row for row in head.split("\r\n") if row.startswith("Content-Security-Policy"))

    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        inside = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = {
            base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in inside
        }
        named = re.search(f"{rule} ([^;]*);", policy)
        assert named is not None
        assert {f"'sha256-{one}'" for one in digests} == set(named[1].split())
        assert inside
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


async def test_the_page_is_one_file_and_names_no_other_host(show: Show) -> None:
    page = await say(show, "GET /ui HTTP/1.0\r\n\r\n")

    assert not re.search(r"<(script|link|img)[^>]*(src|href)=.(?!data:)", page)
    hosts = set(re.findall(r"https?://([a-z0-9.]+)", page))
    assert hosts <= {"www.w3.org"}  # a namespace, which nobody asks
    assert " on" + "click=" not in page
    assert "innerHTML" not in page


async def test_a_page_that_is_opened_gets_what_the_server_has_kept(show: Show) -> None:
    found, kept = await get(show, "/api/node"), await get(show, "/api/history")

    assert [one["time"] for one in kept] == sorted(one["time"] for one in kept)
    assert (len(kept), kept[-1]["time"]) == (12, found["time"])
    device = found["containers"][0]["gpus"][0]
    assert kept[-1]["containers"][0]["gpus"][0].items() <= device.items()


async def test_a_name_is_what_it_is(show: Show) -> None:
    name = '</script><script>alert("1")\n\u2028'
    show.containers = [container(name, device(show.gpus[0]))]
    show.look()

    assert (await get(show, "/api/node"))["containers"][0]["pod"] == name


async def test_before_the_first_look_the_page_comes_and_the_document_does_not() -> None:
    async with served(Show()) as show:
        assert (await say(show, "GET / HTTP/1.0\r\n\r\n")).startswith("HTTP/1.0 200 ")
        assert (await say(show, "GET /api/node HTTP/1.0\r\n\r\n")).startswith("HTTP/1.0 503 ")


async def test_the_monitor_tells_the_page_what_its_sampler_saw() -> None:
    promise = share(claimant())
    watch = Watch(World([promise], [usage(promise, {7: 300 * MIB})]))
    try:
        await watch.monitor._saw(await watch.monitor.sampler.sample(EVERYTHING))
        watch.world.usages = [usage(promise, {7: 300 * MIB}, denied=2)]
        await watch.monitor._saw(await watch.monitor.sampler.sample(EVERYTHING))
        events = watch.latencies.events
        events.refused(claimant("greedy"), "not free")
        events.postponed(claimant("hasty"), "not listed yet")
        events.claim_refused(claimant("user"), "team/gpu", "not free")
        found = json.loads(await watch.text("/api/node"))
    finally:
        await watch.monitor.close()

    assert found["containers"][0]["gpus"][0]["memory_refusals"] == 2
    said = [(one["kind"], one["subject"], one["message"]) for one in found["events"]]
    assert said[:3] == [
        ("claim-refused", "team/user/main", "claim team/gpu not prepared: not free"),
        ("start-put-off", "team/hasty/main", "start put off: not listed yet"),
        ("admission-refused", "team/greedy/main", "refused: not free"),
    ]
    assert [kind for kind, *_ in said[3:]] == ["memory-refused"]


def keys_of(name: str) -> set[str]:
    """The fields of a part of the schema, without those that only the extender has."""
    rows = SCHEMA["$defs"][name] if name else SCHEMA
    return {
        key
        for key, row in rows["properties"].items()
        if not row.get("description", "").startswith("of the extender:")
    }


def keys(rows: list[Mapping[str, Any]]) -> set[str]:
    assert rows
    assert all(row.keys() == rows[0].keys() for row in rows)
    return set(rows[0])


async def test_the_document_is_as_the_published_schema_says(show: Show) -> None:
    """Every field is in the schema, and every field of the schema is there."""
    show.fitness = {show.gpus[3].uuid: GpuFitness(healthy=False)}
    owner = show.containers[0].owner
    show.containers = [replace(show.containers[0], users=(owner,)), *show.containers[1:]]
    show.look()
    found = await get(show, "/api/node")

    jsonschema.validate(found, SCHEMA)
    containers = found["containers"]
    assert set(found) == keys_of("")
    assert keys(found["gpus"]) == keys_of("gpu")
    assert keys(containers) == keys_of("container")
    assert keys([one for row in containers for one in row["gpus"]]) == keys_of("device")
    assert keys([one for row in containers for one in row["users"]]) == keys_of("user")
    assert keys(found["events"]) == keys_of("event")


async def test_bytes_and_counts_are_integers(show: Show) -> None:
    found = await get(show, "/api/node")

    rows = [*found["gpus"], *(one for row in found["containers"] for one in row["gpus"])]
    counts = [
        value for row in rows for key, value in row.items()
        if key.endswith(("_bytes", "index", "processes", "launches", "_throttled", "refusals"))
    ]  # fmt: skip
    assert counts
    assert {type(value) for value in counts} <= {int, type(None)}
