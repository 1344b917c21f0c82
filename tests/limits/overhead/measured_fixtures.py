"""For tests of what is measured."""

import os

import pytest

from tests.limits.metered_manager import Manage
from tests.limits.overhead.measured import Driver, Process


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
async def process(manage: Manage, driver: Driver) -> Process:
    return await Process.of(manage(meter=driver))


@pytest.fixture
def pid() -> int:
    return os.getpid()
