"""Short directories for sockets, a running virtual manager, processes that get killed, cgroups."""

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.runtime.cgroup import CgroupFiles, CgroupMount
from tests.limits.container_process import SECONDS, ContainerProcess, StartProcess
from tests.limits.metered_manager import Manage, MeteredManager
from tests.limits.open_door import NAME, limit, virtual_manager


@pytest.fixture
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gm", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def manage(root: Path) -> AsyncIterator[Manage]:
    """Patient with drivers and callers that a busy machine keeps from speaking."""
    made: list[MeteredManager] = []

    def begin(**options: Any) -> MeteredManager:
        patient = {"deadline_seconds": SECONDS, "call_seconds": SECONDS, "read_seconds": SECONDS}
        made.append(virtual_manager(root, **patient | options))
        return made[-1]

    yield begin
    for manager in made:
        await manager.stop()


@pytest.fixture
async def sockets(manage: Manage) -> VirtualManager:
    return manage()


@pytest.fixture
async def hurried(manage: Manage) -> VirtualManager:
    """Hangs up soon on who says nothing."""
    return manage(deadline_seconds=0.1, call_seconds=0.1)


@pytest.fixture
async def door(sockets: VirtualManager) -> Path:
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


def _writable(mounts: tuple[CgroupMount, ...]) -> Path | None:
    """A new cgroup of this kernel, if it lets us make one and move somebody there."""
    for mount in mounts:
        top = Path(mount.point, f"gm-test-{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):
            if "cpuset" not in mount.options:  # whose cgroups take nobody without more ado
                top.mkdir()
                return top
    return None


@pytest.fixture
def cgroup() -> Iterator[Path]:
    files = CgroupFiles.here()
    top = _writable(files.mounts) if not files.around else None
    if top is None:
        pytest.skip("no cgroup can be made here: needs root and a writable /sys/fs/cgroup")
    yield top
    for path, _, _ in os.walk(top, topdown=False):
        Path(path).rmdir()
