"""Real clients on the simulated driver, bare and behind the shim: `make test-clients`.

They are some hundred MB of wheels and take a minute, so they are not part of the normal run; what
they need is the extra `clients` of pyproject.toml, in an environment of its own.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from client_box import ClientBox
from sim_box import SimBox, machine

from gpumanager.virtual.manager import VirtualSockets


@pytest.fixture
async def clients() -> AsyncIterator[ClientBox]:
    work = Path(tempfile.mkdtemp(prefix="gm", dir="/tmp"))
    manager = VirtualSockets(work / "vm")
    with SimBox(work / "machine", machine(1)) as box:
        yield ClientBox(box, manager, work)
    await manager.stop()
    shutil.rmtree(work, ignore_errors=True)
