"""What a tenant does with the pages it is handed.

Before, the books were a file of the host, and the configuration's descriptor was of a mount that
the agent writes to. A tenant without rights ended the agent by truncating the books, and took the
host's disk by growing them. Root of a container opened the configuration again for writing and gave
itself a whole GPU, or left a set-uid program on the host. A full disk ended agent and programs.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpumanager.limits.pages.books import read_usage
from gpumanager.limits.pages.config import Config
from gpumanager.units import GIB, MIB
from tests.hostile.hostile_node import HostileNode, hostile, layout, pod
from tests.waiting import until

pytestmark = pytest.mark.namespaces

HOLD = ("cuda-play", "hold", "--memory", "64MiB", "--seconds", "0.2")


def only_allocation(node: HostileNode) -> Path:
    directories = (node.node.disk.virtual / "alloc").iterdir()
    (found,) = (path for path in directories if not path.name.startswith("."))
    return found


def used(directory: Path) -> tuple[object, object]:
    usage = read_usage(directory)
    return usage.devices, usage.processes


@pytest.mark.parametrize("user", ["root", "bare", "nobody"])
async def test_pages_cannot_be_shortened_grown_executed_or_forged(user: str) -> None:
    async with HostileNode() as node, node.beside(hostile("evil", "change_pages.py", user, 600)):
        said = node.said["evil"]
        await until(lambda: any(line.startswith("descriptors") for line in said))

        await node.agent_lives(1.0)
        with Config(only_allocation(node), writable=False) as config:
            (limit,) = config.limits()
        *tries, descriptors = said
        done = {line.removesuffix(" done") for line in tries if line.endswith(" done")}
        assert len(tries) == 12
        assert done == (set() if user == "nobody" else {"list directory"})
        assert descriptors == f"descriptors 1 bytes {layout()['books']}"
        assert (limit.memory, limit.cores) == (GIB, 30)


async def test_a_shim_of_before_gets_no_descriptor_of_the_configuration() -> None:
    async with HostileNode() as node:
        await node.run(hostile("old", "old_hello.py"))

        (line,) = node.said["old"]
        assert line.startswith("-71 0 the shim in this container is older than its books")


async def test_a_restarted_agent_gets_the_books_back(tmp_path: Path) -> None:
    """A second process joins the same books, and neither side gets the limit twice."""
    stay = tmp_path / "stay"
    stay.touch()
    async with (
        HostileNode() as node,
        node.beside(hostile("first", "hold_books.py", stay)),
    ):
        await until(lambda: bool(node.said["first"]))
        directory = only_allocation(node)
        before = used(directory)

        await restart(node)

        assert used(directory) == before
        stay.unlink()
        await until(lambda: len(node.said["first"]) > 1)
        assert node.said["first"] == ["slot 0", f"slot 1 beside {GIB}"]


async def test_books_that_nobody_gives_back_let_nobody_in_until_all_have_ended(
    tmp_path: Path,
) -> None:
    """A daemon that closed all descriptors still has the books, and its bytes in them."""
    stay = tmp_path / "stay"
    stay.touch()
    async with HostileNode() as node:
        one = hostile("first", "two_lives.py", stay)
        async with node.beside(one):
            await until(lambda: "holding" in node.said["first"])
            await restart(node)
            stay.unlink()

            await until(lambda: "ended" in node.said["first"])

            refused = "no process of this container gives its books back to the restarted manager"
            assert node.said["first"] == ["holding", f"-11 {refused}", "0", "ended"]
            assert "it cannot be recovered from any" in node.node.disk.agent_log.read_text()


async def restart(node: HostileNode) -> None:
    await node.node.agent.kill()
    await node.node.start_agent()


@asynccontextmanager
async def small_disk(node: HostileNode, size: int) -> AsyncIterator[Path]:
    """A file system of this size where the agent keeps its directories."""
    path = node.node.disk.virtual
    await node.node.agent.kill()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
    await asyncio.to_thread(subprocess.run, words, check=True)
    try:
        await node.node.start_agent()
        yield path
    finally:
        await node.node.agent.stop()
        await asyncio.to_thread(subprocess.run, ["umount", "-l", str(path)], check=True)


def fill(path: Path) -> Path:
    filler = path / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


async def test_a_full_disk_refuses_new_grants_and_touches_nothing_else() -> None:
    async with (
        HostileNode() as node,
        small_disk(node, MIB) as disk,
        node.beside(pod("early", HOLD, cores=10)) as running,
    ):
        filler = await asyncio.to_thread(fill, disk)
        await node.agent_lives(0.5)

        (result,) = await running
        assert result.exit_code == 0
        refusals = [await node.node.admit(pod(f"late-{n}", HOLD, cores=1)) for n in range(8)]
        assert refusals[-1] is not None
        assert "No space left on device" in str(refusals[-1])
        await node.agent_lives(0.5)

        filler.unlink()
        (result,) = await node.run(pod("later", HOLD, cores=10))
        assert result.exit_code == 0


async def test_an_agent_on_a_read_only_disk_lives_and_goes_on_when_it_is_writable(
    tmp_path: Path,
) -> None:
    stay = tmp_path / "stay"
    stay.touch()
    async with (
        HostileNode() as node,
        small_disk(node, MIB) as disk,
        node.beside(hostile("first", "hold_books.py", stay)),
    ):
        await until(lambda: bool(node.said["first"]))
        directory = only_allocation(node)
        before = used(directory)
        await node.node.agent.kill()
        await asyncio.to_thread(remount, disk, "ro")
        await node.node.start_agent()
        await node.agent_lives(0.5)
        refused = await node.node.admit(pod("late", HOLD, cores=10))
        assert "Read-only file system" in str(refused)

        await node.node.agent.kill()
        await asyncio.to_thread(remount, disk, "rw")
        await node.node.start_agent()

        assert used(directory) == before
        await node.run(pod("later", HOLD, cores=10))


def remount(path: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(path)], check=True)
