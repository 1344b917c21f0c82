"""For tests of what is measured."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpumanager.limits.values import Limit
from gpumanager.units import GIB, Bytes
from tests.limits.container_process import SECONDS
from tests.limits.open_door import virtual_manager
from tests.limits.overhead.measured import GPU, NAME, Driver, Process


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
async def process(root: Path, driver: Driver) -> AsyncIterator[Process]:
    manager = virtual_manager(root, meter=driver, read_seconds=SECONDS)
    directory = await manager.open(NAME, [Limit(GPU, Bytes(GIB), 100, 100)])
    made = Process(manager, directory)
    await made.attach()
    yield made
    await manager.stop()


@pytest.fixture
def pid() -> int:
    return os.getpid()
