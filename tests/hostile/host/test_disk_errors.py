"""The disk of the agent's directories fails while agent and programs run.

A file system on a loop device, the file behind which is cut: each page that is not in memory is
EIO, for read() and under mappings, where that is SIGBUS. And, call by call, errors of all kinds in
front of the agent's C library. Nothing ends but what cannot be promised.
"""

import asyncio
import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpumanager.units import MIB
from tests.hostile.host.faulty_host import FaultyHost, faulty
from tests.hostile.hostile_node import HostileNode, hostile, pod
from tests.waiting import until

pytestmark = pytest.mark.namespaces

HOLD = ("cuda-play", "hold", "--memory", "64MiB", "--seconds", "0.1")
LAUNCH = ("cuda-play", "launch", "--kernel", "2ms", "--seconds", "5")


EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2


async def command(*words: object) -> str:
    """What it says where it fails, else nothing."""
    done = await asyncio.to_thread(
        subprocess.run, [*map(str, words)], capture_output=True, text=True, check=False
    )
    return done.stderr if done.returncode else ""


@asynccontextmanager
async def loop_disk(node: HostileNode, image: Path) -> AsyncIterator[Path]:
    """A file system in `image` where the agent keeps its directories."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    with image.open("wb") as file:
        file.truncate(16 * MIB)
    path = node.node.disk.virtual
    await node.node.agent.kill()
    assert not await command("mkfs.ext4", "-qF", image)
    if said := await command("mount", "-o", "loop", image, path):
        pytest.skip(f"no loop device: {said}")
    try:
        await node.node.start_agent()
        yield path
    finally:
        await node.node.agent.stop()
        await command("umount", "-l", path)


def forget(path: Path) -> None:
    """What is in memory of the files below it and mapped by nobody."""
    os.sync()
    for file in path.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def break_disk(image: Path, disk: Path) -> None:
    """Nothing can be written, nor read that is not in memory."""
    os.truncate(image, 0)
    descriptor = os.open(disk, os.O_RDONLY)
    fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    os.close(descriptor)


async def test_running_agent_and_programs_outlive_a_disk_that_fails(tmp_path: Path) -> None:
    """So does an agent that starts while it fails; on a new disk all goes on."""
    image = tmp_path / "image"
    async with (
        HostileNode() as node,
        loop_disk(node, image) as disk,
        node.beside(pod("early", LAUNCH, cores=30)) as running,
        node.beside(hostile("starts", "newcomers.py", 600, cores=20)) as starts,
    ):
        await node.first_line("starts")
        await asyncio.to_thread(forget, disk)
        break_disk(image, disk)
        await node.agent_lives(0.5)
        refused = await node.node.admit(pod("late", HOLD, cores=10))
        assert "Input/output error" in str(refused)
        said = await until(lambda: node.said["starts"][1:])
        assert said[0].startswith("refused")
        assert "cuInit" in said[0]  # and not ended by a signal
        assert not starts.done()

        await node.node.agent.kill()
        await node.node.start_agent()
        await node.agent_lives(0.5)
        (result,) = await running
        assert result.exit_code == 0

        await node.node.agent.kill()
        assert not await command("umount", "-l", disk)
        await node.node.start_agent()
        (result,) = await node.run(pod("later", HOLD, cores=10))
        assert result.exit_code == 0


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FaultyHost:
    return faulty(monkeypatch, tmp_path)


async def pods_while_calls_fail(
    node: HostileNode, host: FaultyHost, error: int, step: int, *, each: bool
) -> list[str]:
    """One pod after the other, for each of which the disk fails `step` calls later; of each why it
    was refused, or nothing. To the first that meets no failure.
    """
    disks, found = (node.node.disk.virtual, node.node.disk.checkpoint), list[str]()
    while True:
        one, after = pod(f"one-{len(found)}", HOLD, cores=1, memory=1), step * len(found)
        with host.failing(error, *disks, after=after, each=each):
            refused = await node.node.admit(one)
            results = () if refused else await node.node.runner.run(one)
            met = host.calls > after
        found.append(str(refused or ""))
        for result in results:
            assert result.refused or result.exit_code == 0 or "cuInit" in node.said[one.name][-1]
        if not met:
            return found


@pytest.mark.parametrize(
    ("error", "step", "each"),
    [(errno.EIO, 1, False), (errno.ENOSPC, 5, True), (errno.EROFS, 5, True)],
    ids=["one EIO", "no space", "read-only"],
)
async def test_each_call_of_an_admission_may_fail_and_nothing_is_lost(
    host: FaultyHost, error: int, step: int, *, each: bool
) -> None:
    """Afterwards all GPUs can be given again, whole."""
    async with HostileNode() as node:
        found = await pods_while_calls_fail(node, host, error, step, each=each)
        assert any(found)
        assert all(os.strerror(error) in refused for refused in found if refused)
        assert not found[-1]

        for number in range(4):
            whole = f"whole-{number}"
            async with asyncio.timeout(120):
                while await node.node.admit(pod(whole, HOLD, cores=100, memory=0)) is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
        await node.agent_lives(0.1)
        assert "has stopped" not in node.node.disk.agent_log.read_text()
