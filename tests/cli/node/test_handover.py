"""When an agent of claims takes over from another one, and when it waits for its end."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from gpumanager.agent.monitoring import Monitored, Monitoring
from gpumanager.agent.state_lock import (
    LockHolder,
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

HOLDER = Path(__file__).with_name("programs") / "hold_state_lock.py"


@contextmanager
def other_agent(directory: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """Another process that has the lock, until it is ended."""
    command = [sys.executable, str(HOLDER), str(directory), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


LOCKS = ExitStack()


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    yield
    LOCKS.close()


def owner(directory: Path, interface: str = CLAIMS) -> tuple[StateOwner, Monitoring]:
    settings = AgentSettings(checkpoint_path=directory, interface=interface)
    monitoring = Monitoring(settings, Supervisor())
    return StateOwner(settings, LOCKS, monitoring), monitoring


async def test_an_agent_takes_over_from_one_that_hands_over(tmp_path: Path) -> None:
    with other_agent(tmp_path, "hands-over") as other:
        holder = lock_holder(tmp_path)
        succeeds = owner(tmp_path)[0].succeeds

    assert holder is not None
    assert holder.hands_over
    assert holder.name.endswith(f"process {other.pid}")
    assert succeeds


async def test_an_agent_takes_over_from_nobody_where_it_is_alone_or_of_device_plugins(
    tmp_path: Path,
) -> None:
    assert not owner(tmp_path)[0].succeeds
    with other_agent(tmp_path, "hands-over"):
        assert not owner(tmp_path, "device-plugin")[0].succeeds


async def test_an_agent_counts_as_ready_while_it_waits_for_one_that_does_not_hand_over(
    tmp_path: Path,
) -> None:
    """A rolling update ends the old pod when the new one is ready."""
    with other_agent(tmp_path) as other:
        state, monitoring = owner(tmp_path)
        assert not state.succeeds
        taking = asyncio.create_task(state.taken(asyncio.Event()))
        await until(lambda: monitoring.not_ready() == "")
        assert not taking.done()
        other.kill()

        assert await taking

    assert monitoring.not_ready() == "the agent is starting"


async def test_an_agent_that_handed_over_does_not_take_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet may start its container again before the pod is ended."""
    monkeypatch.setenv("POD_NAME", "agent-old")
    (tmp_path / "agent.lock").touch()
    with other_agent(tmp_path, "hands-over", "agent-old, process 7") as other:
        state, monitoring = owner(tmp_path)
        assert not state.succeeds
        taking = asyncio.create_task(state.taken(asyncio.Event()))
        await until(lambda: monitoring.not_ready() == "another agent took over")
        other.kill()

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


async def test_the_lock_tells_who_had_it_before(tmp_path: Path) -> None:
    with other_agent(tmp_path) as other:
        waiting = asyncio.create_task(lock_state(tmp_path, hands_over=True))
        await asyncio.sleep(0)
        other.kill()
        with await waiting:
            holder = lock_holder(tmp_path)

    assert isinstance(holder, LockHolder)
    assert holder.hands_over
    assert holder.after.endswith(f"process {other.pid}")


async def test_the_holder_is_asked_once_the_next_agent_is_ready(tmp_path: Path) -> None:
    asked = asyncio.Event()
    watching = asyncio.create_task(until_asked(tmp_path, asked))
    await asyncio.sleep(0)
    assert not asked.is_set()

    with await request_handover(tmp_path):
        await asked.wait()

    await watching


async def test_a_node_that_nobody_serves_after_a_handover_is_noticed(tmp_path: Path) -> None:
    with await lock_state(tmp_path, wait=0.0):
        waiting = asyncio.create_task(until_abandoned(tmp_path, seconds=0.01))
        await asyncio.sleep(0.3)
        assert not waiting.done()

    await waiting
