"""The lock that keeps a second agent away, and when an agent takes over from another one."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from gpumanager.agent.monitoring import Monitored, Monitoring
from gpumanager.agent.state_lock import (
    AFTER,
    FILE_NAME,
    AnotherAgent,
    StateOwner,
    lock_holder,
    lock_state,
    request_handover,
    until_abandoned,
    until_asked,
)
from gpumanager.names import CLAIMS
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import Supervisor
from tests.waiting import until

ME = f"process {os.getpid()}"
LOCKS = ExitStack()


@asynccontextmanager
async def other_agent(directory: Path, **flags: bool) -> AsyncIterator[None]:
    """An agent that has the lock until it ends."""
    with await lock_state(directory, wait=0.0, **flags):
        yield


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    yield
    LOCKS.close()


def owner(directory: Path, interface: str = CLAIMS) -> tuple[StateOwner, Monitoring]:
    settings = AgentSettings(checkpoint_path=directory, interface=interface)
    monitoring = Monitoring(settings, Supervisor())
    return StateOwner(settings, LOCKS, monitoring), monitoring


@pytest.fixture
def process(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """An agent in another process that has the lock."""
    hold = (
        "import asyncio, sys, time; from pathlib import Path;"
        "from gpumanager.agent.state_lock import lock_state;"
        "lock = asyncio.run(lock_state(Path(sys.argv[1]))); print(1, flush=True); time.sleep(600)"
    )
    words = (sys.executable, "-c", hold, str(tmp_path))
    with subprocess.Popen(words, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


async def test_a_second_agent_is_told_of_the_first_which_leaves_no_lock_when_it_is_killed(
    process: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    with pytest.raises(AnotherAgent, match=f"process {process.pid}.*second DaemonSet"):
        await lock_state(tmp_path, wait=0.0)

    process.kill()
    await asyncio.to_thread(process.wait)

    with await lock_state(tmp_path, wait=0.0):
        assert ME in (tmp_path / FILE_NAME).read_text()


async def test_a_new_agent_waits_for_the_old_one_and_the_lock_tells_of_both(tmp_path: Path) -> None:
    async with other_agent(tmp_path):
        waiting = asyncio.create_task(lock_state(tmp_path, wait=60.0, hands_over=True))
        await asyncio.sleep(0)
        assert not waiting.done()

    with await waiting:
        holder = lock_holder(tmp_path)
    assert holder is not None
    assert holder.hands_over
    assert holder.name.endswith(ME)
    assert holder.after.endswith(ME)


async def test_where_no_file_can_be_made_the_agent_starts_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()

    with await lock_state(tmp_path / "file", wait=0.0):
        assert "cannot lock out a second agent" in caplog.text


async def test_nobody_else_may_open_it(tmp_path: Path) -> None:
    with await lock_state(tmp_path / "made", wait=0.0):
        assert (tmp_path / "made" / FILE_NAME).stat().st_mode & 0o777 == 0o600


async def test_only_an_agent_of_claims_takes_over_and_only_from_one_that_hands_over(
    tmp_path: Path,
) -> None:
    assert not owner(tmp_path)[0].succeeds
    async with other_agent(tmp_path, hands_over=True):
        assert owner(tmp_path)[0].succeeds
        assert not owner(tmp_path, "device-plugin")[0].succeeds


async def test_an_agent_counts_as_ready_while_it_waits_for_one_that_does_not_hand_over(
    tmp_path: Path,
) -> None:
    """A rolling update ends the old pod when the new one is ready."""
    async with other_agent(tmp_path):
        state, monitoring = owner(tmp_path)
        assert not state.succeeds
        taking = asyncio.create_task(state.taken(asyncio.Event()))
        await until(lambda: monitoring.not_ready() == "")
        assert not taking.done()

    assert await taking
    assert monitoring.not_ready() == "the agent is starting"


async def test_an_agent_that_handed_over_does_not_take_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet may start its container again before the pod is ended."""
    monkeypatch.setenv("POD_NAME", "agent-old")
    async with other_agent(tmp_path, hands_over=True):
        with (tmp_path / FILE_NAME).open("a") as file:
            file.write(f"{AFTER}agent-old, process 7\n")
        state, monitoring = owner(tmp_path)
        assert not state.succeeds
        taking = asyncio.create_task(state.taken(asyncio.Event()))
        await until(lambda: monitoring.not_ready() == "another agent took over")

    assert await taking


async def test_an_agent_that_handed_over_measures_nothing_more(tmp_path: Path) -> None:
    """Its journal is old: it would take the processes of new claims for unlimited ones."""
    state, monitoring = owner(tmp_path)
    assert await state.taken(asyncio.Event())
    monitoring.observe(Monitored(*(Mock() for _ in range(6))))
    supervisor, stopping = Supervisor(), asyncio.Event()

    giving = asyncio.create_task(state.give_back(stopping, supervisor))
    await until(lambda: lock_holder(tmp_path) is None)

    assert monitoring.not_ready() == "handed over to the next agent"
    assert monitoring._without_parts() == "the agent is starting"
    stopping.set()
    await giving
    await supervisor.stop()


async def test_the_holder_is_asked_once_the_next_agent_is_ready(tmp_path: Path) -> None:
    asked = asyncio.Event()
    watching = asyncio.create_task(until_asked(tmp_path, asked))
    await asyncio.sleep(0)
    assert not asked.is_set()

    with await request_handover(tmp_path):
        await asked.wait()

    await watching


async def test_a_node_that_nobody_serves_after_a_handover_is_noticed(tmp_path: Path) -> None:
    async with other_agent(tmp_path):
        waiting = asyncio.create_task(until_abandoned(tmp_path, seconds=0.01))
        await asyncio.sleep(0.3)
        assert not waiting.done()

    await waiting
