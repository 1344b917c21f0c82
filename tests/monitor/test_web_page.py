"""The agent's web page and its documents over HTTP, and docs/web.md, which promises them."""

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gpumanager.monitor.admissions import AdmissionKind
from gpumanager.monitor.ports import GpuFitness
from gpumanager.monitor.web_pages.events import KINDS
from gpumanager.units import MIB
from tests.monitor.monitor_world import EVERYTHING, World, claimant, share, usage
from tests.monitor.node_show import Show, busy_node, container, device, served
from tests.monitor.test_pages import Watch

DOCS = Path(__file__).parents[2] / "docs/web.md"
PATHS = ("/", "/ui", "/api/node", "/api/stream")


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


async def test_nothing_can_be_changed(show: Show, subtests: pytest.Subtests) -> None:
    for path, method in product(PATHS, ("POST", "PUT", "DELETE", "OPTIONS")):
        with subtests.test(f"{method} {path}"):
            answer = await say(show, f"{method} {path} HTTP/1.0\r\nContent-Length: 0\r\n\r\n")

            assert answer.startswith("HTTP/1.0 405 ")
            assert not show.web.stream.listeners


async def test_head_is_answered_without_a_body_and_nobody_listens(
    show: Show, subtests: pytest.Subtests
) -> None:
    for path in PATHS:
        with subtests.test(path):
            answer = await say(show, f"HEAD {path} HTTP/1.0\r\n\r\n")

            assert answer.startswith("HTTP/1.0 200 ")
            assert answer.endswith("\r\n\r\n")
            assert not show.web.stream.listeners


NO_REQUEST = (
    ("GET {path} HTTP/2.0\r\n\r\n", "505"),
    ("GET {path}\r\n\r\n", "505"),
    ("GET {path}/../{path}x HTTP/1.0\r\n\r\n", "404"),
    ("GET {path}%00 HTTP/1.0\r\n\r\n", "404"),
    ("GET {path} HTTP/1.0\r\nX: " + "x" * 9000 + "\r\n\r\n", "400"),
)


async def test_what_is_no_request_is_told_so(show: Show, subtests: pytest.Subtests) -> None:
    for path, (words, status) in product(PATHS, NO_REQUEST):
        with subtests.test(words.replace("{path}", path)[:60]):
            answer = await say(show, words.replace("{path}", path))

            assert answer.split(" ")[1] == status
            assert not show.web.stream.listeners


async def test_who_leaves_in_the_middle_of_the_document_leaves_nothing_behind(show: Show) -> None:
    for _ in range(20):
        await say(show, "GET /api/node HTTP/1.0\r\n\r\n", until=b"{")
        await say(show, "GET /api/stream HTTP/1.0\r\n\r\n", until=b"retry")
    show.look()
    async with asyncio.timeout(120):
        while show.web.stream.listeners:
            show.look()
            await asyncio.sleep(0.01)

    assert not show.web.stream.listeners


async def test_the_document_tells_the_history_and_the_stream_does_not(show: Show) -> None:
    found = await get(show, "/api/node")
    said = await say(show, "GET /api/stream HTTP/1.0\r\n\r\n", until=b"}\n\n")
    streamed = json.loads(said.partition("data: ")[2].strip())

    assert {**streamed, "history": found["history"]} == found
    ages = found["history"]["seconds_ago"]
    assert ages == sorted(ages, reverse=True)
    for series in found["history"]["series"]:
        assert len(series["percent"]) == len(series["memory_mib"]) == len(ages)


async def test_a_name_is_what_it_is(show: Show) -> None:
    name = '</script><script>alert("1")\n\u2028'
    show.containers = [container(name, device(show.gpus[0]))]
    show.look()

    said = await say(show, "GET /api/stream HTTP/1.0\r\n\r\n", until=b"}\n\n")

    assert json.loads(said.partition("data: ")[2].strip())["containers"][0]["pod"] == name
    assert said.count("\n\n") == 2  # nobody ends an event by his name


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
        late = watch.latencies.admissions
        late.add(AdmissionKind.REFUSED, claimant("greedy"), "not free")
        late.add(AdmissionKind.PUT_OFF, claimant("hasty"), "not listed yet")
        late.add(AdmissionKind.PUT_OFF, claimant("user"), "not free", claim="team/gpu")
        found = watch.monitor.web._document()
    finally:
        await watch.monitor.close()

    assert found is not None
    assert found["containers"][0]["gpus"][0]["memory_refusals"] == 2
    said = [(one["kind"], one["subject"], one["message"]) for one in found["events"]]
    assert said[:2] == [
        ("claim-refused", "team/user/main", "claim team/gpu not prepared: not free"),
        ("admission-refused", "team/greedy/main", "refused: not free"),
    ]
    assert [kind for kind, *_ in said[2:]] == ["memory-refused"]


def tables(heading: str, after: str) -> list[set[str]]:
    """The fields that the tables of a section name, table by table."""
    section = DOCS.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = []
    for table in re.findall(rf"\n\| {after} \|.*\n\|[-|]+\n((?:\|.*\n)+)", section):
        cells = [row.split("|")[1] for row in table.splitlines()]
        found.append(set(re.findall(r"`([a-z_-]+)`", " ".join(cells))))
    return found


def keys(rows: list[Mapping[str, Any]]) -> set[str]:
    assert rows
    assert all(row.keys() == rows[0].keys() for row in rows)
    return set(rows[0])


async def test_every_field_is_documented_and_every_documented_field_is_there(show: Show) -> None:
    show.fitness = {show.gpus[3].uuid: GpuFitness(healthy=False)}
    show.look()
    found = await get(show, "/api/node")
    top, gpus, containers, devices, events, history, series = tables(
        "The agent's documents", "field"
    )

    assert top == set(found)
    assert gpus == keys(found["gpus"])
    assert containers == keys(found["containers"])
    assert devices == keys([one for row in found["containers"] for one in row["gpus"]])
    assert events == keys(found["events"])
    assert history == set(found["history"])
    assert series == keys(found["history"]["series"])
    assert [KINDS.keys()] == tables("The agent's documents", "kind")
