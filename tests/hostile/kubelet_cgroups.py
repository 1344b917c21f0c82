"""Cgroups of this kernel for the containers of a hostile node, as a kubelet makes them.

They are made in the hierarchy that has the freezer, and are removed with all that runs in them.
"""

import contextlib
import os
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.sim.manifest.pods import Pod
from tests.waiting import until

THAWED: Final = {"freezer.state": "THAWED", "cgroup.freeze": "0"}


@asynccontextmanager
async def in_cgroup(pod: Pod) -> AsyncIterator[Pod]:
    """The pod, whose container enters its cgroup before all else."""
    path = _hierarchy() / f"pod{pod.uid}" / secrets.token_hex(32)
    try:
        path.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    enter = ("sh", "-c", f'echo 0 > {path}/cgroup.procs && exec "$@"', "sh")
    main = pod.containers[0]
    try:
        yield replace(pod, containers=(replace(main, command=(*enter, *main.command)),))
    finally:
        # An agent that pauses the container may freeze it again, and v1 keeps what is frozen alive.
        await until(lambda: _is_empty_once_killed(path))
        _remove(path)


def _hierarchy() -> Path:
    """v1's freezer, where there is one: beside it v2 has no containers."""
    files = CgroupFiles.here()
    mounts = sorted(files.mounts, key=lambda mount: mount.unified)
    points = [one.point for one in mounts if one.unified or "freezer" in one.options]
    if not points or files.around:
        pytest.skip("no cgroup can be made here: needs root and a writable /sys/fs/cgroup")
    return Path(points[0])


def _remove(path: Path) -> None:
    path.rmdir()
    path.parent.rmdir()


def _is_empty_once_killed(path: Path) -> bool:
    _kill_all(path)
    return not (path / "cgroup.procs").read_text()


def _kill_all(path: Path) -> None:
    for name, word in THAWED.items():
        if (path / name).exists():
            (path / name).write_text(word)
    for pid in (path / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
