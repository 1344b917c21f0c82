"""The pids that the simulated driver tells, where processes have pid namespaces of their own.

The host sees all processes, by its own numbers; a container sees its own, by the numbers they have
there.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gpumanager.units import MIB
from tests.native.sim_box import Client, SimBox, sim_box

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace of one's own needs root"),
]

OWN_PIDS: Final = ("unshare", "--pid", "--fork", "--kill-child")
CONTAINED: Final = (*OWN_PIDS, "--mount-proc")
LISTS: Final = """
from pynvml import *
def lists():
    nvmlInit()
    gpu = nvmlDeviceGetHandleByIndex(0)
    held = {p.pid: p.usedGpuMemory for p in nvmlDeviceGetComputeRunningProcesses(gpu)}
    nvmlShutdown()
    return held
"""


@pytest.fixture
def box() -> Iterator[SimBox]:
    with sim_box() as made:
        yield made


def contained(box: SimBox, size: int, prefix: tuple[str, ...] = CONTAINED) -> tuple[Client, int]:
    """The first process of a pid namespace, which holds `size` bytes; its pid on the host."""
    client = box.client(prefix=prefix)
    assert client("os.getpid()") == 1
    assert client(f"[init(), alloc({size})]") == [0, 0]
    return client, child_of(client.pid)


def child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def listed(box: SimBox, prefix: tuple[str, ...] = ()) -> str:
    """What NVML tells a process that starts now."""
    script = f"{LISTS}print(lists())"
    asked = subprocess.run(
        [*prefix, sys.executable, "-c", script],
        env=box.environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return asked.stdout.strip()


def test_the_host_is_told_of_a_container_s_process_by_the_pid_it_has_there(box: SimBox) -> None:
    _, pid = contained(box, 3 * MIB)

    assert listed(box) == str({pid: 3 * MIB})
    assert [(one.pid, one.bytes_now) for one in box.gpus.processes()] == [(pid, 3 * MIB)]


def test_two_that_call_themselves_the_same_are_told_apart(box: SimBox) -> None:
    _, one = contained(box, 3 * MIB)
    _, other = contained(box, 5 * MIB)

    assert listed(box) == str({one: 3 * MIB, other: 5 * MIB})


def test_a_container_is_told_of_its_own_processes_by_its_own_pids(box: SimBox) -> None:
    outside = box.client()
    outside("[init(), alloc(1 << 20)]")
    contained(box, 3 * MIB)
    own, _ = contained(box, 5 * MIB)

    assert own(f"exec({LISTS!r}, globals()) or list(lists().items())") == [[1, 5 * MIB]]


def test_the_host_s_own_are_told_as_ever_beside_those_of_containers(box: SimBox) -> None:
    outside = box.client()
    outside("[init(), alloc(1 << 20)]")
    _, pid = contained(box, 3 * MIB)

    assert listed(box) == str({outside.pid: MIB, pid: 3 * MIB})
    assert listed(box, CONTAINED) == "{}"


def test_what_a_killed_container_held_is_free_when_the_host_looks(box: SimBox) -> None:
    client, pid = contained(box, 3 * MIB)
    assert box.gpus.device_bytes(box.uuid) == 3 * MIB

    client.kill()
    wait_until_gone(pid)

    assert box.gpus.device_bytes(box.uuid) == 0
    assert box.gpus.processes() == ()


def test_who_died_before_the_host_ever_looked_holds_nothing(box: SimBox) -> None:
    client, pid = contained(box, 3 * MIB)
    client.kill()
    wait_until_gone(pid)

    assert box.gpus.device_bytes(box.uuid) == 0


def test_other_containers_do_not_take_each_other_for_dead(box: SimBox) -> None:
    one, _ = contained(box, 3 * MIB)
    other, pid = contained(box, 5 * MIB)

    assert other("time.sleep(0.05) or alloc(1 << 20)") == 0  # it looks who is dead before
    assert one("alloc(1 << 20)") == 0

    assert box.gpus.device_bytes(box.uuid) == 10 * MIB
    assert pid in {process.pid for process in box.gpus.processes()}


def test_a_process_that_sees_the_host_s_proc_is_told_of_and_lives(box: SimBox) -> None:
    """A number that it finds there is nobody that it knows."""
    client, pid = contained(box, 3 * MIB, OWN_PIDS)

    assert client("time.sleep(0.05) or alloc(1 << 20)") == 0

    assert [(one.pid, one.bytes_now) for one in box.gpus.processes()] == [(pid, 4 * MIB)]


def test_a_mount_namespace_is_a_tenant_with_its_own_account(box: SimBox) -> None:
    plain, contained = box.client(), box.client(prefix=["unshare", "--mount"])
    plain("[init(), alloc(1 << 30)]")
    contained("[init(), alloc(2 << 30), free(), alloc(1 << 20)]")
    namespace = Path(f"/proc/{contained.pid}/ns/mnt").stat().st_ino

    first, second = box.gpus.tenants()

    assert first.devices[box.uuid].bytes_peak == 1 << 30
    assert second.mount_namespace == namespace
    assert second.devices[box.uuid].bytes_peak == 2 << 30
    assert second.devices[box.uuid].bytes_now == MIB


def wait_until_gone(pid: int) -> None:
    """The end of its parent is not yet its own."""
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
