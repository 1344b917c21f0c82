"""The lock that keeps a second agent away."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpumanager.agent.state_lock import FILE_NAME, AnotherAgent, lock_state

HOLDER = Path(__file__).with_name("programs") / "hold_state_lock.py"


def holder(directory: Path) -> subprocess.Popen[str]:
    """Another process that has the lock."""
    command = [sys.executable, str(HOLDER), str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


async def test_who_comes_second_is_told_who_was_first(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        try:
            with pytest.raises(AnotherAgent, match=f"process {first.pid}.*second DaemonSet"):
                await lock_state(tmp_path, wait=0.0)
        finally:
            first.kill()


async def test_a_killed_agent_leaves_no_lock(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        first.kill()
        first.wait()

    with await lock_state(tmp_path, wait=0.0):
        assert str(os.getpid()) in (tmp_path / FILE_NAME).read_text()


async def test_a_new_agent_waits_for_the_old_one(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        waiting = asyncio.create_task(lock_state(tmp_path, wait=60.0))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        first.terminate()

        with await waiting:
            pass


async def test_the_lock_is_given_back(tmp_path: Path) -> None:
    with await lock_state(tmp_path, wait=0.0):
        pass

    with await lock_state(tmp_path, wait=0.0):
        pass


async def test_where_no_file_can_be_made_the_agent_starts_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()

    with await lock_state(tmp_path / "file", wait=0.0):
        assert "cannot lock out a second agent" in caplog.text


async def test_nobody_else_may_open_it(tmp_path: Path) -> None:
    with await lock_state(tmp_path / "made", wait=0.0):
        assert (tmp_path / "made" / FILE_NAME).stat().st_mode & 0o777 == 0o600
