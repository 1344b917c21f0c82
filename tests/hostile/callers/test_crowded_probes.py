"""Whoever reaches the agent's port could take its probes away with 33 connections that say nothing:
/healthz answered 503 for as long as they stayed, and the kubelet restarted the agent.
"""

import asyncio
import http.client
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.hostile_node import HostileNode, hostile
from tests.waiting import until

pytestmark = pytest.mark.namespaces

PATIENCE = 120.0
"""Seconds for one answer, on a machine that others keep busy."""
PATHS = ("/healthz", "/readyz", "/metrics")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


async def answers(port: int, path: str) -> None:
    """Until it is answered well: the first look may not be over."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                if await asyncio.to_thread(status, port, path) == http.client.OK:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.1)


async def probe(path: str, place: Path) -> tuple[int, str]:
    """What the kubelet runs in the agent's container."""
    command = (sys.executable, "-m", "gpumanager", "probe", path, "--socket", str(place))
    running = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await running.communicate()
    return int(running.returncode or 0), said.decode().strip()


@pytest.mark.parametrize(
    ("count", "kind"), [(33, "idle"), (300, "head"), (300, "body"), (300, "deaf"), (2000, "idle")]
)
async def test_a_crowd_takes_neither_probes_nor_metrics(
    count: int, kind: str, tmp_path: Path
) -> None:
    port, place = free_port(), tmp_path / "probe.sock"
    flags: dict[str, Any] = {"query-port": port, "query-addr": "127.0.0.1", "probe-socket": place}
    async with HostileNode(**flags) as node:
        for path in PATHS:
            await answers(port, path)
        async with node.beside(hostile("crowd", "http_crowd.py", port, count, kind)):
            await until(lambda: bool(node.said["crowd"]))
            said = [await asyncio.to_thread(status, port, path) for path in PATHS * 4]
            asked = [await probe(path, place) for path in ("healthz", "readyz")]

    assert said == [200] * len(said)
    assert asked == [(0, "ok"), (0, "ok")]


async def test_probes_have_a_door_for_the_agents_own_account(tmp_path: Path) -> None:
    """Also where nothing is served on a port."""
    place = tmp_path / "probe.sock"
    flags: dict[str, Any] = {"query-port": 0, "probe-socket": place}
    async with HostileNode(**flags):
        await until(place.exists)
        assert place.stat().st_mode & 0o777 == 0o600
        assert place.stat().st_uid == os.geteuid()
        assert await probe("healthz", place) == (0, "ok")

    status, said = await probe("healthz", place)

    assert (status, said) == (1, "")
