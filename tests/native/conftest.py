"""A manager, and containers over a stand-in driver (stand_in_cuda.c) with the shim before it."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from shim_container import Container, allocation, build_stand_in

from gpumanager.virtual.manager import VirtualSockets


@pytest.fixture
def work() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gm", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stand_in(tmp_path_factory.mktemp("stand-in") / "symbolic", symbolic=True)


@pytest.fixture(scope="session")
def plain_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose calls of its own exports come back through the shim."""
    return build_stand_in(tmp_path_factory.mktemp("stand-in") / "plain", symbolic=False)


@pytest.fixture
async def manager(work: Path) -> AsyncIterator[VirtualSockets]:
    sockets = VirtualSockets(work)
    yield sockets
    await sockets.stop()


@pytest.fixture
async def container(work: Path, driver: Path, manager: VirtualSockets) -> Container:
    return Container(driver, await allocation(manager), work)


@pytest.fixture
async def plain_container(work: Path, plain_driver: Path, manager: VirtualSockets) -> Container:
    return Container(plain_driver, await allocation(manager), work)
