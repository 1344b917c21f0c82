"""Short directories for sockets, a running virtual manager, container processes that get killed."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from container_process import ContainerProcess, StartProcess
from open_door import NAME, limit

from gpumanager.virtual.manager import VirtualSockets


@pytest.fixture
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gm", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def sockets(root: Path) -> AsyncIterator[VirtualSockets]:
    manager = VirtualSockets(root, deadline_seconds=0.3, call_seconds=0.3)
    yield manager
    await manager.stop()


@pytest.fixture
async def door(sockets: VirtualSockets) -> Path:
    """The socket of one open allocation."""
    return await sockets.open(NAME, [limit()]) / "vcuda.sock"


@pytest.fixture
async def start_process() -> AsyncIterator[StartProcess]:
    started: list[ContainerProcess] = []

    async def start(socket: Path, *options: str) -> ContainerProcess:
        started.append(await ContainerProcess.start(socket, *options))
        return started[-1]

    yield start
    for process in started:
        await process.kill()
