"""`gpumanager explain`: what the extender remembers, in words, and clear words where it cannot."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from gpumanager.cli import run
from gpumanager.cli.explain import print_answers
from tests.scheduler.scheduler_world import pod_object
from tests.scheduler.served_extender import Served

pytest_plugins = ["tests.scheduler.extender_fixtures"]


async def explain(served: Served, *arguments: str) -> int:
    url = f"http://127.0.0.1:{served.port}"
    return await asyncio.to_thread(run, ["explain", *arguments, "--extender", url])


async def filtered(served: Served, name: str, cores: int, policy: str = "") -> object:
    pod = await served.make("pods", pod_object(name, (cores, 4), vcuda_policy=policy))
    names = {"Pod": pod, "NodeNames": ["a", "b", "x"]}
    found = await served.post("/scheduler/filter", names)
    await served.post("/scheduler/prioritize", {**names, "NodeNames": found["NodeNames"]})
    return pod


async def test_a_pod_that_waits_is_told_why_with_counts_and_an_example(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    await filtered(served, "big", 500)

    assert await explain(served, "default/big") == 0

    said = " ".join(capsys.readouterr().out.split())
    assert "default/big is pending: no node fits" in said
    assert "0 of 3 nodes fit. Policy: least-waste." in said
    what = "5 whole GPUs with 4 blocks asked; this machine has 4"
    assert f"2 node(s) didn't have enough GPUs a: {what}" in said
    assert "1 node(s) were not known to the GPU scheduler yet x: no node object" in said


async def test_a_pod_that_is_bound_is_told_its_gpus_and_how_its_node_compared(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    await served.bind(await filtered(served, "first", 30), "b")
    pod = await filtered(served, "second", 30, policy="binpack")
    assert await served.bind(pod, "a") == ""

    assert await explain(served, "second", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["gpus"] == [{"container": "app-0", "index": 0, "uuid": "GPU-a-0"}]
    assert [one["node"] for one in record["best"]] == ["b", "a"]
    assert record["points"] == record["best"][1]["points"] < record["best"][0]["points"]

    assert await explain(served, "second") == 0
    shown = capsys.readouterr().out
    said = " ".join(shown.split())
    assert "default/second is on a" in said
    assert "Policy: binpack." in said
    assert "a was number 2 of the 2 nodes that fit; others were better, but" in said
    assert "The best: b; a" in said
    assert "GPU-a-0" in said
    assert max(map(len, shown.splitlines())) <= 80


async def test_a_pod_that_nobody_asked_about_is_not_known(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await explain(served, "default/nobody") == 1

    said = capsys.readouterr().err
    assert "pod default/nobody is not known: kube-scheduler has not asked" in said
    assert "check the name, spec.schedulerName of the pod" in said


@pytest.mark.parametrize("pod", ["a/b/c", "/p", "ns/"])
def test_what_is_no_name_of_a_pod_is_told(pod: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", pod]) == 2

    assert "write NAMESPACE/POD" in capsys.readouterr().err


def test_an_extender_that_cannot_be_reached_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{unused.getsockname()[1]}"
        answers = [
            run(["explain", "default/p", "--extender", f"http://{url}"]),
            run(["explain", "default/p", "--extender", url]),
            run(
                ["explain", "default/p", "--extender", f"https://{url}", "--ca-file", str(tmp_path)]
            ),
        ]

    error = capsys.readouterr().err
    assert answers == [2, 2, 2]
    assert f"http://{url}: cannot ask the extender: Connection refused" in error
    assert "write http://HOST:PORT" in error
    assert error.count("\n") == 3


async def test_another_server_is_no_extender(capsys: pytest.CaptureFixture[str]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    status = await asyncio.to_thread(
        run, ["explain", "default/p", "--extender", f"http://127.0.0.1:{port}"]
    )

    server.close()
    assert status == 2
    assert "not as this version's extender does" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("points", "best", "rank"),
    [
        (-152.18, [(-152.18, 1), (-160.0, 11)], "the best of the 12 nodes that fit"),
        (
            5.0,
            [(5.0, 4), (3.0, 8)],
            "among the 4 best of the 12 nodes that fit, with the same score",
        ),
        (3.0, [(5.0, 4), (3.0, 8)], "number 5 of the 12 nodes that fit"),
        (-9.0, [(5.0, 4), (3.0, 2)], "behind the best 6 of the 12 nodes that fit"),
    ],
)
def test_points_are_told_as_a_rank(
    points: float, best: list[tuple[float, int]], rank: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {
        "pod": "a/b",
        "time": 0.0,
        "policy": "",
        "nodes": 20,
        "fitting": 12,
        "reasons": (),
        "bound": "n1",
        "gpus": (),
        "points": points,
        "best": [{"node": "x", "points": some, "nodes": count} for some, count in best],
    }

    print_answers("a/b", record)

    said = " ".join(capsys.readouterr().out.split())
    assert f"n1 was {rank}" in said
    assert "points" not in said
    assert "-" not in said.partition("The best:")[2]
